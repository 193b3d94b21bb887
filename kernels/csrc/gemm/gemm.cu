// Products of a medium batch (up to some hundred rows) with a large weight [out, in], as fast as the weight streams.
//
// The weight's rows are the M of a wgmma, the batch's rows (tokens) its N, so that a small batch wastes no weight tile.
// One warp fetches tiles of the weight, 64 of k at a time, and the same k of x, through a ring of stages; two
// warpgroups multiply. The ring is filled before the previous kernel has ended, as weights are constants; x is awaited
// after that. Where tiles are too few for all SMs, a cluster of CTAs shares a tile: each sums its part of k, sends the
// sums of 16 rows each to the CTA that owns those, and these are added in the order of the ranks: the same call gives
// the same bits. A cluster has one tile then, so that the sums may lie where the stages were.
//
//   unit: 16 rows of a tile, a warp's part of a wgmma. For silu(gate) * up: 8 of the gate, the 8 of up that go with
//   them; the tensor map interleaves them on the way in, and a thread finds both in its own registers.
#include "gemm_sums.cuh"

namespace octavo {
namespace {

template <class S>
__global__ __launch_bounds__(S::kThreads, S::kSlots) void gemm(const __grid_constant__ CUtensorMap weight,
                                                       const __grid_constant__ CUtensorMap x,
                                                       const __grid_constant__ Params params) {
  extern __shared__ __align__(1024) char space[];
  auto &shared = *reinterpret_cast<typename S::Shared *>(space);
  const bool fetches = threadIdx.x >= 32 * S::kWarps;
  if (threadIdx.x == 32 * S::kWarps) {
    prefetch_map(&weight);
    prefetch_map(&x);
    for (int i = 0; i < S::kStages; ++i) barrier_init(&shared.full[i], 1), barrier_init(&shared.empty[i], S::kWarps);
    barrier_init(&shared.gathered, 1);
    fence_barrier_init();
  }
  __syncthreads();
  const Share share(params);
  if (fetches) {
    if (threadIdx.x % 32 == 0) Fetcher<S>{shared, &weight, &x, params, share}.run();
    __syncwarp();
    if (params.split > 1) cluster_sync();
    return;
  }
  wait_for_previous();
  Multiplier<S> multiplier{shared, params, share};
  if (params.split == 1) multiplier.run_alone();
  else multiplier.run_shared();
}

struct Call {
  const void *x, *weight;
  int64_t x_stride, weight_stride;
  int k, ctas;
  Params params;
  cudaStream_t stream;
};

using Encode = decltype(&cuTensorMapEncodeTiled);

// Of the driver that is there, so that nothing links against one.
Encode encoder() {
  static const Encode found = [] {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

template <class S> bool encode(CUtensorMap *weight, CUtensorMap *x, const Call &call) {
  const bool brain = __is_same(typename S::Element, bf16);
  const auto type = brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  const auto one = [&](CUtensorMap *map, int rank, const void *base, const cuuint64_t *sizes,
                       const cuuint64_t *strides, const cuuint32_t *box) {
    return encoder()(map, type, rank, const_cast<void *>(base), sizes, strides, box, ones,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  // [n / 8 octets][gate, up: 2, otherwise 1][8 rows][k]
  const cuuint64_t k = call.k, n = call.params.n, row = call.weight_stride * 2;
  const cuuint32_t halves = call.params.mode == kSiluMul ? 2 : 1;
  const cuuint64_t sizes[4] = {k, 8, halves, n / 8}, strides[3] = {row, halves == 2 ? n * row : 8 * row, 8 * row};
  const cuuint32_t box[4] = {S::kStep, 8, halves, S::kRows / 8 / halves};
  const cuuint64_t x_sizes[2] = {k, cuuint64_t(call.params.tokens)}, x_strides[1] = {cuuint64_t(call.x_stride) * 2};
  const cuuint32_t x_box[2] = {S::kStep, S::kTokens};
  return one(weight, 4, call.weight, sizes, strides, box) && one(x, 2, call.x, x_sizes, x_strides, x_box);
}

template <class S> int start(const Call &call) {
  Params params = call.params;
  const int columns = params.mode == kSiluMul ? S::kRows / 2 : S::kRows;
  params.token_tiles = (params.tokens + S::kTokens - 1) / S::kTokens;
  params.tiles = (params.n + columns - 1) / columns * params.token_tiles;
  params.steps = (call.k + S::kStep - 1) / S::kStep;
  params.owned = (S::kUnits + params.split - 1) / params.split;
  const bool fits = params.split * params.owned * S::kBlocks * 512 <= S::kStages * (S::kWeightBytes + S::kTokenBytes);
  if (params.n % 8 || params.split < 1 || params.split > min(8, params.steps) || (params.split > 1 && !fits))
    return int(cudaErrorInvalidValue);
  if (encoder() == nullptr) return int(cudaErrorNotSupported);
  CUtensorMap weight, x;
  if (!encode<S>(&weight, &x, call)) return int(cudaErrorInvalidValue);
  auto kernel = gemm<S>;
  const int bytes = sizeof(typename S::Shared);
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return int(error);
  // An SM drains before it changes how much of its memory is shared, and two of these fit only in the most.
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return int(error);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = params.split;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(params.split > 1 ? params.tiles * params.split : min(params.tiles, call.ctas));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = call.stream;
  config.attrs = attributes;
  config.numAttrs = params.split > 1 ? 2 : 1;
  return int(cudaLaunchKernelEx(&config, kernel, weight, x, params));
}

template <typename T> int start_tile(int rows, int tokens, int slots, const Call &call) {
  switch (slots * 1000000 + rows * 1000 + tokens) {
    case 1128032: return start<Shape<T, 1, 32, 10>>(call);
    case 1128064: return start<Shape<T, 1, 64, 8>>(call);
    case 1128128: return start<Shape<T, 1, 128, 6>>(call);
    case 1256032: return start<Shape<T, 2, 32, 6>>(call);
    case 1256064: return start<Shape<T, 2, 64, 5>>(call);
    case 1256128: return start<Shape<T, 2, 128, 4>>(call);
    case 2128032: return start<Shape<T, 1, 32, 5, 2>>(call);
    case 2128064: return start<Shape<T, 1, 64, 4, 2>>(call);
    case 2128128: return start<Shape<T, 1, 128, 3, 2>>(call);
    case 2256032: return start<Shape<T, 2, 32, 3, 2>>(call);
  }
  return int(cudaErrorInvalidValue);
}

}  // namespace
}  // namespace octavo

// x: [tokens, k]; weight: [n, k], for silu(gate) * up [2 n, k]; out: [tokens, n]; n and k multiples of 8. The last six:
// how the work is cut; ctas bounds their number where split is 1.
extern "C" int octavo_gemm(int dtype, const void *x, int64_t x_stride, int tokens, const void *weight,
                           int64_t weight_stride, int n, int k, const void *bias, void *out, int64_t out_stride,
                           int mode, int tile_rows, int tile_tokens, int split, int slots, int early, int ctas,
                           cudaStream_t stream) {
  const octavo::Params params = {bias, out, out_stride, tokens, n, mode, 0, 0, split, 0, 0, early};
  const octavo::Call call = {x, weight, x_stride, weight_stride, k, ctas, params, stream};
  auto start = dtype == octavo::kBf16 ? octavo::start_tile<octavo::bf16> : octavo::start_tile<octavo::f16>;
  return start(tile_rows, tile_tokens, slots, call);
}
