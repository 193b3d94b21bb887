// What both halves of the sampler share: a row's parameters, its noise, and how winners are compared.
//
//     id = argmax over v of (logits[v] - best) / temperature + noise(seed, counter, v)
//
// noise is Gumbel: -log(-log(1 - u)), u from 40 bits of splitmix64, so it lies between -2.82 and 28.43. Hence an entry
// more than 31.25 below the best, after division by the temperature, is never drawn: kReach leaves such entries out.
#pragma once

#include "../common/common.cuh"

namespace octavo {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;  // 2^64 / phi, odd (splitmix64; Steele 2014)
constexpr uint64_t kMix1 = 0xBF58476D1CE4E5B9ull, kMix2 = 0x94D049BB133111EBull;
constexpr float kReach = 32.0f;
constexpr float kLog2E = 1.4426950408889634f;

// Requests by slot, and the samples of a step. header[3] says how many samples there are; the others do nothing.
struct Requests {
  const float *temperature, *top_p, *min_p;
  const int *top_k;
  const int64_t *seeds;
  int *tokens;
  int tokens_stride;
};
// The rows of the logits are of some samples: of `chosen`, or, where that is null, of first, first + apart, ...
struct Samples {
  const int *header, *slots, *ends, *counters, *chosen;
  int *ids, *failed;
  int first, apart;

  __device__ __forceinline__ int of_row(int row) const { return chosen == nullptr ? first + row * apart : chosen[row]; }
};

template <typename T> struct Logits {
  const T *at;
  int64_t stride;
  int vocabulary;
  bool aligned;  // rows can be read 16 bytes at a time

  static constexpr int kGroup = 32 * Vec<T>::kSize;  // entries that a warp reads at once
  __host__ __device__ int groups() const { return (vocabulary + kGroup - 1) / kGroup; }
};

// What one CTA of the first kernel found in its chunk of a row.
struct alignas(32) ChunkResult {
  float best;  // NaN if there was one
  int index;   // of the best, the lowest of equals; greedy rows only
  int drawn;   // the entry that wins with its noise; not of rows with top_k
  float logit, noise;  // of `drawn`
  float mass;          // sum of exp((logit - best) / temperature); rows with top_p only
  float temperature;
  int filtered;  // what Choice::filtered says
};

struct Choice {
  float temperature, top_p, min_p;
  int top_k;
  uint64_t key;

  __device__ bool greedy() const { return !(temperature > 0.0f); }
  __device__ bool by_count(int vocabulary) const { return top_k > 0 && top_k < vocabulary; }
  __device__ bool by_mass() const { return top_p < 1.0f; }
  __device__ bool filtered(int vocabulary) const {
    return !greedy() && (by_count(vocabulary) || by_mass() || min_p > 0.0f);
  }
};

// splitmix64's finaliser without its last step, which changes the upper 32 bits in their lowest alone.
__device__ __forceinline__ uint64_t almost_mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * kMix1;
  return (x ^ (x >> 27)) * kMix2;
}
__device__ __forceinline__ uint64_t mixed(uint64_t x) {
  x = almost_mixed(x);
  return x ^ (x >> 31);
}

// The generator's state for an entry: a row's key counts up by kGolden.
__device__ __forceinline__ uint64_t state_of(uint64_t key, int index) { return key + (uint64_t(index) + 1) * kGolden; }

__device__ __forceinline__ float noise_of(uint64_t key, int index) {
  const float uniform = (__ull2float_rn(mixed(state_of(key, index)) >> 24) + 0.5f) * 0x1p-40f;
  return -logf(-log1pf(-fminf(uniform, 1.0f - 0x1p-24f)));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Noise costs two logarithms. But u <= -log(1 - u), so an entry can only beat a score where u <= exp(own - score): u's
// upper bits, an exp2 and a comparison dismiss nearly all. log2_most: log2 of 2^32 times that bound, or a little more.
__device__ __forceinline__ bool may_win(uint64_t state, float log2_most) {
  const float least = __uint2float_rz(unsigned(almost_mixed(state) >> 32));  // of 2^32 u, or 1 more
  return !(least > exp2_fast(log2_most) + 2.0f);
}

__device__ __forceinline__ Choice choice_of(const Requests &requests, int slot, int counter) {
  Choice choice;
  choice.temperature = requests.temperature[slot];
  choice.top_p = requests.top_p[slot];
  choice.min_p = requests.min_p[slot];
  choice.top_k = requests.top_k[slot];
  choice.key = mixed(mixed(uint64_t(requests.seeds[slot])) + uint64_t(int64_t(counter)) * kGolden);
  return choice;
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
__device__ __forceinline__ float greatest(const Vec<float> &x) {
  return max_or_nan(max_or_nan(x.at[0], x.at[1]), max_or_nan(x.at[2], x.at[3]));
}
template <typename Two> __device__ __forceinline__ Two greatest_two(const void *at) {
  const Two *x = static_cast<const Two *>(at);
  return __hmax2_nan(__hmax2_nan(x[0], x[1]), __hmax2_nan(x[2], x[3]));
}
__device__ __forceinline__ float greatest(const Vec<bf16> &x) {
  const __nv_bfloat162 two = greatest_two<__nv_bfloat162>(x.at);
  return max_or_nan(__low2float(two), __high2float(two));
}
__device__ __forceinline__ float greatest(const Vec<f16> &x) {
  const __half2 two = greatest_two<__half2>(x.at);
  return max_or_nan(__low2float(two), __high2float(two));
}

// Unsigned numbers in the order of floats.
__device__ __forceinline__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float unordered(unsigned x) {
  return __uint_as_float(x & 0x80000000u ? x ^ 0x80000000u : ~x);
}

// A score and an index in one number: the greater score is greater, and of equal scores the lower index.
__device__ __forceinline__ uint64_t ranked(float score, int index) {
  return uint64_t(ordered(score)) << 32 | unsigned(~index);
}
__device__ __forceinline__ int index_of(uint64_t rank) { return ~int(unsigned(rank)); }
__device__ __forceinline__ float score_of(uint64_t rank) { return unordered(unsigned(rank >> 32)); }

__device__ __forceinline__ uint64_t warp_greatest(uint64_t x) {
  const unsigned high = __reduce_max_sync(0xffffffffu, unsigned(x >> 32));
  const unsigned low = __reduce_max_sync(0xffffffffu, unsigned(x >> 32) == high ? unsigned(x) : 0u);
  return uint64_t(high) << 32 | low;
}

// Over the block; every thread gets it. `scratch`: 32 words that nothing else uses until the next barrier after.
template <int kThreads> __device__ __forceinline__ uint64_t block_greatest(uint64_t x, uint64_t *scratch) {
  x = warp_greatest(x);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  const int lane = threadIdx.x & 31;
  return warp_greatest(lane < kThreads / 32 ? scratch[lane] : 0);
}

// 16 bytes of a row from `index` on; what lies beyond it is -inf.
template <typename T> __device__ __forceinline__ Vec<T> load_logits(const Logits<T> &logits, const T *row, int index) {
  if (logits.aligned && index + Vec<T>::kSize <= logits.vocabulary) return load(row + index);
  Vec<T> values;
#pragma unroll
  for (int j = 0; j < Vec<T>::kSize; j++) {
    values.at[j] = index + j < logits.vocabulary ? row[index + j] : from_float<T>(-INFINITY);
  }
  return values;
}

}  // namespace octavo
