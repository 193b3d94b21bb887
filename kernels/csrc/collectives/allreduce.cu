// Sums over the ranks of a stage, each a process with a GPU of this host, through memory that all of them write.
//
// Each element is added up in the order of the ranks in float32 and rounded once, so all get the same bits. Few bytes go
// in one shot: every rank writes all it has to every other, each 4 bytes with the number of the call beside them, and
// waits for the numbers; there is no barrier and no fence. Many go in two: each rank sums a share and gives it to the
// others; two ranks have nothing to gain from that, and each sums all.
#include "team.cuh"

namespace octavo {
namespace {

// Numbers of T that are added up, in float32 or, of whole ones, as they are.
template <typename T> struct Sum {
  using type = float;
  static __device__ __forceinline__ float of(T x) { return to_float(x); }
  static __device__ __forceinline__ T rounded(float x) { return from_float<T>(x); }
};
template <> struct Sum<int64_t> {
  using type = int64_t;
  static __device__ __forceinline__ int64_t of(int64_t x) { return x; }
  static __device__ __forceinline__ int64_t rounded(int64_t x) { return x; }
};

template <typename T> __device__ __forceinline__ Word<T> load_word(const T *from, int64_t index, int64_t count) {
  if ((index + 1) * Word<T>::kSize <= count) return reinterpret_cast<const Word<T> *>(from)[index];
  Word<T> word = {};
#pragma unroll
  for (int j = 0; j < Word<T>::kSize; j++) {
    if (index * Word<T>::kSize + j < count) word.at[j] = from[index * Word<T>::kSize + j];
  }
  return word;
}
template <typename T>
__device__ __forceinline__ void store_word(T *to, int64_t index, int64_t count, const Word<T> &word) {
  if ((index + 1) * Word<T>::kSize <= count) {
    reinterpret_cast<Word<T> *>(to)[index] = word;
  } else {
#pragma unroll
    for (int j = 0; j < Word<T>::kSize; j++) {
      if (index * Word<T>::kSize + j < count) to[index * Word<T>::kSize + j] = word.at[j];
    }
  }
}

// This rank's words go to every other.
template <typename T>
__device__ __forceinline__ void send_words(const Team &team, const T *x, int64_t count, unsigned number) {
  const int64_t words = (count + Word<T>::kSize - 1) / Word<T>::kSize, step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < words; i += step) {
    const uint4 sent = marked(load_word(x, i, count), number);
    for (int apart = 1; apart < team.ranks; apart++) {
      const int peer = (team.rank + apart) % team.ranks;
      store_volatile(team.small(peer, team.rank, number & 1) + i, sent);
    }
  }
}

// One shot. residual: what the sum is added to, or null; the result is there then, else in x.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    small_sum_kernel(const __grid_constant__ Team team, T *x, T *residual, int64_t count) {
  using Each = Sum<T>;
  constexpr int kSize = Word<T>::kSize;
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  send_words(team, x, count, number);
  const int64_t words = (count + kSize - 1) / kSize, step = int64_t(gridDim.x) * kThreads;
  T *to = residual == nullptr ? x : residual;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < words; i += step) {
    typename Each::type sums[kSize] = {};
    for (int rank = 0; rank < team.ranks; rank++) {
      const bool mine = rank == team.rank;
      const uint4 *box = team.small(team.rank, rank, number & 1) + i;
      const Word<T> word = mine ? load_word(x, i, count) : await_word<T>(box, number);
#pragma unroll
      for (int j = 0; j < kSize; j++) sums[j] += Each::of(word.at[j]);
    }
    Word<T> result;
    const Word<T> before = residual == nullptr ? Word<T>{} : load_word(residual, i, count);
#pragma unroll
    for (int j = 0; j < kSize; j++) {
      result.at[j] = Each::rounded(residual == nullptr ? sums[j] : Each::of(before.at[j]) + sums[j]);
    }
    store_word(to, i, count, result);
  }
  end(team, number);
}

template <typename T> __device__ __forceinline__ Vec<T> load_some(const T *from, int64_t index, int64_t count) {
  constexpr int kSize = Vec<T>::kSize;
  if ((index + 1) * kSize <= count) return load(from + index * kSize);
  Vec<T> values = {};
#pragma unroll
  for (int j = 0; j < kSize; j++) {
    if (index * kSize + j < count) values.at[j] = from[index * kSize + j];
  }
  return values;
}
template <typename T>
__device__ __forceinline__ void store_some(T *to, int64_t index, int64_t count, const Vec<T> &values) {
  constexpr int kSize = Vec<T>::kSize;
  if ((index + 1) * kSize <= count) {
    store(to + index * kSize, values);
  } else {
#pragma unroll
    for (int j = 0; j < kSize; j++) {
      if (index * kSize + j < count) to[index * kSize + j] = values.at[j];
    }
  }
}

