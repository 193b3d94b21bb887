// Products of a few rows with a large weight [out, in], as fast as the weight streams from memory.
//
// The weight's rows are the M of an mma (16 a tile), the batch's rows its N. A CTA of some warps walks its tiles; the k
// of a tile is cut into chunks, dealt in turn to the warps, each of which fetches its own through its own ring of
// shared memory, `depth` slots deep, running on across tiles: no barrier stands between memory and a warp. The ring
// is filled before the previous kernel has ended, since weights are constants; only then is x awaited, normalised and
// kept in shared memory. Partial sums of the warps meet in shared memory once a tile, and are added in a fixed order:
// the same call gives the same bits, and where as many CTAs share k, a row's do not depend on the other rows.
//
// Where x is too large for that, a cluster of CTAs splits k: each holds its slice of x, works on the same tiles, and
// sends its sums of tile i to the CTA i of the cluster.
//
//   k order: an mma adds products over its 16 k, in any order as long as both operands agree. Thread (g, q) of a warp,
//   g = lane / 4, takes the 16 bytes at k = 8 q of each 32 of row g: two mmas' worth, loaded at once.
#include "matvec.cuh"

namespace octavo {
namespace {

// kRows: at most that many batch rows.
template <typename T, int kRows>
__global__ void __launch_bounds__(256) matvec(const __grid_constant__ Args<T> args) {
  constexpr int kTiles = (kRows + 7) / 8;
  extern __shared__ __align__(128) unsigned char shared[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5, rows = args.rows;
  const int split = 1 << args.split_log2, rank = split == 1 ? 0 : cluster_rank();
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const Place place = {rank, int(blockIdx.x) >> args.split_log2, int(gridDim.x) >> args.split_log2,
                       min(args.chunks, all_chunks - rank * args.chunks)};
  const int x_stride = args.chunks * kChunk + 32;  // an odd number of half bank lines
  const int begin = rank * args.chunks * kChunk, columns = min(args.chunks * kChunk, args.k - begin);

  unsigned char *ring = shared + warp * args.depth * Slot::kBytes;
  T *x = reinterpret_cast<T *>(shared + warps * args.depth * Slot::kBytes);
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
      fetch<T>(args, place, fill, ring + slot * Slot::kBytes, barriers + slot, policy);
    fill.advance(warps, place.chunks);
  }
  if (fill.tile >= tiles) release_next();
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
      const int row = threadIdx.x / kTile;
      const int column = place.tile(index + rank, args.split_log2) * kTile + threadIdx.x % kTile;
      if (row < rows && column < args.n) before = to_float(args.out[row * args.out_stride + column]);
    }
    float c[kTiles][2][4] = {};
    while (use.tile == index) {
      unsigned char *at = ring + slot * Slot::kBytes;
      barrier_wait(barriers + slot, phase);
      multiply_chunk<T, kTiles>(c, at, x + use.chunk * kChunk, x_rows, columns - use.chunk * kChunk);
      __syncwarp();
      if (fill.tile < tiles) fetch<T>(args, place, fill, at, barriers + slot, policy);
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

struct Plan {  // the last arguments of octavo_matvec, as matvec.py chooses them
  int warps, split, depth, ctas;
};

template <typename T, int kRows>
int start(Args<T> args, const Plan &plan, cudaStream_t stream) {
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const int wide = args.mode == kSiluMul ? kTile / 2 : kTile;
  args.tiles = (args.n + wide - 1) / wide;
  args.chunks = (all_chunks + plan.split - 1) / plan.split;
  if ((plan.split - 1) * args.chunks >= all_chunks) return int(cudaErrorInvalidValue);  // a CTA would have none
  if (plan.depth < 1) return int(cudaErrorInvalidValue);
  args.depth = plan.depth;
  while ((1 << args.split_log2) < plan.split) ++args.split_log2;
  const int rows = args.rows, warps = plan.warps;
  const size_t floats = 2 * warps * rows * kPart + (plan.split > 1 ? 2 * plan.split * rows * kTile : 0) +
                        (rows * plan.split * warps + 1) / 2 * 2;
  const size_t bytes = size_t(warps) * args.depth * (Slot::kBytes + 8) + 24 +
                       size_t(rows) * (args.chunks * kChunk + 32) * sizeof(T) + 4 * floats;
  auto kernel = matvec<T, kRows>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return int(error);
  // An SM drains before it changes how much of its memory is shared: with its own choice a kernel would start late.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
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
  return int(cudaErrorInvalidValue);
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_matvec(int dtype, const void *x, int64_t x_stride, int rows, const void *norm, float eps,
                             const void *weight, int64_t weight_stride, int n, int k, const void *bias, void *out,
                             int64_t out_stride, int mode, int warps, int split, int depth, int ctas,
                             cudaStream_t stream) {
  const octavo::Plan plan = {warps, split, depth, ctas};
  auto start = dtype == octavo::kBf16 ? octavo::start<octavo::bf16> : octavo::start<octavo::f16>;
  return start(x, x_stride, rows, norm, eps, weight, weight_stride, n, k, bias, out, out_stride, mode, plan, stream);
}
