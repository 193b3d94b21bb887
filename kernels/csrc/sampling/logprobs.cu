// Log-probabilities of the tokens that follow some rows of logits, and of each row's likeliest ids.
//
//     log p(v) = (logits[v] - best) - log(sum of exp(logits - best))
//
// A first kernel reads the logits once, several CTAs a row; each finds its part's sum and its `top` greatest, in order.
// The second joins the parts of a row, merging these lists. Of equal logits the lower id is first.
#include "sample.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256, kEach = 16, kSpan = kThreads * kEach;
constexpr int kMostParts = kThreads;  // of a row: one for each thread of the second kernel
constexpr float kFloor = -9999.0f;    // JSON knows no infinity
constexpr int kTold = 2;              // words of a result before its ids: 1 if the logits were finite, the token's rank

// What one CTA found in its part of a row. above: how many logits are greater than the token's.
struct alignas(16) Share {
  float best, mass;  // best: NaN if there was one; mass: sum of exp(logit - best)
  int above;
};

// A row of the logits; the token after it stands in the pool. place: of its result.
struct Asked {
  int row, token, place;
};

__device__ __forceinline__ Asked asked_of(const int4 *asked, int index, const int *tokens, int tokens_stride,
                                          int vocabulary) {
  const int4 one = asked[index];  // row, slot, position, place
  const int token = tokens[int64_t(one.y) * tokens_stride + one.z];
  return {one.x, min(max(token, 0), vocabulary - 1), one.w};
}

// The greatest of a thread's entries below `bound`; 0 when there is none.
template <typename T>
__device__ __forceinline__ uint64_t greatest_below(const float (&values)[kEach], int first, uint64_t bound) {
  constexpr int kSize = Vec<T>::kSize;
  uint64_t greatest = 0;
#pragma unroll
  for (int entry = 0; entry < kEach; entry++) {
    const int index = first + entry / kSize * kThreads * kSize + entry % kSize;
    const uint64_t rank = ranked(values[entry], index);
    if (rank < bound) greatest = max(greatest, rank);
  }
  return greatest;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    parts_kernel(Logits<T> logits, const int4 *__restrict__ asked, const int *__restrict__ tokens, int tokens_stride,
                 int top, Share *__restrict__ parts, uint64_t *__restrict__ lists) {
  constexpr int kSize = Vec<T>::kSize;
  __shared__ uint64_t scratch[2][32];
  __shared__ float sums[33];
  wait_for_previous();
  release_next();
  const Asked own = asked_of(asked, blockIdx.y, tokens, tokens_stride, logits.vocabulary);
  const T *row = logits.at + int64_t(own.row) * logits.stride;
  const float token = to_float(row[own.token]);
  const int first = blockIdx.x * kSpan + threadIdx.x * kSize;
  float values[kEach], best = -INFINITY;
  int above = 0;
#pragma unroll
  for (int i = 0; i < kEach / kSize; i++) {
    const Vec<T> some = load_logits(logits, row, first + i * kThreads * kSize);
#pragma unroll
    for (int j = 0; j < kSize; j++) {
      const float logit = to_float(some.at[j]) + 0.0f;  // no -0: it is as great as 0
      values[i * kSize + j] = logit;
      best = max_or_nan(best, logit);
      above += logit > token;
    }
  }
  const bool nan = __syncthreads_or(best != best);
  best = nan ? NAN : score_of(block_greatest<kThreads>(ranked(best, 0), scratch[1]));
  float mass = 0.0f;
  if (best > -INFINITY) {
#pragma unroll
    for (int entry = 0; entry < kEach; entry++) mass += exp2_fast((values[entry] - best) * kLog2E);
  }
  mass = block_sum(mass, sums);
  const float all_above = block_sum(float(above), sums);  // exact: a span has few entries
  const int64_t part = int64_t(blockIdx.y) * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) parts[part] = {best, mass, int(all_above)};
  uint64_t next = top ? greatest_below<T>(values, first, ~uint64_t(0)) : 0;
  for (int place = 0; place < top; place++) {
    const uint64_t winner = block_greatest<kThreads>(next, scratch[place & 1]);
    if (next != winner) continue;
    lists[part * top + place] = winner;
    next = greatest_below<T>(values, first, winner);
  }
}

