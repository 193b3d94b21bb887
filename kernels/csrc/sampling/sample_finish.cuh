// Joins the chunks of a row; draws a row that has top_k, top_p or min_p.
//
// min_p is how far an entry may be from the best, and says so before all else; top_p is a share of what it and top_k keep.
// With a top_k that fits the list, everything happens there. Otherwise a winner is drawn and the row read for what lies
// ahead of it. If the filters do not keep it, they keep nothing after it either: the winner of all that they keep is
// among the ones ahead, and the next one asked for is the winner of these. top_p keeps the first as often as it says.
#pragma once

#include "sample_filter.cuh"
#include "sample_join.cuh"

namespace octavo {
namespace {

// First CTA: the winner among the list's first `count` entries.
__device__ int draw_listed(Shared &own, uint64_t key, int count, float temperature) {
  uint64_t best = ranked(-INFINITY, 0);
  for (int i = threadIdx.x; i < count; i += kFinishThreads) {
    const float x = distance_of(own.list[i]) / temperature;
    const int index = index_in(own.list[i]);
    best = max(best, ranked(noise_of(key, index) - x, index));
  }
  return index_of(block_greatest<kFinishThreads>(best, own.scratch));
}

// The winner among the row's entries before `end`. All CTAs of the row; each gets it. The likeliest entry of each thread's
// first ones competes at once: without something to beat, noise would be made for every entry.
template <typename T> __device__ __noinline__ int draw(Row<T> &row, Shared &own, uint64_t key, Entry end) {
  const float scale = -kLog2E / row.temperature;
  uint64_t winner = ranked(-INFINITY, 0);
  if (threadIdx.x == 0) own.bar = winner;
  __syncthreads();
  const volatile uint64_t &bar = own.bar;  // stale is only slower
  bool begun = false;
  const auto rank_of = [&](int index) {
    return ranked(noise_of(key, index) - row.distance(index) / row.temperature, index);
  };
  for_each(row, distance_of(end), [&, best = row.best](const Vec<T> &values, int first) {
    if (!begun) {  // all lanes of the warp are here
      begun = true;
      Entry nearest = end;
#pragma unroll
      for (int j = 0; j < Vec<T>::kSize; j++) {
        const float distance = best - to_float(values.at[j]);
        if (distance < INFINITY) nearest = min(nearest, entry_of(distance, first + j));
      }
      if (nearest < end) winner = rank_of(index_in(nearest));
      const uint64_t level = warp_greatest(winner);
      if ((threadIdx.x & 31) == 0) atomicMax((unsigned long long *)&own.bar, (unsigned long long)level);
      __syncwarp();
    }
    const float offset = 32.02f - score_of(bar) * kLog2E;
    const uint64_t state = state_of(key, first);
    unsigned left = 0;
#pragma unroll
    for (int j = 0; j < Vec<T>::kSize; j++) {
      const float distance = best - to_float(values.at[j]);
      const bool before = distance < INFINITY && entry_of(distance, first + j) < end;
      if (before && may_win(state + j * kGolden, fmaf(distance, scale, offset))) left |= 1u << j;
    }
    for (; left; left &= left - 1) {
      const uint64_t rank = rank_of(first + __ffs(left) - 1);
      if (rank <= winner) continue;
      winner = rank;
      atomicMax((unsigned long long *)&own.bar, (unsigned long long)rank);
    }
  });
  winner = block_greatest<kFinishThreads>(winner, own.scratch);
  const int phase = row.phase++ & 1;
  if (threadIdx.x == 0) own.winners[phase] = winner;
  row_sync(row.ctas);
  for (int cta = 0; cta < row.ctas; cta++) {
    winner = max(winner, row.ctas > 1 ? shared_of(own, cta).winners[phase] : own.winners[phase]);
  }
  return index_of(winner);
}

// How far an entry may be from the best: as far as min_p says, and not so far that it is never drawn.
__device__ __forceinline__ float reach_of(const Choice &choice) {
  const float temperature = choice.temperature, reach = fminf(kReach * temperature, 0x1p127f);
  const float far = choice.min_p > 0.0f ? fmaxf(-logf(choice.min_p), 0.0f) : INFINITY;  // in units of the temperature
  if (far >= kReach) return reach;
  // The greatest distance whose quotient is within `far`: a product is off by a few last places at most.
  unsigned distance = __float_as_uint(far * temperature);
  for (int step = 0; step < 2; step++) {
    if (distance > 0 && __uint_as_float(distance) / temperature > far) distance--;
  }
  for (int step = 0; step < 2; step++) {
    if (__uint_as_float(distance + 1) / temperature <= far) distance++;
  }
  return fminf(reach, __uint_as_float(distance));
}

// What a row with filters draws; drawn: what it draws without, if there is no top_k. The first CTA gets it.
template <typename T>
__device__ int draw_filtered(Row<T> &row, Shared &own, const Choice &choice, float mass, int drawn) {
  Shared &lead = row.ctas > 1 ? shared_of(own, 0) : own;
  const float reach = reach_of(choice);
  Entry end = entry_of(reach, row.logits.vocabulary);
  const bool by_count = choice.by_count(row.logits.vocabulary);
  if (by_count) {
    const float bound = bound_of_count(row, choice.top_k, reach);
    const int length = collect(row, own, 0, entry_of(bound, row.logits.vocabulary));
    if (length <= kListed) {
      if (row.cta > 0) return 0;
      sort_list(own, length);
      const int count = min(choice.top_k, length);
      const int kept = choice.by_mass() ? reaching(own, choice.top_p, count, row.temperature) : count;
      return draw_listed(own, choice.key, kept, row.temperature);
    }
    end = end_of(row, own, lead, choice.top_k, reach);
  }
  if (by_count || choice.min_p > 0.0f) {
    if (choice.by_mass()) mass = ahead_of(row, own, end, end).mass;
    // A winner of all that lies before the end is the winner of what is kept, too.
    if (by_count || entry_of(row.distance(drawn), drawn) >= end) drawn = draw(row, own, choice.key, end);
  }
  while (choice.by_mass()) {
    const Entry entry = entry_of(row.distance(drawn), drawn);
    const float ahead = mass_ahead_of(row, own, entry);
    if (ahead == 0.0f || ahead < choice.top_p * mass) break;
    drawn = draw(row, own, choice.key, entry);
  }
  row_sync(row.ctas);  // none leaves while others may read its results
  return drawn;
}

template <typename T>
__global__ void __launch_bounds__(kFinishThreads, 4)
    finish_kernel(Logits<T> logits, int chunks, Samples samples, Requests requests,
                  const ChunkResult *__restrict__ results, const float *__restrict__ maxima) {
  __shared__ Shared own;
  const int at = blockIdx.y, cta = blockIdx.x, ctas = gridDim.x;
  results += int64_t(at) * chunks;
  wait_for_previous();
  release_next();
  const int sample = samples.of_row(at), real = samples.header[3], slot = samples.slots[sample];
  const int end = samples.ends[sample], counter = samples.counters[sample];
  const bool filtered = results[0].filtered;
  if (sample >= real || (!filtered && (cta > 0 || threadIdx.x >= 32))) return;
  Joined joined = join(results, chunks);  // each warp that is left for itself
  if (filtered && isfinite(joined.best)) {
    const Choice choice = choice_of(requests, slot, counter);
    Row<T> row = {logits, logits.at + at * logits.stride, maxima + int64_t(at) * logits.groups(), cta, ctas,
                  joined.best, choice.temperature, 0};
    joined.id = draw_filtered(row, own, choice, joined.mass, joined.id);
  }
  if (cta > 0 || threadIdx.x > 0) return;
  samples.ids[sample] = joined.id;
  samples.failed[sample] = !isfinite(joined.best);
  requests.tokens[int64_t(slot) * requests.tokens_stride + end] = joined.id;
}

template <typename T>
int launch_finish(const Logits<T> &logits, int rows, int ctas, int chunks, const Samples &samples,
                  const Requests &requests, const ChunkResult *results, const float *maxima, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = ctas;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas, rows);
  config.blockDim = dim3(kFinishThreads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return int(cudaLaunchKernelEx(&config, finish_kernel<T>, logits, chunks, samples, requests, results, maxima));
}

}  // namespace
}  // namespace octavo
