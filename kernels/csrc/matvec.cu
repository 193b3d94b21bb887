// Products of a few rows with a large weight [out, in], as fast as the weight streams from memory.
//
// The weight's rows are the M of an mma (16 a tile), the batch's rows its N. A CTA of some warps walks its tiles; the k
// dimension of a tile is cut into chunks, dealt in turn to the warps, each of which fetches its own through its own ring
// of shared memory, `depth` slots deep, running on across tiles: no barrier stands between memory and a warp. The ring
// is filled before the previous kernel has ended, since weights are constants; only then is x awaited, normalised and
// kept in shared memory. Partial sums of the warps meet in shared memory once a tile, and are added in a fixed order:
// the same call gives the same bits, and a row's result does not depend on the other rows.
//
// Where x is too large for that, a cluster of CTAs splits k: each holds its slice of x, works on the same tiles, and
// sends its sums of tile i to the CTA i of the cluster.
//
//   k order: an mma adds products over its 16 k, in any order as long as both operands agree. Thread (g, q) of a warp,
//   g = lane / 4, takes the 16 bytes at k = 8 q of each 32 of row g: two mmas' worth, loaded at once.
#include "hopper.cuh"

namespace octavo {
namespace {

constexpr int kTile = 16;         // weight rows of a tile
constexpr int kPart = kTile + 4;  // floats between batch rows of partial sums; with 16, stores would meet in one bank

enum Mode : int { kStore = 0, kAdd = 1, kSiluMul = 2 };

template <typename T> struct Args {
  const T *x, *norm, *weight, *bias;  // norm, bias: null if absent
  T *out;
  int64_t x_stride, weight_stride, out_stride;  // elements
  float eps;
  int rows, k, n;  // n: outputs of a row
  int mode;
  int tiles;
  int chunks;  // of k, of each CTA of a cluster
  int depth, ahead, split_log2, late;
  const void *upcoming[2];
  int upcoming_bytes;
};

__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1, bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1, f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Stores to the place that CTA `rank` of the cluster has where this one has `mine`, and counts 4 bytes at its barrier.
__device__ __forceinline__ void send(float *mine, uint64_t *barrier, int rank, float value) {
  asm volatile(
      "{\n.reg .b32 to, at;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [at];\n}" ::"r"(shared_address(mine)),
      "r"(shared_address(barrier)), "r"(rank), "r"(__float_as_uint(value))
      : "memory");
}

__device__ __forceinline__ uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void copy_bulk(void *to, const void *from, int bytes, uint64_t *barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void prefetch_bulk(const void *from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_async(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Brings a line to the L1 cache.
__device__ __forceinline__ void touch(const void *from) {
  uint32_t unused;
  asm volatile("ld.global.ca.b32 %0, [%1];" : "=r"(unused) : "l"(from));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A chunk of a tile: rows 0, 2, .. 14, then rows 1, 3, .. 15 half a bank line further, so that the two rows which a
// quarter of a warp reads lie in different banks.
template <int kChunk> struct Slot {
  static constexpr int kRow = 2 * kChunk;  // bytes
  static constexpr int kBytes = 16 * kRow + 128;
  __device__ static int row(int r) { return (r >> 1) * kRow + (r & 1) * (8 * kRow + 64); }
};

// Where a warp stands in its sequence of chunks: `tile` counts the tiles of the CTA.
struct Cursor {
  int tile, chunk;
  __device__ void advance(int by, int chunks) {
    chunk += by;
    while (chunk >= chunks) chunk -= chunks, ++tile;
  }
};

struct Place {  // of this CTA
  int rank, cluster, clusters, chunks, chunk;
  __device__ int tile(int index, int split_log2) const {
    return ((((index >> split_log2) * clusters) + cluster) << split_log2) + (index & ((1 << split_log2) - 1));
  }
};

__device__ __forceinline__ bool elected() {
  uint32_t mine;
  asm volatile("{\n.reg .pred mine;\nelect.sync _|mine, 0xffffffff;\nselp.u32 %0, 1, 0, mine;\n}" : "=r"(mine));
  return mine != 0;
}

// A chunk of a tile in memory: eight rows and eight rows, of which `count` are there.
template <typename T> struct Source {
  const T *from[2];
  int count[2];
  int width;  // elements
};

template <typename T, int kChunk>
__device__ __forceinline__ Source<T> source(const Args<T> &args, const Place &place, Cursor at) {
  const int tile = place.tile(at.tile, args.split_log2), column = (place.rank * args.chunks + at.chunk) * kChunk;
  const bool paired = args.mode == kSiluMul;
  const int first = paired ? tile * 8 : tile * kTile, second = paired ? args.n + first : first + 8;
  Source<T> found;
  found.from[0] = args.weight + first * args.weight_stride + column;
  found.from[1] = args.weight + second * args.weight_stride + column;
  found.count[0] = min(8, args.n - first);
  found.count[1] = paired ? found.count[0] : min(8, args.n - second);
  found.width = min(kChunk, args.k - column);
  return found;
}

template <typename T, int kChunk>
__device__ __forceinline__ void fetch(const Args<T> &args, const Place &place, Cursor at, unsigned char *slot,
                                      uint64_t *barrier, uint64_t policy) {
  const Source<T> found = source<T, kChunk>(args, place, at);
  const int bytes = found.width * int(sizeof(T));
  if (elected()) {
    barrier_expect(barrier, bytes * (max(found.count[0], 0) + max(found.count[1], 0)));
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 4
      for (int r = 0; r < 8; ++r)
        if (r < found.count[half])
          copy_bulk(slot + Slot<kChunk>::row(8 * half + r), found.from[half] + r * args.weight_stride, bytes, barrier,
                    policy);
  }
}

// c[i] += chunk of the tile times chunk of batch rows 8 i .. 8 i + 7; two sums each, or mmas would wait for one another.
// x: of the chunk; width: of the chunk that is there.
template <typename T, int kTiles, int kChunk>
__device__ __forceinline__ void multiply_chunk(float (&c)[kTiles][2][4], const unsigned char *slot, const T *x,
                                               const int (&x_rows)[kTiles], int width) {
  constexpr int kBatch = kTiles <= 2 ? 4 : 2;  // blocks of 32 loaded before the first is used
  const int lane = threadIdx.x & 31;
  const unsigned char *from = slot + Slot<kChunk>::row(lane >> 2) + 16 * (lane & 3);
  auto blocks = [&](int first, int end) {
    uint4 low[kBatch], high[kBatch], v[kTiles][kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const bool there = 32 * (first + b) + 8 * (lane & 3) < end;
      low[b] = there ? *reinterpret_cast<const uint4 *>(from + 64 * (first + b)) : uint4();
      high[b] = there ? *reinterpret_cast<const uint4 *>(from + 64 * (first + b) + 4 * Slot<kChunk>::kRow) : uint4();
#pragma unroll
      for (int i = 0; i < kTiles; ++i) v[i][b] = *reinterpret_cast<const uint4 *>(x + x_rows[i] + 32 * (first + b));
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        float(&sum)[4] = c[i][b & 1];
        multiply(sum, low[b].x, high[b].x, low[b].y, high[b].y, v[i][b].x, v[i][b].y, T());
        multiply(sum, low[b].z, high[b].z, low[b].w, high[b].w, v[i][b].z, v[i][b].w, T());
      }
  };
  if (width >= kChunk) {
#pragma unroll
    for (int first = 0; first < kChunk / 32; first += kBatch) blocks(first, kChunk);
  } else {
    for (int first = 0; 32 * first < width; first += kBatch) blocks(first, width);
  }
}

// x [rows, slice of k], normalised, in shared memory. Each thread keeps to its own columns until the sums are known.
// sums: [rows, split * warps].
template <typename T, int kGroup>
__device__ __forceinline__ void normalise(const Args<T> &args, const Place &place, T *x, int x_stride, float *sums,
                                          uint64_t *sums_barrier, int columns) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int split = 1 << args.split_log2, parts = warps * split;
  for (int first = 0; first < args.rows; first += kGroup) {
    float sum[kGroup] = {};
    for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const Vec<T> v = load(x + min(first + i, args.rows - 1) * x_stride + column);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i] += to_float(v.at[j]) * to_float(v.at[j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum[i] = warp_sum(sum[i]);
    if (lane < split) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (first + i >= args.rows) continue;
        float *to = sums + (first + i) * parts + place.rank * warps + warp;
        if (split == 1) {
          *to = sum[i];
        } else {
          send(to, sums_barrier, lane, sum[i]);
        }
      }
    }
  }
  if (split == 1) {
    __syncthreads();
  } else {
    barrier_wait(sums_barrier, 0);
  }
  const T *norm = args.norm + place.rank * args.chunks * place.chunk;
  for (int row = 0; row < args.rows; ++row) {
    float sum = 0.0f;
    for (int part = 0; part < parts; ++part) sum += sums[row * parts + part];
    const float scale = rsqrtf(sum / float(args.k) + args.eps);
    for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x) {
      Vec<T> v = load(x + row * x_stride + column);
      const Vec<T> w = load(norm + column);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const T scaled = from_float<T>(to_float(v.at[j]) * scale);
        v.at[j] = from_float<T>(to_float(scaled) * to_float(w.at[j]));
      }
      store(x + row * x_stride + column, v);
    }
  }
}

template <typename T>
__device__ __forceinline__ void finish(const Args<T> &args, int tile, const float *parts, int count, int part_stride,
                                       int row_stride, float before) {
  const int wide = args.mode == kSiluMul ? kTile / 2 : kTile;
  for (int index = threadIdx.x; index < args.rows * wide; index += blockDim.x) {
    const int row = index / wide, i = index % wide, column = tile * wide + i;
    if (column >= args.n) continue;
    const float *from = parts + row * row_stride + i;
    float total = 0.0f, up = 0.0f;
    for (int part = 0; part < count; ++part) total += from[part * part_stride];
    T *to = args.out + row * args.out_stride + column;
    if (args.mode == kSiluMul) {
      for (int part = 0; part < count; ++part) up += from[part * part_stride + kTile / 2];
      total = total / (1.0f + __expf(-total)) * up;
    } else {
      if (args.bias != nullptr) total += to_float(args.bias[column]);
      if (args.mode == kAdd) total += index == threadIdx.x ? before : to_float(*to);
    }
    *to = from_float<T>(total);
  }
}

// kRows: at most that many batch rows.
template <typename T, int kRows, int kChunk>
__global__ void __launch_bounds__(256) matvec(const __grid_constant__ Args<T> args) {
  constexpr int kTiles = (kRows + 7) / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, rows = args.rows;
  const int split = 1 << args.split_log2, rank = split == 1 ? 0 : cluster_rank();
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const Place place = {rank, int(blockIdx.x) >> args.split_log2, int(gridDim.x) >> args.split_log2,
                       min(args.chunks, all_chunks - rank * args.chunks), kChunk};
  const int x_stride = args.chunks * kChunk + 32;  // an odd number of half bank lines
  const int begin = rank * args.chunks * kChunk, columns = min(args.chunks * kChunk, args.k - begin);

  unsigned char *ring = shared + warp * args.depth * Slot<kChunk>::kBytes;
  T *x = reinterpret_cast<T *>(shared + warps * args.depth * Slot<kChunk>::kBytes);
  float *parts = reinterpret_cast<float *>(x + rows * x_stride);   // [2, warps, rows, kPart]
  float *gathered = parts + 2 * warps * rows * kPart;              // [2, split, rows, kTile], of a cluster only
  float *sums = gathered + (split == 1 ? 0 : 2 * split * rows * kTile);  // [rows, split * warps]
  uint64_t *of_cluster = reinterpret_cast<uint64_t *>(sums + (rows * split * warps + 1) / 2 * 2);  // gathered, sums
  uint64_t *barriers = of_cluster + 3 + warp * args.depth;

  if (lane < args.depth) barrier_init(barriers + lane, 1);
  if (split > 1 && threadIdx.x == 0)
    for (int i = 0; i < 3; ++i) barrier_init(of_cluster + i, 1);
  fence_barrier_init();
  fence_async();
  __syncwarp();
  if (split > 1) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) barrier_expect(of_cluster + i, split * rows * kTile * 4);
      barrier_expect(of_cluster + 2, split * warps * rows * 4);
    }
    cluster_arrive();
  }

  const int rounds = (args.tiles - place.cluster * split + place.clusters * split - 1) / (place.clusters * split);
  const int tiles = rounds * split;
  const uint64_t policy = read_once();
  Cursor use = {0, 0}, fill;
  use.advance(warp, place.chunks);
  fill = use;
  for (int slot = 0; slot < args.depth; ++slot) {
    if (fill.tile < tiles)
      fetch<T, kChunk>(args, place, fill, ring + slot * Slot<kChunk>::kBytes, barriers + slot, policy);
    fill.advance(warps, place.chunks);
  }
  if (!args.late || fill.tile >= tiles) release_next();
  Cursor ahead = fill;
  for (int i = 0; i < args.ahead && ahead.tile < tiles; ++i) {
    const Source<T> found = source<T, kChunk>(args, place, ahead);
    if (elected())
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll 1
        for (int r = 0; r < found.count[half]; ++r)
          prefetch_bulk(found.from[half] + r * args.weight_stride, found.width * int(sizeof(T)));
    ahead.advance(warps, place.chunks);
  }
  if (args.upcoming_bytes > 0 && warp == 0 && elected()) {
    constexpr int kPiece = 8192;
    for (int at = blockIdx.x * kPiece; at < args.upcoming_bytes; at += gridDim.x * kPiece) {
      const int bytes = min(kPiece, args.upcoming_bytes - at);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (args.upcoming[i] != nullptr) prefetch_bulk(static_cast<const unsigned char *>(args.upcoming[i]) + at, bytes);
    }
  }
  if (args.norm != nullptr)
    for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x) touch(args.norm + begin + column);
  const int pad = (x_stride - columns) / 8;
  for (int row = 0; row < rows; ++row)
    for (int i = threadIdx.x; i < pad; i += blockDim.x) store(x + row * x_stride + columns + 8 * i, Vec<T>{});
  wait_for_previous();

  for (int row = 0; row < rows; ++row)
    for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x)
      copy_async(x + row * x_stride + column, args.x + row * args.x_stride + begin + column);
  wait_for_copies();
  if (split > 1) cluster_wait();
  if (args.norm != nullptr)
    normalise<T, kRows == 1 ? 1 : 8>(args, place, x, x_stride, sums, of_cluster + 2, columns);
  __syncthreads();

  int x_rows[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) x_rows[i] = min(8 * i + (lane >> 2), rows - 1) * x_stride + 8 * (lane & 3);
  int slot = 0, phase = 0;
  float before = 0.0f;
  for (int index = 0; index < tiles; ++index) {
    const int target = index & (split - 1), round = index >> args.split_log2;
    if (args.mode == kAdd && target == 0) {
      const int row = threadIdx.x / kTile, column = place.tile(index + rank, args.split_log2) * kTile + threadIdx.x % kTile;
      if (row < rows && column < args.n) before = to_float(args.out[row * args.out_stride + column]);
    }
    float c[kTiles][2][4] = {};
    while (use.tile == index) {
      unsigned char *at = ring + slot * Slot<kChunk>::kBytes;
      barrier_wait(barriers + slot, phase);
      multiply_chunk<T, kTiles, kChunk>(c, at, x + use.chunk * kChunk, x_rows, columns - use.chunk * kChunk);
      __syncwarp();
      if (fill.tile < tiles) fetch<T, kChunk>(args, place, fill, at, barriers + slot, policy);
      use.advance(warps, place.chunks);
      fill.advance(warps, place.chunks);
      if (fill.tile >= tiles) release_next();
      if (++slot == args.depth) slot = 0, phase ^= 1;
    }
    float *mine = parts + (index & 1) * warps * rows * kPart;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int row = 8 * i + 2 * (lane & 3) + (j & 1);
        if (row < rows) mine[(warp * rows + row) * kPart + (lane >> 2) + 8 * (j >> 1)] = c[i][0][j] + c[i][1][j];
      }
    }
    __syncthreads();
    if (split == 1) {
      finish(args, place.tile(index, 0), mine, warps, rows * kPart, kPart, before);
      continue;
    }
    float *received = gathered + (round & 1) * split * rows * kTile;
    uint64_t *complete = of_cluster + (round & 1);
    for (int i = threadIdx.x; i < rows * kTile; i += blockDim.x) {
      float total = 0.0f;
      for (int part = 0; part < warps; ++part) total += mine[(part * rows + i / kTile) * kPart + i % kTile];
      send(received + rank * rows * kTile + i, complete, target, total);
    }
    if (target == split - 1) {
      barrier_wait(complete, (round >> 1) & 1);
      const int tile = place.tile(index - target + rank, args.split_log2);
      if (tile < args.tiles) finish(args, tile, received, split, rows * kTile, kTile, before);
      if (threadIdx.x == 0 && round + 2 < rounds) barrier_expect(complete, split * rows * kTile * 4);
    }
  }
}