// A CTA a row, a part for each thread.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    join_kernel(Logits<T> logits, const int4 *__restrict__ asked, const int *__restrict__ tokens, int tokens_stride,
                int top, int chunks, const Share *__restrict__ parts, const uint64_t *__restrict__ lists,
                int *__restrict__ told) {
  __shared__ uint64_t scratch[2][32];
  __shared__ float sums[33];
  wait_for_previous();
  release_next();
  const Asked own = asked_of(asked, blockIdx.x, tokens, tokens_stride, logits.vocabulary);
  const bool real = int(threadIdx.x) < chunks;
  const int64_t at = int64_t(blockIdx.x) * chunks + threadIdx.x;
  Share share = {-INFINITY, 0.0f, 0};
  if (real) share = parts[at];
  const bool nan = __syncthreads_or(share.best != share.best);
  const float best = nan ? NAN : score_of(block_greatest<kThreads>(ranked(share.best, 0), scratch[1]));
  const bool any = share.best > -INFINITY;
  const float mass = block_sum(any ? share.mass * exp2_fast((share.best - best) * kLog2E) : 0.0f, sums);
  const float above = block_sum(float(share.above), sums);  // exact: below 2^24
  const float log_mass = logf(mass);
  const auto log_probability = [&](float logit) { return fmaxf((logit - best) - log_mass, kFloor); };  // of a NaN: kFloor

  int *ids = told + int64_t(own.place) * (kTold + 2 * (1 + top)) + kTold;
  float *values = reinterpret_cast<float *>(ids + 1 + top);
  if (threadIdx.x == 0) {
    ids[-2] = isfinite(best);
    ids[-1] = 1 + int(above);
    ids[0] = own.token;
    values[0] = log_probability(to_float(logits.at[int64_t(own.row) * logits.stride + own.token]));
  }
  const uint64_t *list = lists + at * top;
  int taken = 0;
  uint64_t next = real && top ? list[0] : 0;
  for (int place = 0; place < top; place++) {
    const uint64_t winner = block_greatest<kThreads>(next, scratch[place & 1]);
    if (next != winner) continue;
    ids[1 + place] = index_of(winner);
    values[1 + place] = log_probability(score_of(winner));
    taken++;
    next = taken < top ? list[taken] : 0;
  }
}

template <typename T>
int logprobs(const void *at, int64_t stride, int vocabulary, const int4 *asked, int count, const int *tokens,
             int tokens_stride, int top, Share *parts, uint64_t *lists, int *told, cudaStream_t stream) {
  const bool aligned = stride % Vec<T>::kSize == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  const Logits<T> logits = {(const T *)at, stride, vocabulary, aligned};
  const int chunks = (vocabulary + kSpan - 1) / kSpan;
  if (chunks > kMostParts) return int(cudaErrorInvalidValue);
  const int error = launch(parts_kernel<T>, dim3(chunks, count), dim3(kThreads), 0, stream, logits, asked, tokens,
                           tokens_stride, top, parts, lists);
  if (error) return error;
  return launch(join_kernel<T>, dim3(count), dim3(kThreads), 0, stream, logits, asked, tokens, tokens_stride, top,
                chunks, parts, lists, told);
}

}  // namespace
}  // namespace octavo

// asked: [count] of row, slot, position, place; the token after a row is tokens[slot, position]. top: at most `vocabulary`.
// With chunks = ceil(vocabulary / 4096), parts: [count, chunks] of a Share, lists: [count, chunks, top] of 8 bytes.
// told: [places, 2 + 2 * (1 + top)] words: finite, rank, ids (the token, then the likeliest), their log-probabilities.
extern "C" int octavo_logprobs(const void *logits, int64_t stride, int vocabulary, const void *asked, int count,
                               const void *tokens, int tokens_stride, int top, void *parts, void *lists, void *told,
                               int dtype, cudaStream_t stream) {
  using namespace octavo;
  const auto call = [&](auto logprobs) {
    return logprobs(logits, stride, vocabulary, (const int4 *)asked, count, (const int *)tokens, tokens_stride, top,
                    (Share *)parts, (uint64_t *)lists, (int *)told, stream);
  };
  switch (dtype) {
    case kF32: return call(logprobs<float>);
    case kBf16: return call(logprobs<bf16>);
    case kF16: return call(logprobs<f16>);
    default: return int(cudaErrorInvalidValue);
  }
}