// f(each) for kAtOnce of first, first + step, ... before `end` at a time, where each(g) calls g(j, index) for the j-th of
// these: loads of them all are under way together.
template <int kAtOnce, typename F>
__device__ __forceinline__ void for_some(int64_t first, int64_t end, int64_t step, F f) {
  for (; first < end; first += kAtOnce * step) {
    f([&](auto g) {
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        if (first + j * step < end) g(j, first + j * step);
      }
    });
  }
}

template <typename T>
__device__ __forceinline__ void add(typename Sum<T>::type (&sums)[Vec<T>::kSize], const Vec<T> &values) {
#pragma unroll
  for (int j = 0; j < Vec<T>::kSize; j++) sums[j] += Sum<T>::of(values.at[j]);
}
template <typename T>
__device__ __forceinline__ Vec<T> rounded(const typename Sum<T>::type (&sums)[Vec<T>::kSize]) {
  Vec<T> values;
#pragma unroll
  for (int j = 0; j < Vec<T>::kSize; j++) values.at[j] = Sum<T>::rounded(sums[j]);
  return values;
}
template <typename T>
__device__ __forceinline__ Vec<T> rounded_onto(const Vec<T> &before,
                                               const typename Sum<T>::type (&sums)[Vec<T>::kSize]) {
  Vec<T> values;
#pragma unroll
  for (int j = 0; j < Vec<T>::kSize; j++) values.at[j] = Sum<T>::rounded(Sum<T>::of(before.at[j]) + sums[j]);
  return values;
}

// Two shots. Rank r sums vectors r * share .. of x; a CTA of each rank handles the same vectors of every share, so CTAs
// of one index need only wait for each other.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    large_sum_kernel(const __grid_constant__ Team team, T *x, T *residual, int64_t count) {
  using Each = Sum<T>;
  using Values = Vec<T>;
  constexpr int kSize = Values::kSize, kCopied = 4, kSummed = 2;
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  const int turn = number & 1;
  const int64_t vectors = (count + kSize - 1) / kSize, share = (vectors + team.ranks - 1) / team.ranks;
  const int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x, step = int64_t(gridDim.x) * kThreads;
  T *to = residual == nullptr ? x : residual;
  const auto end_of = [&](int rank) { return min(share, vectors - rank * share); };

  for (int apart = 1; apart < team.ranks; apart++) {
    const int peer = (team.rank + apart) % team.ranks;
    Values *box = reinterpret_cast<Values *>(team.in(peer, team.rank, turn));
    for_some<kCopied>(first, end_of(peer), step, [&](const auto &each) {
      Values some[kCopied];
      each([&](int j, int64_t i) { some[j] = load_some(x, peer * share + i, count); });
      each([&](int j, int64_t i) { box[i] = some[j]; });
    });
  }
  meet(team, 0, number);

  const int64_t mine = team.rank * share;
  for_some<kSummed>(first, end_of(team.rank), step, [&](const auto &each) {
    typename Each::type sums[kSummed][kSize] = {};
    for (int rank = 0; rank < team.ranks; rank++) {
      const Values *box = reinterpret_cast<const Values *>(team.in(team.rank, rank, turn));
      Values some[kSummed];
      each([&](int j, int64_t i) { some[j] = rank == team.rank ? load_some(x, mine + i, count) : box[i]; });
      each([&](int j, int64_t) { add(sums[j], some[j]); });
    }
    Values before[kSummed];
    if (residual != nullptr) each([&](int j, int64_t i) { before[j] = load_some(residual, mine + i, count); });
    each([&](int j, int64_t i) {
      const Values result = residual == nullptr ? rounded<T>(sums[j]) : rounded_onto(before[j], sums[j]);
      for (int apart = 1; apart < team.ranks; apart++) {
        const int peer = (team.rank + apart) % team.ranks;
        reinterpret_cast<Values *>(team.out(peer, team.rank, turn))[i] = result;
      }
      store_some(to, mine + i, count, result);
    });
  });
  meet(team, 1, number);

  for (int apart = 1; apart < team.ranks; apart++) {
    const int peer = (team.rank + apart) % team.ranks;
    const Values *box = reinterpret_cast<const Values *>(team.out(team.rank, peer, turn));
    for_some<kCopied>(first, end_of(peer), step, [&](const auto &each) {
      Values some[kCopied];
      each([&](int j, int64_t i) { some[j] = box[i]; });
      each([&](int j, int64_t i) { store_some(to, peer * share + i, count, some[j]); });
    });
  }
  end(team, number);
}