struct Plan {  // the last arguments of octavo_matvec
  int chunk, warps, split, depth, ahead, late, carve, ctas;
  const void *upcoming[2];
  int upcoming_bytes;
};

template <typename T, int kRows, int kChunk>
int start(Args<T> args, const Plan &plan, cudaStream_t stream) {
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const int wide = args.mode == kSiluMul ? kTile / 2 : kTile;
  args.tiles = (args.n + wide - 1) / wide;
  args.chunks = (all_chunks + plan.split - 1) / plan.split;
  if ((plan.split - 1) * args.chunks >= all_chunks) return int(cudaErrorInvalidValue);  // a CTA would have none
  args.depth = plan.depth;
  args.ahead = plan.ahead;
  args.late = plan.late;
  args.upcoming[0] = plan.upcoming[0], args.upcoming[1] = plan.upcoming[1], args.upcoming_bytes = plan.upcoming_bytes;
  while ((1 << args.split_log2) < plan.split) ++args.split_log2;
  const int rows = args.rows, warps = plan.warps;
  const size_t floats = 2 * warps * rows * kPart + (plan.split > 1 ? 2 * plan.split * rows * kTile : 0) +
                        (rows * plan.split * warps + 1) / 2 * 2;
  const size_t bytes = size_t(warps) * args.depth * (Slot<kChunk>::kBytes + 8) + 24 +
                       size_t(rows) * (args.chunks * kChunk + 32) * sizeof(T) + 4 * floats;
  auto kernel = matvec<T, kRows, kChunk>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return int(error);
  // An SM drains before it changes how much of its memory is shared: with its own choice a kernel would start late.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, plan.carve ? int(cudaSharedmemCarveoutMaxShared) : int(cudaSharedmemCarveoutDefault));
  if (error != cudaSuccess) return int(error);
  const int clusters = (args.tiles + plan.split - 1) / plan.split, room = plan.ctas / plan.split;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = plan.split;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((clusters < room ? clusters : room) * plan.split);
  config.blockDim = dim3(32 * plan.warps);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = plan.split > 1 ? 2 : 1;
  return int(cudaLaunchKernelEx(&config, kernel, args));
}

