// The next token of each row. A first kernel reads the logits once, several CTAs a row, and finds each chunk's greatest
// logit and, where the row draws without filters, the entry that wins with its noise. The second, in
// sample_finish.cuh, joins the chunks; rows with top_k, top_p or min_p are drawn there.
#include "sample_finish.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256, kMany = 16, kFew = 8;  // entries that a thread reads at once

// A warp's share of a turn: kVectors groups, one after another.
template <typename T, int kVectors> struct Turn {
  static constexpr int kSize = Vec<T>::kSize, kEach = kVectors * kSize, kAll = kThreads * kEach;
  Vec<T> values[kVectors];
  int first;  // this lane's first entry

  __device__ __forceinline__ void read(const Logits<T> &logits, const T *row, int from) {
    first = from;
#pragma unroll
    for (int i = 0; i < kVectors; i++) values[i] = load_logits(logits, row, index(i, 0));
  }
  __device__ __forceinline__ int index(int i, int j) const { return first + i * Logits<T>::kGroup + j; }
  __device__ __forceinline__ int index(int entry) const { return index(entry / kSize, entry % kSize); }
  __device__ __forceinline__ float best() const {
    float top = greatest(values[0]);
#pragma unroll
    for (int i = 1; i < kVectors; i++) top = max_or_nan(top, greatest(values[i]));
    return top;
  }
  // The first entry of that value.
  __device__ __forceinline__ int find(float value) const {
    int found = 0;
#pragma unroll
    for (int entry = kEach - 1; entry >= 0; entry--) {
      if (to_float(values[entry / kSize].at[entry % kSize]) == value) found = entry;
    }
    return index(found);
  }
};

// The best entry so far of a lane, with its noise.
struct Candidate {
  float logit = -INFINITY, noise = 0.0f;
  int index = 0;

  // Compared by differences: nothing is lost where temperatures are small and scores large.
  __device__ __forceinline__ bool beaten_by(float other_logit, float other_noise, float temperature) const {
    return (other_logit - logit) / temperature + (other_noise - noise) > 0.0f;
  }
};

// Lets the entries of a turn compete. `bar`: of the CTA, the greatest logit + temperature * noise yet, as ordered().
template <typename T, int kVectors>
__device__ __forceinline__ void compete(const Turn<T, kVectors> &turn, const T *row, int vocabulary,
                                        const Choice &choice, Candidate &own, unsigned &bar) {
  constexpr int kSize = Vec<T>::kSize, kEach = kVectors * kSize;
  const float scale = kLog2E / choice.temperature;
  const float level = unordered(*static_cast<volatile unsigned *>(&bar)) * scale;
  const float offset = 32.02f + fabsf(level) * 0x1p-20f - level;  // 0.02: more than all rounding here
  const uint64_t state = state_of(choice.key, turn.first);
  unsigned left = 0;
#pragma unroll
  for (int entry = 0; entry < kEach; entry++) {
    const float logit = to_float(turn.values[entry / kSize].at[entry % kSize]);
    const uint64_t ahead = uint64_t(turn.index(entry) - turn.first) * kGolden;
    if (may_win(state + ahead, fmaf(logit, scale, offset))) left |= 1u << entry;
  }
  while (left) {
    const int index = turn.index(__ffs(left) - 1);
    left &= left - 1;
    if (index >= vocabulary) continue;
    const float logit = to_float(row[index]), noise = noise_of(choice.key, index);
    if (!own.beaten_by(logit, noise, choice.temperature)) continue;
    own.logit = logit;
    own.noise = noise;
    own.index = index;
    atomicMax(&bar, ordered(fmaf(noise, choice.temperature, logit)));
  }
}

// Before the first turn competes: `own` is its best entry, and the best of these set the bar.
template <typename T, int kVectors>
__device__ __forceinline__ void start(const Turn<T, kVectors> &turn, float top, const Choice &choice, Candidate &own,
                                      unsigned &bar) {
  own.logit = top;
  own.index = turn.find(top);
  own.noise = noise_of(choice.key, own.index);
  if (threadIdx.x == 0) bar = ordered(-INFINITY);
  __syncthreads();
  const unsigned level = __reduce_max_sync(0xffffffffu, ordered(fmaf(own.noise, choice.temperature, top)));
  if ((threadIdx.x & 31) == 0) atomicMax(&bar, level);
  __syncthreads();
}

template <typename T, int kVectors>
__device__ __forceinline__ void write_maxima(const Turn<T, kVectors> &turn, float *maxima, int groups) {
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
    const unsigned top = __reduce_max_sync(0xffffffffu, ordered(greatest(turn.values[i])));
    const int group = turn.index(i, 0) / Logits<T>::kGroup;
    if ((threadIdx.x & 31) == 0 && group < groups) maxima[group] = unordered(top);
  }
}

// Sum of exp((logit - top) / temperature) over a turn, added to a sum relative to `before`.
template <typename T, int kVectors>
__device__ __forceinline__ float add_mass(const Turn<T, kVectors> &turn, float mass, float before, float top,
                                          float temperature) {
  constexpr int kSize = Vec<T>::kSize;
  if (!(top > -INFINITY)) return mass;
  const float scale = kLog2E / temperature;
  mass *= exp2_fast((before - top) * scale);
#pragma unroll
  for (int i = 0; i < kVectors; i++) {
#pragma unroll
    for (int j = 0; j < kSize; j++) mass += exp2_fast((to_float(turn.values[i].at[j]) - top) * scale);
  }
  return mass;
}

