// RMSNorm, silu(gate) * up, and the lookup of embeddings: a few operations an element, so memory sets the pace.
#include "common/common.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256;

// One row for blockDim.x threads, each of which holds kVectors vectors of it; blockDim.y rows a block.
template <typename T, int kVectors>
__global__ void __launch_bounds__(kVectors == 1 ? 1024 : 512)
    rms_norm_kernel(const T *__restrict__ x, int64_t stride, const T *__restrict__ weight, T *__restrict__ out,
                    int rows, int width, float eps) {
  constexpr int kSize = Vec<T>::kSize;
  __shared__ float sums[32];
  const int row = blockIdx.x * blockDim.y + threadIdx.y, first = threadIdx.x * kSize, step = blockDim.x * kSize;
  const bool inside = row < rows;
  Vec<T> early, values[kVectors];
  if (kVectors == 1 && first < width) early = load(weight + first);
  wait_for_previous();
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    if (inside && first + i * step < width) values[i] = load(x + row * stride + first + i * step);
  }
  release_next();
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    if (!inside || first + i * step >= width) continue;
#pragma unroll
    for (int j = 0; j < kSize; j++) {
      const float value = to_float(values[i].at[j]);
      sum = fmaf(value, value, sum);
    }
  }
  sum = warp_sum(sum);
  if (blockDim.x > 32) {
    const int warps = blockDim.x / 32, lane = threadIdx.x & 31;
    float *own = sums + threadIdx.y * warps;
    if (lane == 0) own[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warp_sum(lane < warps ? own[lane] : 0.0f);
  }
  const float scale = rsqrtf(sum / width + eps);
  if (!inside) return;
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    if (first + i * step >= width) continue;
    const Vec<T> weights = kVectors == 1 ? early : load(weight + first + i * step);
    Vec<T> result;
#pragma unroll
    for (int j = 0; j < kSize; j++) {
      const T normed = from_float<T>(to_float(values[i].at[j]) * scale);  // rounded, as the model was trained
      result.at[j] = from_float<T>(to_float(normed) * to_float(weights.at[j]));
    }
    store(out + int64_t(row) * width + first + i * step, result);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    silu_mul_kernel(const T *__restrict__ gate_up, int64_t stride, T *__restrict__ out, int wide) {
  const int at = (blockIdx.x * kThreads + threadIdx.x) * Vec<T>::kSize;
  const T *gate = gate_up + blockIdx.y * stride + at;
  wait_for_previous();
  if (at >= wide) return;
  const Vec<T> gates = load(gate), ups = load(gate + wide);
  release_next();
  Vec<T> result;
#pragma unroll
  for (int j = 0; j < Vec<T>::kSize; j++) {
    const float value = to_float(gates.at[j]);
    result.at[j] = from_float<T>(__fdividef(value, 1.0f + __expf(-value)) * to_float(ups.at[j]));
  }
  store(out + int64_t(blockIdx.y) * wide + at, result);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const int *__restrict__ ids, const T *__restrict__ table, T *__restrict__ out, int first,
                 int vocabulary, int width) {
  const int at = (blockIdx.x * kThreads + threadIdx.x) * Vec<T>::kSize;
  wait_for_previous();
  release_next();
  if (at >= width) return;
  const int id = ids[blockIdx.y] - first;
  Vec<T> value = {};
  if (unsigned(id) < unsigned(vocabulary)) value = load(table + int64_t(id) * width + at);
  store(out + int64_t(blockIdx.y) * width + at, value);
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <typename T, int kVectors>
int rms_norm_with(const T *x, int64_t stride, const T *weight, T *out, int rows, int width, float eps,
                  cudaStream_t stream) {
  const int threads = ceil_div(ceil_div(width, Vec<T>::kSize * kVectors), 32) * 32;
  if (threads > (kVectors == 1 ? 1024 : 512)) return int(cudaErrorInvalidValue);
  const int together = threads >= kThreads || rows <= 132 ? 1 : kThreads / threads;
  return launch(rms_norm_kernel<T, kVectors>, dim3(ceil_div(rows, together)), dim3(threads, together), 0, stream, x,
                stride, weight, out, rows, width, eps);
}

template <typename T>
int rms_norm(const void *x, int64_t stride, const void *weight, void *out, int rows, int width, float eps,
             cudaStream_t stream) {
  const auto call = [&](auto with) {
    return with((const T *)x, stride, (const T *)weight, (T *)out, rows, width, eps, stream);
  };
  const int vectors = width / Vec<T>::kSize;
  if (rows <= 264 && vectors <= 1024) return call(rms_norm_with<T, 1>);  // few rows: the shortest path
  if (vectors <= 2 * 512) return call(rms_norm_with<T, 2>);
  return call(rms_norm_with<T, 8>);
}

template <typename T>
int silu_mul(const void *gate_up, int64_t stride, void *out, int rows, int wide, cudaStream_t stream) {
  const dim3 grid(ceil_div(wide, Vec<T>::kSize * kThreads), rows);
  return launch(silu_mul_kernel<T>, grid, dim3(kThreads), 0, stream, (const T *)gate_up, stride, (T *)out, wide);
}

template <typename T>
int embed(const void *ids, const void *table, void *out, int rows, int first, int vocabulary, int width,
          cudaStream_t stream) {
  const dim3 grid(ceil_div(width, Vec<T>::kSize * kThreads), rows);
  return launch(embed_kernel<T>, grid, dim3(kThreads), 0, stream, (const int *)ids, (const T *)table, (T *)out,
                first, vocabulary, width);
}

}  // namespace
}  // namespace octavo

#define OCTAVO_BY_DTYPE(NAME, ...)                                  \
  switch (dtype) {                                                  \
    case octavo::kF32: return octavo::NAME<float>(__VA_ARGS__);     \
    case octavo::kBf16: return octavo::NAME<octavo::bf16>(__VA_ARGS__); \
    case octavo::kF16: return octavo::NAME<octavo::f16>(__VA_ARGS__);   \
    default: return int(cudaErrorInvalidValue);                     \
  }

extern "C" int octavo_rms_norm(const void *x, int64_t stride, const void *weight, void *out, int rows, int width,
                               float eps, int dtype, cudaStream_t stream) {
  OCTAVO_BY_DTYPE(rms_norm, x, stride, weight, out, rows, width, eps, stream)
}

extern "C" int octavo_silu_mul(const void *gate_up, int64_t stride, void *out, int rows, int wide, int dtype,
                               cudaStream_t stream) {
  OCTAVO_BY_DTYPE(silu_mul, gate_up, stride, out, rows, wide, stream)
}

// first: the id of the table's first row.
extern "C" int octavo_embed(const void *ids, const void *table, void *out, int rows, int first, int vocabulary,
                            int width, int dtype, cudaStream_t stream) {
  OCTAVO_BY_DTYPE(embed, ids, table, out, rows, first, vocabulary, width, stream)
}
