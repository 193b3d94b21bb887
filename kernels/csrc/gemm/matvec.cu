// The product of one row with a large weight [out, in], as fast as the weight streams from memory.
//
// The weight's rows are the M of an mma (16 a tile); of its N one column counts. A CTA of some warps walks its tiles;
// the k of a tile is cut into chunks, dealt in turn to the warps, each of which fetches its own through its own ring
// of shared memory, `depth` slots deep, running on across tiles: no barrier stands between memory and a warp. The ring
// is filled before the previous kernel has ended, since weights are constants; only then is x awaited, normalised and
// kept in shared memory. Partial sums of the warps meet in shared memory once a tile, and are added in a fixed order:
// the same call gives the same bits.
//
// Where x is too large for that, a cluster of CTAs splits k: each holds its slice of x, works on the same tiles, and
// sends its sums of tile i to the CTA i of the cluster.
//
//   k order: an mma adds products over its 16 k, in any order as long as both operands agree. Thread (g, q) of a warp,
//   g = lane / 4, takes the 16 bytes at k = 8 q of each 32 of row g: two mmas' worth, loaded at once.
#include "matvec.cuh"

namespace octavo {
namespace {

template <typename T>
__global__ void __launch_bounds__(256) matvec(const __grid_constant__ Args<T> args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  const int split = 1 << args.split_log2, rank = split == 1 ? 0 : cluster_rank();
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const Place place = {rank, int(blockIdx.x) >> args.split_log2, int(gridDim.x) >> args.split_log2,
                       min(args.chunks, all_chunks - rank * args.chunks)};
  const int x_size = args.chunks * kChunk + 32;
  const int begin = rank * args.chunks * kChunk, columns = min(args.chunks * kChunk, args.k - begin);

  unsigned char *ring = shared + warp * args.depth * Slot::kBytes;
  T *x = reinterpret_cast<T *>(shared + warps * args.depth * Slot::kBytes);
  float *parts = reinterpret_cast<float *>(x + x_size);           // [2, warps, kPart]
  float *gathered = parts + 2 * warps * kPart;                    // [2, split, kTile], of a cluster only
  float *sums = gathered + (split == 1 ? 0 : 2 * split * kTile);  // [split * warps]
  uint64_t *of_cluster = reinterpret_cast<uint64_t *>(sums + (split * warps + 1) / 2 * 2);  // gathered, sums
  uint64_t *barriers = of_cluster + 3 + warp * args.depth;

  if (lane < args.depth) barrier_init(barriers + lane, 1);
  if (split > 1 && threadIdx.x == 0)
    for (int i = 0; i < 3; ++i) barrier_init(of_cluster + i, 1);
  fence_barrier_init();
  fence_async();
  __syncwarp();
  if (split > 1) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < 2; ++i) barrier_expect(of_cluster + i, split * kTile * 4);
      barrier_expect(of_cluster + 2, split * warps * 4);
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
  const int pad = (x_size - columns) / 8;
  for (int i = threadIdx.x; i < pad; i += blockDim.x) store(x + columns + 8 * i, Vec<T>{});
  wait_for_previous();

  for (int column = 8 * threadIdx.x; column < columns; column += 8 * blockDim.x)
    copy_async(x + column, args.x + begin + column);
  wait_for_copies();
  if (split > 1) cluster_wait();
  if (args.norm != nullptr) normalise<T>(args, place, x, sums, of_cluster + 2, columns);
  __syncthreads();

