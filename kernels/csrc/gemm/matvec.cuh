// What matvec.cu is made of: chunks of the weight on their way in, x normalised, products of chunks, and sums of tiles.
#pragma once

#include "../common/hopper.cuh"

namespace octavo {
namespace {

constexpr int kTile = 16;         // weight rows of a tile
constexpr int kChunk = 256;       // elements of k that a warp fetches at once
constexpr int kPart = kTile + 4;  // floats between the warps' partial sums; with 16, they would meet in one bank

enum Mode : int { kStore = 0, kAdd = 1, kSiluMul = 2 };

template <typename T> struct Args {
  const T *x, *norm, *weight, *bias;  // norm, bias: null if absent
  T *out;
  int64_t weight_stride;  // elements
  float eps;
  int k, n;
  int mode;
  int tiles;
  int chunks;  // of k, of each CTA of a cluster
  int depth, split_log2;
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
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
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
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_async(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Brings a line to the L1 cache.
__device__ __forceinline__ void touch(const void *from) {
  asm volatile("{\n.reg .b32 unused;\nld.global.ca.b32 unused, [%0];\n}" ::"l"(from));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A chunk of a tile: rows 0, 2, .. 14, then rows 1, 3, .. 15 half a bank line further, so that the two rows which a
// quarter of a warp reads lie in different banks.
struct Slot {
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
  int rank, cluster, clusters, chunks;
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

template <typename T>
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

template <typename T>
__device__ __forceinline__ void fetch(const Args<T> &args, const Place &place, Cursor at, unsigned char *slot,
                                      uint64_t *barrier, uint64_t policy) {
  const Source<T> found = source<T>(args, place, at);
  const int bytes = found.width * int(sizeof(T));
  if (elected()) {
    barrier_expect(barrier, bytes * (max(found.count[0], 0) + max(found.count[1], 0)));
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 4
      for (int r = 0; r < 8; ++r)
        if (r < found.count[half])
          copy_bulk(slot + Slot::row(8 * half + r), found.from[half] + r * args.weight_stride, bytes, barrier,
                    policy);
  }
}

// c += chunk of the tile times chunk of x; two sums, or mmas would wait in a chain.
// x: of the chunk; width: of the chunk that is there.
template <typename T>
__device__ __forceinline__ void multiply_chunk(float (&c)[2][4], const unsigned char *slot, const T *x, int width) {
  constexpr int kBatch = 4;  // blocks of 32 loaded before the first is used
  const int lane = threadIdx.x & 31;
  const unsigned char *from = slot + Slot::row(lane >> 2) + 16 * (lane & 3);
  x += 8 * (lane & 3);
  auto blocks = [&](int first, int end) {
    uint4 low[kBatch], high[kBatch], v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const bool there = 32 * (first + b) + 8 * (lane & 3) < end;
      low[b] = there ? *reinterpret_cast<const uint4 *>(from + 64 * (first + b)) : uint4();
      high[b] = there ? *reinterpret_cast<const uint4 *>(from + 64 * (first + b) + 4 * Slot::kRow) : uint4();
      v[b] = *reinterpret_cast<const uint4 *>(x + 32 * (first + b));
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      float(&sum)[4] = c[b & 1];
      multiply(sum, low[b].x, high[b].x, low[b].y, high[b].y, v[b].x, v[b].y, T());
      multiply(sum, low[b].z, high[b].z, low[b].w, high[b].w, v[b].z, v[b].w, T());
    }
  };
  if (width >= kChunk) {
#pragma unroll
    for (int first = 0; first < kChunk / 32; first += kBatch) blocks(first, kChunk);
  } else {
    for (int first = 0; 32 * first < width; first += kBatch) blocks(first, width);
  }
}

// x [slice of k], normalised, in shared memory. Each thread keeps to its own columns until the sums are known.
// sums: [split * warps].
template <typename T>
__device__ __forceinline__ void normalise(const Args<T> &args, const Place &place, T *x, float *sums,
                                          uint64_t *sums_barrier, int columns) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int split = 1 << args.split_log2, parts = warps * split;
  float sum = 0.0f;
  for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x) {
    const Vec<T> v = load(x + column);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += to_float(v.at[j]) * to_float(v.at[j]);
  }
  sum = warp_sum(sum);
  if (lane < split) {
    float *to = sums + place.rank * warps + warp;
    if (split == 1) {
      *to = sum;
    } else {
      send(to, sums_barrier, lane, sum);
    }
  }
  if (split == 1) {
    __syncthreads();
  } else {
    barrier_wait(sums_barrier, 0);
  }
  float total = 0.0f;
  for (int part = 0; part < parts; ++part) total += sums[part];
  const float scale = rsqrtf(total / float(args.k) + args.eps);
  const T *norm = args.norm + place.rank * args.chunks * kChunk;
  for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x) {
    Vec<T> v = load(x + column);
    const Vec<T> w = load(norm + column);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const T scaled = from_float<T>(to_float(v.at[j]) * scale);
      v.at[j] = from_float<T>(to_float(scaled) * to_float(w.at[j]));
    }
    store(x + column, v);
  }
}

// The sums of a tile become outputs. before: for kAdd, what stood there.
template <typename T>
__device__ __forceinline__ void finish(const Args<T> &args, int tile, const float *parts, int count, int part_stride,
                                       float before) {
  const int wide = args.mode == kSiluMul ? kTile / 2 : kTile, i = threadIdx.x, column = tile * wide + i;
  if (i >= wide || column >= args.n) return;
  float total = 0.0f, up = 0.0f;
  for (int part = 0; part < count; ++part) total += parts[i + part * part_stride];
  if (args.mode == kSiluMul) {
    for (int part = 0; part < count; ++part) up += parts[i + kTile / 2 + part * part_stride];
    total = total / (1.0f + __expf(-total)) * up;
  } else {
    if (args.bias != nullptr) total += to_float(args.bias[column]);
    if (args.mode == kAdd) total += before;
  }
  args.out[column] = from_float<T>(total);
}

}  // namespace
}  // namespace octavo