template <typename T, int kRows> int start(const Args<T> &args, const Plan &plan, cudaStream_t stream) {
  switch (plan.chunk) {
    case 128: return start<T, kRows, 128>(args, plan, stream);
    case 256: return start<T, kRows, 256>(args, plan, stream);
    case 512: return start<T, kRows, 512>(args, plan, stream);
  }
  return int(cudaErrorInvalidValue);
}

template <typename T>
int start(const void *x, int64_t x_stride, int rows, const void *norm, float eps, const void *weight,
          int64_t weight_stride, int n, int k, const void *bias, void *out, int64_t out_stride, int mode,
          const Plan &plan, cudaStream_t stream) {
  Args<T> args = {};
  args.x = static_cast<const T *>(x);
  args.norm = static_cast<const T *>(norm);
  args.weight = static_cast<const T *>(weight);
  args.bias = static_cast<const T *>(bias);
  args.out = static_cast<T *>(out);
  args.x_stride = x_stride, args.weight_stride = weight_stride, args.out_stride = out_stride;
  args.eps = eps, args.rows = rows, args.k = k, args.n = n, args.mode = mode;
  if (rows == 1) return start<T, 1>(args, plan, stream);
  if (rows <= 8) return start<T, 8>(args, plan, stream);
  if (rows <= 16) return start<T, 16>(args, plan, stream);
  if (rows <= 32) return start<T, 32>(args, plan, stream);
  if (rows <= 64) return start<T, 64>(args, plan, stream);
  return int(cudaErrorInvalidValue);
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_matvec(int dtype, const void *x, int64_t x_stride, int rows, const void *norm, float eps,
                             const void *weight, int64_t weight_stride, int n, int k, const void *bias, void *out,
                             int64_t out_stride, int mode, int chunk, int warps, int split, int depth, int ahead,
                             int late, int carve, int ctas, const void *upcoming, const void *upcoming_too,
                             int upcoming_bytes, cudaStream_t stream) {
  const octavo::Plan plan = {chunk, warps, split, depth, ahead, late, carve, ctas, {upcoming, upcoming_too}, upcoming_bytes};
  auto start = dtype == octavo::kBf16 ? octavo::start<octavo::bf16> : octavo::start<octavo::f16>;
  return start(x, x_stride, rows, norm, eps, weight, weight_stride, n, k, bias, out, out_stride, mode, plan, stream);
}