template <typename T, int kVectors>
__global__ void __launch_bounds__(kThreads, kVectors * Vec<T>::kSize == kMany ? 4 : 5)
    chunk_kernel(Logits<T> logits, int turns, Samples samples, Requests requests, ChunkResult *__restrict__ results,
                 float *__restrict__ maxima) {
  using Turn = Turn<T, kVectors>;
  __shared__ uint64_t scratch[2][32];
  __shared__ float sums[33];
  __shared__ unsigned bar;
  const int at = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int first = blockIdx.x * turns * Turn::kAll + warp * 32 * Turn::kEach + lane * Turn::kSize;
  const T *row = logits.at + at * logits.stride;
  Turn turn, next;
  wait_for_previous();
  next.read(logits, row, first);
  const int sample = samples.of_row(at), real = samples.header[3];
  const int slot = samples.slots[sample], counter = samples.counters[sample];
  if (turns == 1) release_next();
  if (sample >= real) return;
  const Choice choice = choice_of(requests, slot, counter);
  const bool greedy = choice.greedy(), filtered = choice.filtered(logits.vocabulary);
  const bool competes = !greedy && !choice.by_count(logits.vocabulary), weighs = !greedy && choice.by_mass();

  float best = -INFINITY, mass = 0.0f;  // best: NaN if there was one
  int index = first;
  Candidate own;
  for (int turned = 0; turned < turns; turned++) {
    turn = next;
    if (turned + 1 < turns) next.read(logits, row, first + (turned + 1) * Turn::kAll);
    if (turned + 2 == turns) release_next();
    const float top = turn.best(), before = best;
    best = max_or_nan(best, top);
    if (greedy && top > before) index = turn.find(top);
    if (filtered) write_maxima(turn, maxima + int64_t(at) * logits.groups(), logits.groups());
    if (weighs) mass = add_mass(turn, mass, before, best, choice.temperature);
    if (competes) {
      if (turned == 0) start(turn, top, choice, own, bar);
      compete(turn, row, logits.vocabulary, choice, own, bar);
    }
  }

  const bool nan = __syncthreads_or(best != best);
  const uint64_t greatest = block_greatest<kThreads>(ranked(best, index), scratch[0]);
  const float all_best = nan ? NAN : score_of(greatest);
  ChunkResult result = {all_best, index_of(greatest), index_of(greatest), -INFINITY, 0.0f, 0.0f, choice.temperature,
                        filtered};
  bool writes = threadIdx.x == 0;
  if (weighs) {
    const bool any = best > -INFINITY;
    result.mass = block_sum(any ? mass * exp2_fast((best - all_best) * (kLog2E / choice.temperature)) : 0.0f, sums);
  }
  if (competes && isfinite(all_best)) {
    const uint64_t rank = ranked((own.logit - all_best) / choice.temperature + own.noise, own.index);
    writes = rank == block_greatest<kThreads>(rank, scratch[1]);
    result.drawn = own.index;
    result.logit = own.logit;
    result.noise = own.noise;
  }
  if (writes) results[int64_t(at) * gridDim.x + blockIdx.x] = result;
}

struct Plan {
  int each, turns, ctas;  // logits a thread of the first kernel reads at once; times; CTAs a row of the second
};

template <typename T>
int sample(const void *at, int64_t stride, int rows, int vocabulary, const Samples &samples, const Requests &requests,
           ChunkResult *results, float *maxima, const Plan &plan, cudaStream_t stream) {
  constexpr int kSize = Vec<T>::kSize;
  const bool aligned = stride % kSize == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  const Logits<T> logits = {(const T *)at, stride, vocabulary, aligned};
  const int of_a_cta = kThreads * plan.each * plan.turns, chunks = (vocabulary + of_a_cta - 1) / of_a_cta;
  const auto call = [&](auto kernel) {
    return launch(kernel, dim3(chunks, rows), dim3(kThreads), 0, stream, logits, plan.turns, samples, requests, results,
                  maxima);
  };
  const int error = plan.each == kFew ? call(chunk_kernel<T, kFew / kSize>) : call(chunk_kernel<T, kMany / kSize>);
  if (error) return error;
  return launch_finish(logits, rows, plan.ctas, chunks, samples, requests, results, maxima, stream);
}

}  // namespace
}  // namespace octavo

// of_samples: addresses of header, slots, ends, counters, ids, failed, and of the samples that the rows are of, or null
// where they are first, first + apart, ... of_requests: of temperature, top_p, min_p, top_k, seeds, tokens.
// results: [rows, ceil(vocabulary / (256 * each * turns))] of a ChunkResult. maxima: float32, one for each 512
// bytes of a row. each: 8 or 16. ctas: as many share a row with filters.
extern "C" int octavo_sample(const void *logits, int64_t stride, int rows, int vocabulary, void *const *of_samples,
                             void *const *of_requests, int tokens_stride, int first, int apart, void *results,
                             void *maxima, int each, int turns, int ctas, int dtype, cudaStream_t stream) {
  using namespace octavo;
  const Samples samples = {(const int *)of_samples[0], (const int *)of_samples[1], (const int *)of_samples[2],
                           (const int *)of_samples[3], (const int *)of_samples[6], (int *)of_samples[4],
                           (int *)of_samples[5],       first,                      apart};
  const Requests requests = {(const float *)of_requests[0], (const float *)of_requests[1],
                             (const float *)of_requests[2], (const int *)of_requests[3],
                             (const int64_t *)of_requests[4], (int *)of_requests[5], tokens_stride};
  const Plan plan = {each, turns, ctas};
  const auto call = [&](auto sample) {
    return sample(logits, stride, rows, vocabulary, samples, requests, (ChunkResult *)results, (float *)maxima, plan,
                  stream);
  };
  switch (dtype) {
    case kF32: return call(sample<float>);
    case kBf16: return call(sample<bf16>);
    case kF16: return call(sample<f16>);
    default: return int(cudaErrorInvalidValue);
  }
}
