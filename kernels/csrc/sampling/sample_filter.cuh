// Which entries of a row top_k keeps, and how many are ahead of one.
//
// A filter keeps a beginning of the row in the order of `Entry`: how far a logit is below the best, then its index. Of
// few entries the list is made and sorted: the ones within a distance that as many groups' best entries are within. Where
// they do not fit, the last one kept is found by bisection. A pass over the row reads only groups whose best logit is
// near enough.
//
// A row has one CTA, or a cluster of them while there are few rows; each passes over its share.
#pragma once

#include <cooperative_groups.h>

#include "sample.cuh"

namespace octavo {
namespace {

namespace cg = cooperative_groups;

constexpr int kFinishThreads = 256, kFinishWarps = kFinishThreads / 32;
constexpr int kListed = 4 * kFinishThreads;
constexpr int kIndexBits = 20;

// Distances are never negative, so their bits are in their order.
using Entry = uint64_t;
__device__ __forceinline__ Entry entry_of(float distance, int index) {
  return Entry(__float_as_uint(distance)) << kIndexBits | unsigned(index);
}
__device__ __forceinline__ float distance_of(Entry entry) { return __uint_as_float(unsigned(entry >> kIndexBits)); }
__device__ __forceinline__ int index_in(Entry entry) { return int(entry & ((1u << kIndexBits) - 1)); }

// A probability times the best entry's, in whole numbers: sums rise with every entry.
using Mass = uint64_t;
constexpr float kWhole = 0x1p43f;  // the best entry's own; 2^20 of these fit

struct Shared {
  Entry list[kListed];
  Mass warp_mass[kFinishWarps], kept;
  uint64_t scratch[32], bar, winners[2];
  float sums[33], best, mass[2], below[2], above[2];
  int warp_count[kFinishWarps], count[2];
  int length;  // of this CTA's list
  Entry limit;
};

template <typename T> struct Row {
  Logits<T> logits;
  const T *at;
  const float *maxima;  // of the groups
  int cta, ctas;        // this one of the ones that share the row
  float best, temperature;
  int phase;  // of the CTAs' exchanges: results of one are read while the next are written

  __device__ float distance(int index) const { return best - to_float(at[index]); }
};

// Barrier of all threads that share the row.
__device__ __forceinline__ void row_sync(int ctas) {
  if (ctas > 1) {
    cg::this_cluster().sync();
  } else {
    __syncthreads();
  }
}
__device__ __forceinline__ Shared &shared_of(Shared &own, int cta) {
  return *cg::this_cluster().map_shared_rank(&own, cta);
}

// f(vector, index of its first entry) for this CTA's share of the groups that have an entry within `reach`.
template <typename T, typename F> __device__ __forceinline__ void for_each(const Row<T> &row, float reach, F f) {
  constexpr int kSize = Vec<T>::kSize, kAtOnce = 16 / kSize;
  const int lane = threadIdx.x & 31, warps = row.ctas * kFinishWarps, groups = row.logits.groups();
  for (int base = row.cta * kFinishWarps + threadIdx.x / 32; base < groups; base += 32 * warps) {
    const int own = base + lane * warps;
    unsigned wanted = __ballot_sync(0xffffffffu, own < groups && row.best - row.maxima[own] <= reach);
    while (wanted) {
      Vec<T> values[kAtOnce];
      int firsts[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        firsts[i] = (wanted ? base + (__ffs(wanted) - 1) * warps : groups) * Logits<T>::kGroup + lane * kSize;
        wanted &= wanted - 1;
        values[i] = load_logits(row.logits, row.at, firsts[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) f(values[i], firsts[i]);
    }
  }
}

// What lies ahead of an entry: how many, their mass in units of the best's, and how near the next on both sides are.
struct Ahead {
  int count;
  float mass, below, above;
};

// Of `entry`, among entries before `end`. All CTAs of the row; each gets it.
template <typename T> __device__ __noinline__ Ahead ahead_of(Row<T> &row, Shared &own, Entry entry, Entry end) {
  const float scale = -kLog2E / row.temperature, edge = distance_of(entry), far = distance_of(end);
  const int index = index_in(entry), last = index_in(end);
  Ahead sum = {0, 0.0f, 0.0f, INFINITY};
  for_each(row, far, [&, best = row.best](const Vec<T> &values, int first) {
#pragma unroll
    for (int j = 0; j < Vec<T>::kSize; j++) {
      const float distance = best - to_float(values.at[j]);
      if (distance < edge || (distance == edge && first + j < index)) {
        sum.count++;
        sum.mass += exp2_fast(distance * scale);
        sum.below = fmaxf(sum.below, distance);
      } else if (distance < far || (distance == far && first + j < last)) {
        sum.above = fminf(sum.above, distance);
      }
    }
  });
  const int phase = row.phase++ & 1;
  const float mass = block_sum(sum.mass, own.sums);
  const unsigned below = __reduce_max_sync(0xffffffffu, __float_as_uint(sum.below));
  const unsigned above = __reduce_min_sync(0xffffffffu, __float_as_uint(sum.above));
  const int count = __reduce_add_sync(0xffffffffu, sum.count);
  if (threadIdx.x == 0) {
    own.count[phase] = 0;
    own.mass[phase] = mass;
    own.below[phase] = 0.0f;
    own.above[phase] = INFINITY;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) {
    atomicAdd(&own.count[phase], count);
    atomicMax((unsigned *)&own.below[phase], below);
    atomicMin((unsigned *)&own.above[phase], above);
  }
  row_sync(row.ctas);
  sum = {0, 0.0f, 0.0f, INFINITY};
  for (int cta = 0; cta < row.ctas; cta++) {
    const Shared &other = row.ctas > 1 ? shared_of(own, cta) : own;
    sum.count += other.count[phase];
    sum.mass += other.mass[phase];
    sum.below = fmaxf(sum.below, other.below[phase]);
    sum.above = fminf(sum.above, other.above[phase]);
  }
  return sum;
}

// The mass of what lies ahead of an entry, in units of the best's; 0 of nothing. All CTAs of the row; each gets it.
template <typename T> __device__ __noinline__ float mass_ahead_of(Row<T> &row, Shared &own, Entry entry) {
  const float scale = -kLog2E / row.temperature, edge = distance_of(entry);
  const int index = index_in(entry);
  float mass = 0.0f;
  for_each(row, edge, [&, best = row.best](const Vec<T> &values, int first) {
#pragma unroll
    for (int j = 0; j < Vec<T>::kSize; j++) {
      const float distance = best - to_float(values.at[j]);
      if (distance < edge || (distance == edge && first + j < index)) mass += exp2_fast(distance * scale);
    }
  });
  const int phase = row.phase++ & 1;
  mass = block_sum(mass, own.sums);
  if (threadIdx.x == 0) own.mass[phase] = mass;
  row_sync(row.ctas);
  if (row.ctas == 1) return mass;
  mass = 0.0f;
  for (int cta = 0; cta < row.ctas; cta++) mass += shared_of(own, cta).mass[phase];
  return mass;
}

// The first CTA's list becomes the entries within [low, high); returns how many there are, also where they do not fit.
template <typename T> __device__ __noinline__ int collect(const Row<T> &row, Shared &own, Entry low, Entry high) {
  if (threadIdx.x == 0) own.length = 0;
  __syncthreads();
  for_each(row, distance_of(high), [&, best = row.best](const Vec<T> &values, int first) {
    unsigned near = 0;
#pragma unroll
    for (int j = 0; j < Vec<T>::kSize; j++) {
      const float distance = best - to_float(values.at[j]);
      const Entry entry = entry_of(distance, first + j);
      if (distance < INFINITY && entry >= low && entry < high) near |= 1u << j;
    }
    if (near == 0 || *(volatile int *)&own.length > kListed) return;
    int at = atomicAdd(&own.length, __popc(near));
    for (; near && at < kListed; near &= near - 1) {
      const int index = first + __ffs(near) - 1;
      own.list[at++] = entry_of(row.distance(index), index);
    }
  });
  row_sync(row.ctas);
  if (row.ctas == 1) return own.length;
  int before = 0, total = 0;
  for (int cta = 0; cta < row.ctas; cta++) {
    if (cta == row.cta) before = total;
    total += shared_of(own, cta).length;
  }
  if (row.cta > 0 && total <= kListed) {
    Entry *list = shared_of(own, 0).list + before;
    for (int i = threadIdx.x; i < own.length; i += kFinishThreads) list[i] = own.list[i];
  }
  row_sync(row.ctas);
  return total;
}

// First CTA: sort the list, ascending.
__device__ __noinline__ void sort_list(Shared &own, int length) {
  int size = 64;
  while (size < length) size *= 2;
  for (int i = length + threadIdx.x; i < size; i += kFinishThreads) own.list[i] = ~Entry(0);
  __syncthreads();
  for (int span = 2; span <= size; span *= 2) {
    for (int apart = span / 2; apart > 0; apart /= 2) {
      for (int pair = threadIdx.x; 2 * pair < size; pair += kFinishThreads) {
        const int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
        const Entry a = own.list[i], b = own.list[j];
        if ((a > b) == ((i & span) == 0)) {
          own.list[i] = b;
          own.list[j] = a;
        }
      }
      // Up to 32 apart, a warp's pairs are its own: 64 neighbours.
      if (apart > 32 || (apart == 1 && span >= 64)) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
  __syncthreads();
}

// First CTA: how many of the sorted list's first `count` entries reach `share` of these entries' mass.
__device__ __noinline__ int reaching(Shared &own, float share, int count, float temperature) {
  constexpr int kEach = kListed / kFinishThreads;
  const int first = kEach * threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  Mass upto[kEach], sum = 0;  // upto: with the entry itself
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (first + i < count) sum += Mass(kWhole * expf(-distance_of(own.list[first + i]) / temperature));
    upto[i] = sum;
  }
  Mass before = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const Mass other = __shfl_up_sync(0xffffffffu, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) own.warp_mass[warp] = before;
  __syncthreads();
  before -= sum;
  Mass all = 0;
  for (int i = 0; i < kFinishWarps; i++) {
    if (i < warp) before += own.warp_mass[i];
    all += own.warp_mass[i];
  }
  const Mass goal = max(Mass(1), Mass(ceil(double(share) * double(all))));
  if (before < goal) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const Mass ahead = before + (i ? upto[i - 1] : 0);
      if (ahead < goal && goal <= before + upto[i]) own.kept = first + i + 1;
    }
  }
  __syncthreads();
  return int(own.kept);
}

// A distance that at least `count` entries are within: as many groups' best are. By bisection; all threads.
template <typename T> __device__ float bound_of_count(const Row<T> &row, int count, float reach) {
  float nearest[2] = {INFINITY, INFINITY};
  for (int group = threadIdx.x; group < row.logits.groups(); group += 2 * kFinishThreads) {
    nearest[0] = fminf(nearest[0], row.best - row.maxima[group]);
    const int next = group + kFinishThreads;
    if (next < row.logits.groups()) nearest[1] = fminf(nearest[1], row.best - row.maxima[next]);
  }
  const auto within = [&](float distance) {
    return __syncthreads_count(nearest[0] <= distance) + __syncthreads_count(nearest[1] <= distance);
  };
  if (within(reach) < count) return reach;
  float low = 0.0f, high = reach;
  for (int step = 0; step < 13; step++) {
    const float middle = 0.5f * (low + high);
    (within(middle) < count ? low : high) = middle;
  }
  return high;
}

// The end of the first `count` entries, or of all within `reach` if they are fewer. All CTAs of the row.
template <typename T>
__device__ __noinline__ Entry end_of(Row<T> &row, Shared &own, Shared &lead, int count, float reach) {
  const int all = row.logits.vocabulary;
  Entry low = 0, high = entry_of(reach, all);
  int before = 0, upto = ahead_of(row, own, high, high).count;
  if (upto <= count) return high;
  while (upto - before > kListed) {  // the end is after `low`, and not after `high`
    const float near = distance_of(low), far = distance_of(high);
    const float middle = 0.5f * (near + far);
    Entry cut = entry_of(middle > near ? middle : far, 0);
    if (near == far) cut = entry_of(near, (index_in(low) + index_in(high)) / 2);
    const Ahead ahead = ahead_of(row, own, cut, high);
    if (count <= ahead.count) {
      high = near == far ? cut : entry_of(ahead.below, all);  // only what is there counts, so equal logits are no trap
      upto = ahead.count;
    } else {
      low = near == far ? cut : entry_of(ahead.above, 0);
      before = ahead.count;
    }
  }
  const int length = collect(row, own, low, high);
  if (row.cta == 0) {
    sort_list(own, length);
    if (threadIdx.x == 0) own.limit = own.list[count - before - 1] + 1;
  }
  row_sync(row.ctas);
  return lead.limit;
}

}  // namespace
}  // namespace octavo
