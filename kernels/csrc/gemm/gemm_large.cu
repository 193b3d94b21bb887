// silu(gate) * up of [gate, up] = x W^T, for a large batch: one product, the activation in its epilogue.
//
// The batch's rows (tokens) are the M of a wgmma, the weight's rows its N. Two CTAs of a cluster have the same 256 rows of
// the weight and 128 tokens each: each fetches its tokens and half of the weight's rows, for both (multicast), 64 of k at
// a time, through a ring of stages. Two warpgroups multiply 64 x 256 each, and write results by way of shared memory. The
// grid stays: a cluster takes every so many-th tile, in an order that lets neighbours share what is in the L2.
#include "gemm_large.cuh"

namespace octavo {
namespace {

template <class S>
__global__ __launch_bounds__(S::kThreads, 1) void gemm_large(const __grid_constant__ CUtensorMap weight,
                                                             const __grid_constant__ CUtensorMap x,
                                                             const __grid_constant__ CUtensorMap out,
                                                             const __grid_constant__ LargeParams params) {
  extern __shared__ __align__(1024) char space[];
  auto &shared = *reinterpret_cast<typename S::Shared *>(space);
  if (threadIdx.x == 0) {
    prefetch_map(&weight), prefetch_map(&x), prefetch_map(&out);
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], 2 * 4 * S::kConsumers);
    }
    fence_barrier_init();
  }
  cluster_sync();
  wait_for_previous();
  release_next();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) large_fetch<S>(shared, &weight, &x, params);
    __syncwarp();
  } else {
    take_registers<232>();
    LargeMultiplier<S>{shared, params, &out}.run();
  }
  cluster_sync();  // none leaves while the other may still write here
}

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

template <class S>
int start(const void *x, int64_t x_stride, const void *weight, int64_t weight_stride, int k, void *out,
          int64_t out_stride, int n, LargeParams params, cudaStream_t stream) {
  if (encoder() == nullptr) return int(cudaErrorNotSupported);
  const bool brain = __is_same(typename S::Element, bf16);
  const auto type = brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  const auto encode = [&](CUtensorMap *map, int rank, const void *base, const cuuint64_t *sizes,
                          const cuuint64_t *strides, const cuuint32_t *box) {
    return encoder()(map, type, rank, const_cast<void *>(base), sizes, strides, box, ones,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  };
  // [n / 8 octets][gate, up][8 rows][k]
  const cuuint64_t row = weight_stride * 2;
  const cuuint64_t sizes[4] = {cuuint64_t(k), 8, 2, cuuint64_t(n) / 8}, strides[3] = {row, n * row, 8 * row};
  const cuuint32_t box[4] = {S::kStep, 8, 2, S::kColumns / 32};
  const cuuint64_t x_sizes[2] = {cuuint64_t(k), cuuint64_t(params.tokens)}, x_strides[1] = {cuuint64_t(x_stride) * 2};
  const cuuint32_t x_box[2] = {S::kStep, S::kTokens};
  const cuuint64_t out_sizes[2] = {cuuint64_t(n), cuuint64_t(params.tokens)};
  const cuuint64_t out_strides[1] = {cuuint64_t(out_stride) * 2};
  const cuuint32_t out_box[2] = {64, 64};
  CUtensorMap maps[3];
  if (!encode(&maps[0], 4, weight, sizes, strides, box) || !encode(&maps[1], 2, x, x_sizes, x_strides, x_box) ||
      !encode(&maps[2], 2, out, out_sizes, out_strides, out_box))
    return int(cudaErrorInvalidValue);
  params.steps = (k + S::kStep - 1) / S::kStep;
  params.token_tiles = (params.tokens + 2 * S::kTokens - 1) / (2 * S::kTokens);
  params.tiles = params.token_tiles * ((2 * n + S::kColumns - 1) / S::kColumns);
  int device, processors;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  auto kernel = gemm_large<S>;
  const int bytes = sizeof(typename S::Shared);
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return int(error);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = 2;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2 * min(params.tiles, processors / 2));
  config.blockDim = dim3(S::kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return int(cudaLaunchKernelEx(&config, kernel, maps[0], maps[1], maps[2], params));
}

}  // namespace
}  // namespace octavo

// x: [tokens, k]; weight: [2 n, k]; out: [tokens, n]; n and k multiples of 8. group: tiles of tokens that take turns beside
// each other.
extern "C" int octavo_gemm_large_silu_mul(int dtype, const void *x, int64_t x_stride, int tokens, const void *weight,
                                          int64_t weight_stride, int n, int k, void *out, int64_t out_stride, int group,
                                          cudaStream_t stream) {
  using namespace octavo;
  const LargeParams params = {tokens, 0, 0, 0, group};
  auto start = dtype == kBf16 ? octavo::start<LargeShape<bf16>> : octavo::start<LargeShape<f16>>;
  return start(x, x_stride, weight, weight_stride, k, out, out_stride, n, params, stream);
}
