// Ranks of a stage that meet in each other's memory: its layout, and the numbers of their calls.
//
// A call's number lies on the device, so that a replayed graph counts on. Buffers are used in turn: at call n + 2 a rank
// has had all it needed of call n + 1 from every other, hence none still reads what came at call n. So in every call
// each rank waits for something from each other one.
//
//     region of a rank:  number | arrived | flags [2, ranks, kCtas] | small [2, ranks] | in [2, ranks] | out [2, ranks]
#pragma once

#include "peer.cuh"

namespace octavo {
namespace {

constexpr int kMostRanks = 8, kCtas = 64, kThreads = 512;
constexpr int64_t kSmallBytes = 1 << 20;  // of one rank's words, each with its number: twice what is summed
constexpr int64_t kLargeBytes = 16 << 20;   // of one call in two shots

// Byte offsets in a region.
constexpr int64_t kNumberAt = 0, kArrivedAt = 128, kFlagsAt = 256;
constexpr int64_t kSmallAt = 16384;
static_assert(kFlagsAt + 2 * kMostRanks * kCtas * 4 <= kSmallAt, "flags overlap what follows");
__host__ __device__ constexpr int64_t large_at(int ranks) { return kSmallAt + 2 * ranks * kSmallBytes; }
__host__ __device__ constexpr int64_t share_bytes(int ranks) { return (kLargeBytes / 16 + ranks - 1) / ranks * 16; }
__host__ __device__ constexpr int64_t region_bytes(int ranks) { return large_at(ranks) + 4 * ranks * share_bytes(ranks); }

struct Team {
  char *regions[kMostRanks];  // by rank
  int rank, ranks;

  __device__ unsigned *number() const { return reinterpret_cast<unsigned *>(regions[rank] + kNumberAt); }
  __device__ unsigned *arrived() const { return reinterpret_cast<unsigned *>(regions[rank] + kArrivedAt); }
  // Set by rank `from` for rank `to`.
  __device__ unsigned *flag(int to, int from, int phase, int cta) const {
    return reinterpret_cast<unsigned *>(regions[to] + kFlagsAt) + (phase * kMostRanks + from) * kCtas + cta;
  }
  // What `from` writes to `to`.
  __device__ uint4 *small(int to, int from, int turn) const {
    return reinterpret_cast<uint4 *>(regions[to] + kSmallAt + (int64_t(turn) * ranks + from) * kSmallBytes);
  }
  __device__ char *in(int to, int from, int turn) const {
    return regions[to] + large_at(ranks) + (turn * ranks + from) * share_bytes(ranks);
  }
  __device__ char *out(int to, int from, int turn) const { return in(to, from, turn + 2); }
};

// The number of this call, the same in every CTA and rank. Never 0, which lies where nothing was written; turns alternate.
__device__ __forceinline__ unsigned begin(const Team &team) {
  const unsigned next = *team.number() + 1;
  return next ? next : 2;
}

// Once every CTA has begun; the end of the kernel shows it to the next one.
__device__ __forceinline__ void end(const Team &team, unsigned number) {
  __syncthreads();
  if (threadIdx.x == 0 && is_last_cta(team.arrived())) *team.number() = number;
}

template <typename T> struct alignas(8) Word {
  static constexpr int kSize = 8 / sizeof(T);
  T at[kSize];
};

// A word in 16 bytes, each half with the call's number: halves arrive whole, so a number says that its half is there.
template <typename T> __device__ __forceinline__ uint4 marked(const Word<T> &word, unsigned number) {
  const uint2 bits = *reinterpret_cast<const uint2 *>(&word);
  return make_uint4(bits.x, number, bits.y, number);
}
template <typename T> __device__ __forceinline__ Word<T> await_word(const uint4 *from, unsigned number) {
  uint4 got;
  do {
    got = load_volatile(from);
  } while (got.y != number || got.w != number);
  const uint2 bits = make_uint2(got.x, got.z);
  return *reinterpret_cast<const Word<T> *>(&bits);
}

// Tells all ranks' CTAs of this index that this one has come to `phase`; await_all waits until they have said so, too.
__device__ __forceinline__ void announce(const Team &team, int phase, unsigned number) {
  __syncthreads();
  if (threadIdx.x < team.ranks && threadIdx.x != team.rank) {
    __threadfence_system();
    store_release(team.flag(threadIdx.x, team.rank, phase, blockIdx.x), number);
  }
}
__device__ __forceinline__ void await_all(const Team &team, int phase, unsigned number) {
  if (threadIdx.x < team.ranks && threadIdx.x != team.rank) {
    await(team.flag(team.rank, threadIdx.x, phase, blockIdx.x), number);
  }
  __syncthreads();
}
// All ranks' CTAs of this index have written what they write in this phase.
__device__ __forceinline__ void meet(const Team &team, int phase, unsigned number) {
  announce(team, phase, number);
  await_all(team, phase, number);
}

bool is_team(int rank, int ranks) { return ranks >= 2 && ranks <= kMostRanks && rank >= 0 && rank < ranks; }

Team team_of(void *const *regions, int rank, int ranks) {
  Team team = {};
  for (int i = 0; i < ranks; i++) team.regions[i] = (char *)regions[i];
  team.rank = rank;
  team.ranks = ranks;
  return team;
}

int ctas_for(int64_t items) {
  const int64_t ctas = (items + kThreads - 1) / kThreads;
  return int(ctas < 1 ? 1 : ctas < kCtas ? ctas : kCtas);
}

}  // namespace
}  // namespace octavo
