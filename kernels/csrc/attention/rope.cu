// Rotates q and k, and writes k and v into the paged pool, in one pass over qkv.
//
// A lane holds the same vector of both halves of a head, so that a rotation needs nobody else; the lanes of a head are
// neighbours, for the sum that a norm needs. A lane does several heads of one token: they share cos and sin.
#include "../common/common.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 128;
constexpr int kBlockTokens = 16;

struct Shape {
  int tokens, heads, kv_heads, half;  // half: of the head dimension
  int64_t head_stride;                // of the pool: (blocks + 1) * 16 * d
  int lanes_log2;                     // of a head
  float eps;
};

template <typename T> struct Pointers {
  T *qkv, *pool;
  const float *cos, *sin;
  const int *positions, *places;
  const T *q_norm, *k_norm;
};

template <typename T> struct Pair {
  Vec<T> first, second;
};

// RMSNorm over the head that `lanes` neighbours hold. `inside`: this lane has a part of it.
template <typename T, int kSize>
__device__ __forceinline__ void normalise(float (&first)[kSize], float (&second)[kSize], const T *weight, int at,
                                          bool inside, const Shape &shape) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kSize; j++) sum = fmaf(first[j], first[j], fmaf(second[j], second[j], sum));
  if (!inside) sum = 0.0f;
  for (int step = 1; step < 1 << shape.lanes_log2; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (!inside || weight == nullptr) return;
  const float scale = rsqrtf(sum / (2 * shape.half) + shape.eps);
  const Vec<T> a = load(weight + at), b = load(weight + shape.half + at);
#pragma unroll
  for (int j = 0; j < kSize; j++) {
    first[j] *= scale * to_float(a.at[j]);
    second[j] *= scale * to_float(b.at[j]);
  }
}

template <typename T, int kHeads, bool kNorms>
__global__ void __launch_bounds__(kThreads) rope_kernel(Pointers<T> at, Shape shape) {
  constexpr int kSize = Vec<T>::kSize;
  const int lane = threadIdx.x & ((1 << shape.lanes_log2) - 1), offset = lane * kSize;
  const int total = shape.heads + 2 * shape.kv_heads, apart = (total + kHeads - 1) / kHeads;
  const int group = (blockIdx.x * kThreads + threadIdx.x) >> shape.lanes_log2;
  const int token = group / apart, first_head = group % apart;
  const bool inside = token < shape.tokens && offset < shape.half;
  T *own = at.qkv + int64_t(token) * total * 2 * shape.half + offset;
  Pair<T> raw[kHeads];
  float cosines[kSize], sines[kSize];
  int place = -1;
  wait_for_previous();
  if (inside) {
#pragma unroll
    for (int i = 0; i < kHeads; i++) {
      const int head = first_head + i * apart;
      if (head >= total) continue;
      raw[i].first = load(own + head * 2 * shape.half);
      raw[i].second = load(own + head * 2 * shape.half + shape.half);
    }
    place = at.places[token];
    const int64_t angle = int64_t(at.positions[token]) * shape.half + offset;
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      const Vec<float> c = load(at.cos + angle + j), s = load(at.sin + angle + j);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        cosines[j + n] = c.at[n];
        sines[j + n] = s.at[n];
      }
    }
  }
  release_next();
  if (!kNorms && !inside) return;
#pragma unroll
  for (int i = 0; i < kHeads; i++) {
    const int head = first_head + i * apart, kv_head = head - shape.heads;
    const bool here = inside && head < total, value = kv_head >= shape.kv_heads;
    Pair<T> result = raw[i];
    if (!value || kNorms) {  // with norms every lane takes part in the sums
      float first[kSize], second[kSize];
#pragma unroll
      for (int j = 0; j < kSize; j++) {
        first[j] = to_float(raw[i].first.at[j]);
        second[j] = to_float(raw[i].second.at[j]);
      }
      if (kNorms) normalise(first, second, kv_head < 0 ? at.q_norm : at.k_norm, offset, here, shape);
      if (!value) {
#pragma unroll
        for (int j = 0; j < kSize; j++) {
          result.first.at[j] = from_float<T>(first[j] * cosines[j] - second[j] * sines[j]);
          result.second.at[j] = from_float<T>(second[j] * cosines[j] + first[j] * sines[j]);
        }
      }
    }
    if (!here || (kv_head >= 0 && place < 0)) continue;
    T *to = own + head * 2 * shape.half;
    if (kv_head >= 0) to = at.pool + kv_head * shape.head_stride + int64_t(place) * 2 * shape.half + offset;
    store(to, result.first);
    store(to + shape.half, result.second);
  }
}

template <typename T> int rope(const Pointers<T> &at, const Shape &shape, cudaStream_t stream) {
  const auto call = [&](auto kernel, int heads) {
    const int64_t groups = int64_t(shape.tokens) * ((shape.heads + 2 * shape.kv_heads + heads - 1) / heads);
    const int64_t threads = groups << shape.lanes_log2;
    return launch(kernel, dim3(unsigned((threads + kThreads - 1) / kThreads)), dim3(kThreads), 0, stream, at, shape);
  };
  const bool norms = at.q_norm != nullptr || at.k_norm != nullptr;
  if (shape.tokens <= 2048) return norms ? call(rope_kernel<T, 1, true>, 1) : call(rope_kernel<T, 1, false>, 1);
  return norms ? call(rope_kernel<T, 2, true>, 2) : call(rope_kernel<T, 2, false>, 2);
}

template <typename T>
int rope_and_write(void *qkv, const void *cos, const void *sin, const void *positions, const void *places, void *pool,
                   const void *q_norm, const void *k_norm, float eps, int tokens, int heads, int kv_heads, int dim,
                   int blocks, cudaStream_t stream) {
  Shape shape = {tokens, heads, kv_heads, dim / 2, int64_t(blocks) * kBlockTokens * dim, 0, eps};
  while (Vec<T>::kSize << shape.lanes_log2 < shape.half) shape.lanes_log2++;
  if (shape.lanes_log2 > 5) return int(cudaErrorInvalidValue);
  const Pointers<T> at = {(T *)qkv,
                          (T *)pool,
                          (const float *)cos,
                          (const float *)sin,
                          (const int *)positions,
                          (const int *)places,
                          (const T *)q_norm,
                          (const T *)k_norm};
  return rope(at, shape, stream);
}

}  // namespace
}  // namespace octavo

// blocks: of the pool, with the one that nobody writes.
extern "C" int octavo_rope_and_write(void *qkv, const void *cos, const void *sin, const void *positions,
                                     const void *places, void *pool, const void *q_norm, const void *k_norm, float eps,
                                     int tokens, int heads, int kv_heads, int dim, int blocks, int dtype,
                                     cudaStream_t stream) {
#define OCTAVO_CALL(T)                                                                                        \
  octavo::rope_and_write<T>(qkv, cos, sin, positions, places, pool, q_norm, k_norm, eps, tokens, heads, kv_heads, dim, \
                            blocks, stream)
  switch (dtype) {
    case octavo::kF32: return OCTAVO_CALL(float);
    case octavo::kBf16: return OCTAVO_CALL(octavo::bf16);
    case octavo::kF16: return OCTAVO_CALL(octavo::f16);
    default: return int(cudaErrorInvalidValue);
  }
}
