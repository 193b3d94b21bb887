// What every kernel here shares: element types, launches with programmatic dependent launch, and small reductions.
//
// Each NAME.cu becomes one shared library with a plain C interface: pointers, sizes, strides in elements, and a stream.
// A function returns a cudaError_t as int; 0 is success. Nothing here knows of Python or of torch, so that one binary
// serves every version of both.
//
// Programmatic dependent launch: a kernel may begin while the one before it in the stream still runs. Rule: every kernel
// calls wait_for_previous() in all its threads before it reads what an earlier kernel wrote, or writes what an earlier
// one reads. Weights are written by nobody, so they may be fetched before. release_next() lets the next kernel begin;
// without it that happens when this one ends.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace octavo {

using bf16 = __nv_bfloat16;
using f16 = __half;

enum Dtype : int { kF32 = 0, kBf16 = 1, kF16 = 2 };

__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(f16 x) { return __half2float(x); }

template <typename T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) { return x; }
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ f16 from_float<f16>(float x) { return __float2half_rn(x); }

// 16 bytes of T: 4 floats or 8 halves.
template <typename T> struct alignas(16) Vec {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

template <typename T> __device__ __forceinline__ Vec<T> load(const T *from) {
  return *reinterpret_cast<const Vec<T> *>(from);
}
template <typename T> __device__ __forceinline__ void store(T *to, const Vec<T> &value) {
  *reinterpret_cast<Vec<T> *>(to) = value;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

// Sum over a block of at most 1,024 threads; every thread gets it. `scratch`: 33 floats of shared memory.
__device__ __forceinline__ float block_sum(float x, float *scratch) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
  x = warp_sum(x);
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  if (warp == 0) {
    float total = warp_sum(lane < warps ? scratch[lane] : 0.0f);
    if (lane == 0) scratch[32] = total;
  }
  __syncthreads();
  return scratch[32];
}

// Launch `kernel` so that it may begin before its predecessor has ended.
template <typename... Params, typename... Args>
inline int launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                  Args... args) {
  if (shared_bytes > 48 * 1024) {
    cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes));
    if (error != cudaSuccess) return int(error);
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return int(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

}  // namespace octavo