  int slot = 0, phase = 0;
  float before = 0.0f;
  for (int index = 0; index < tiles; ++index) {
    const int target = index & (split - 1), round = index >> args.split_log2;
    if (args.mode == kAdd && target == 0) {
      const int column = place.tile(index + rank, args.split_log2) * kTile + threadIdx.x;
      if (threadIdx.x < kTile && column < args.n) before = to_float(args.out[column]);
    }
    float c[2][4] = {};
    while (use.tile == index) {
      unsigned char *at = ring + slot * Slot::kBytes;
      barrier_wait(barriers + slot, phase);
      multiply_chunk<T>(c, at, x + use.chunk * kChunk, columns - use.chunk * kChunk);
      __syncwarp();
      if (fill.tile < tiles) fetch<T>(args, place, fill, at, barriers + slot, policy);
      use.advance(warps, place.chunks);
      fill.advance(warps, place.chunks);
      if (fill.tile >= tiles) release_next();
      if (++slot == args.depth) slot = 0, phase ^= 1;
    }
    float *mine = parts + (index & 1) * warps * kPart;
    if ((lane & 3) == 0) {  // these have column 0
      mine[warp * kPart + (lane >> 2)] = c[0][0] + c[1][0];
      mine[warp * kPart + (lane >> 2) + 8] = c[0][2] + c[1][2];
    }
    __syncthreads();
    if (split == 1) {
      finish(args, place.tile(index, 0), mine, warps, kPart, before);
      continue;
    }
    float *received = gathered + (round & 1) * split * kTile;
    uint64_t *complete = of_cluster + (round & 1);
    if (threadIdx.x < kTile) {
      float total = 0.0f;
      for (int part = 0; part < warps; ++part) total += mine[part * kPart + threadIdx.x];
      send(received + rank * kTile + threadIdx.x, complete, target, total);
    }
    if (target == split - 1) {
      barrier_wait(complete, (round >> 1) & 1);
      const int tile = place.tile(index - target + rank, args.split_log2);
      if (tile < args.tiles) finish(args, tile, received, split, kTile, before);
      if (threadIdx.x == 0 && round + 2 < rounds) barrier_expect(complete, split * kTile * 4);
    }
  }
}

struct Plan {  // the last arguments of octavo_matvec, as matvec.py chooses them
  int warps, split, depth, ctas;
};

template <typename T>
int launch(Args<T> args, const Plan &plan, cudaStream_t stream) {
  const int all_chunks = (args.k + kChunk - 1) / kChunk;
  const int wide = args.mode == kSiluMul ? kTile / 2 : kTile;
  args.tiles = (args.n + wide - 1) / wide;
  args.chunks = (all_chunks + plan.split - 1) / plan.split;
  if ((plan.split - 1) * args.chunks >= all_chunks) return int(cudaErrorInvalidValue);  // a CTA would have none
  if (plan.depth < 1) return int(cudaErrorInvalidValue);
  args.depth = plan.depth;
  while ((1 << args.split_log2) < plan.split) ++args.split_log2;
  const int warps = plan.warps;
  const size_t floats =
      2 * warps * kPart + (plan.split > 1 ? 2 * plan.split * kTile : 0) + (plan.split * warps + 1) / 2 * 2;
  const size_t bytes = size_t(warps) * args.depth * (Slot::kBytes + 8) + 24 +
                       size_t(args.chunks * kChunk + 32) * sizeof(T) + 4 * floats;
  auto kernel = matvec<T>;
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
int start(const void *x, const void *norm, float eps, const void *weight, int64_t weight_stride, int n, int k,
          const void *bias, void *out, int mode, const Plan &plan, cudaStream_t stream) {
  Args<T> args = {};
  args.x = static_cast<const T *>(x);
  args.norm = static_cast<const T *>(norm);
  args.weight = static_cast<const T *>(weight);
  args.bias = static_cast<const T *>(bias);
  args.out = static_cast<T *>(out);
  args.weight_stride = weight_stride;
  args.eps = eps, args.k = k, args.n = n, args.mode = mode;
  return launch(args, plan, stream);
}

}  // namespace
}  // namespace octavo

// x: [k]; weight: [n, k], for silu(gate) * up [2 n, k]; out: [n]; k a multiple of 8.
extern "C" int octavo_matvec(int dtype, const void *x, const void *norm, float eps, const void *weight,
                             int64_t weight_stride, int n, int k, const void *bias, void *out, int mode, int warps,
                             int split, int depth, int ctas, cudaStream_t stream) {
  const octavo::Plan plan = {warps, split, depth, ctas};
  auto start = dtype == octavo::kBf16 ? octavo::start<octavo::bf16> : octavo::start<octavo::f16>;
  return start(x, norm, eps, weight, weight_stride, n, k, bias, out, mode, plan, stream);
}