// Two ranks, one shot: each has all that the other has, and what goes over the wire is as much as in two. One meeting.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pair_sum_kernel(const __grid_constant__ Team team, T *x, T *residual, int64_t count) {
  using Values = Vec<T>;
  constexpr int kSize = Values::kSize, kCopied = 4, kSummed = 2;
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  const int turn = number & 1, peer = 1 - team.rank;
  const int64_t vectors = (count + kSize - 1) / kSize;
  const int64_t first = int64_t(blockIdx.x) * kThreads + threadIdx.x, step = int64_t(gridDim.x) * kThreads;
  T *to = residual == nullptr ? x : residual;

  Values *sent = reinterpret_cast<Values *>(team.in(peer, team.rank, turn));
  for_some<kCopied>(first, vectors, step, [&](const auto &each) {
    Values some[kCopied];
    each([&](int j, int64_t i) { some[j] = load_some(x, i, count); });
    each([&](int j, int64_t i) { sent[i] = some[j]; });
  });
  meet(team, 0, number);

  const Values *came = reinterpret_cast<const Values *>(team.in(team.rank, peer, turn));
  for_some<kSummed>(first, vectors, step, [&](const auto &each) {
    Values own[kSummed], other[kSummed], before[kSummed];
    each([&](int j, int64_t i) {
      own[j] = load_some(x, i, count);
      other[j] = came[i];
      if (residual != nullptr) before[j] = load_some(residual, i, count);
    });
    each([&](int j, int64_t i) {
      typename Sum<T>::type sums[kSize] = {};
      add(sums, team.rank == 0 ? own[j] : other[j]);
      add(sums, team.rank == 0 ? other[j] : own[j]);
      store_some(to, i, count, residual == nullptr ? rounded<T>(sums) : rounded_onto(before[j], sums));
    });
  });
  end(team, number);
}

template <typename T>
int sum(const Team &team, void *x, void *residual, int64_t count, int64_t most_small, cudaStream_t stream) {
  T *at = (T *)x, *onto = (T *)residual;
  if (count * int64_t(sizeof(T)) <= most_small) {
    const int ctas = ctas_for((count + Word<T>::kSize - 1) / Word<T>::kSize);
    return launch(small_sum_kernel<T>, dim3(ctas), dim3(kThreads), 0, stream, team, at, onto, count);
  }
  const bool pair = team.ranks == 2;
  const int64_t at_once = (pair ? kLargeBytes / 2 : kLargeBytes) / int64_t(sizeof(T));
  for (int64_t first = 0; first < count; first += at_once) {
    const int64_t some = count - first < at_once ? count - first : at_once;
    const int error = launch(pair ? pair_sum_kernel<T> : large_sum_kernel<T>, dim3(kCtas), dim3(kThreads), 0, stream,
                             team, at + first, onto == nullptr ? onto : onto + first, some);
    if (error) return error;
  }
  return 0;
}

}  // namespace
}  // namespace octavo

#include "allreduce_norm.cuh"

// Bytes of each rank's region; 0 for more ranks than are served.
extern "C" int64_t octavo_team_bytes(int ranks) {
  return ranks <= octavo::kMostRanks ? octavo::region_bytes(ranks) : 0;
}

// x [count], 16-byte aligned, becomes the sum over the ranks; with a residual, that has the sum added instead, and x is
// as it was or not. most_small: bytes up to which it goes in one shot, at most 512 KiB. dtype 3: int64.
extern "C" int octavo_team_sum(void *const *regions, int rank, int ranks, void *x, void *residual, int64_t count,
                               int64_t most_small, int dtype, cudaStream_t stream) {
  using namespace octavo;
  if (!is_team(rank, ranks) || most_small > kSmallBytes / 2) return int(cudaErrorInvalidValue);
  const Team team = team_of(regions, rank, ranks);
  switch (dtype) {
    case kF32: return sum<float>(team, x, residual, count, most_small, stream);
    case kBf16: return sum<bf16>(team, x, residual, count, most_small, stream);
    case kF16: return sum<f16>(team, x, residual, count, most_small, stream);
    case 3: return sum<int64_t>(team, x, residual, count, most_small, stream);
    default: return int(cudaErrorInvalidValue);
  }
}

// As octavo_team_sum onto a residual, rows of `width`; and out [rows, width]: RMSNorm of the residual with weight [width].
// x is as it was. Of at most `most_small` bytes, or of two ranks.
extern "C" int octavo_team_sum_norm(void *const *regions, int rank, int ranks, const void *x, void *residual,
                                    const void *weight, void *out, int rows, int width, float eps, int64_t most_small,
                                    int dtype, cudaStream_t stream) {
  using namespace octavo;
  if (!is_team(rank, ranks) || most_small > kSmallBytes / 2) return int(cudaErrorInvalidValue);
  const Team team = team_of(regions, rank, ranks);
  const auto with = [&](auto zero) {
    using T = decltype(zero);
    const Norm<T> norm = {(const T *)weight, (T *)out, rows, width, eps};
    return sum_norm<T>(team, (const T *)x, (T *)residual, norm, most_small, stream);
  };
  switch (dtype) {
    case kF32: return with(float());
    case kBf16: return with(bf16());
    case kF16: return with(f16());
    default: return int(cudaErrorInvalidValue);
  }
}
