// The sum over the ranks onto a residual stream, and the RMSNorm of what that makes, in one kernel. Included by
// allreduce.cu, whose ways it goes: in one shot by numbered words, or, of two ranks, by what each copies to the other.
//
// A CTA has rows of its own, one after another, the same in every rank: it sends them all, and then takes kRows at a
// time, whose elements stay in registers from the sum to the result.
#pragma once

namespace octavo {
namespace {

template <bool kValue> struct Constant {
  static constexpr bool value = kValue;
};

constexpr int kHeld = 4;  // vectors that a thread has of the rows that are in work

template <typename T> struct Norm {
  const T *weight;  // [width]
  T *out;           // [rows, width]
  int rows, width;
  float eps;
};

// What all ranks have of one vector, in their order. at: of the vector, in all rows.
template <typename T, bool kWords>
__device__ __forceinline__ void take(typename Sum<T>::type (&sums)[Vec<T>::kSize], const Team &team, const T *x,
                                     int64_t at, unsigned number) {
  for (int rank = 0; rank < team.ranks; rank++) {
    Vec<T> some;
    if (rank == team.rank) {
      some = load(x + at * Vec<T>::kSize);
    } else if (kWords) {
      const uint4 *box = team.small(team.rank, rank, number & 1) + 2 * at;
      Word<T> *halves = reinterpret_cast<Word<T> *>(&some);
      halves[0] = await_word<T>(box, number);
      halves[1] = await_word<T>(box + 1, number);
    } else {
      some = reinterpret_cast<const Vec<T> *>(team.in(team.rank, rank, number & 1))[at];
    }
    add<T>(sums, some);
  }
}

// kPer: vectors of a row that a thread has.
template <typename T, int kPer, bool kWords>
__global__ void __launch_bounds__(kThreads)
    sum_norm_kernel(const __grid_constant__ Team team, const T *x, T *residual, const __grid_constant__ Norm<T> norm) {
  using Values = Vec<T>;
  constexpr int kSize = Values::kSize, kRows = kHeld / kPer, kWarps = kThreads / 32;
  __shared__ float squares[2][kRows][kWarps];
  const int vectors = norm.width / kSize, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  Values weights[kPer];
#pragma unroll
  for (int p = 0; p < kPer; p++) {
    const int column = p * kThreads + threadIdx.x;
    if (column < vectors) weights[p] = load(norm.weight + column * kSize);
  }
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  const int each_cta = (norm.rows + gridDim.x - 1) / gridDim.x;
  const int first = blockIdx.x * each_cta, last = min(first + each_cta, norm.rows);

  const int64_t from = int64_t(first) * vectors + threadIdx.x, to = int64_t(last) * vectors;
  if (kWords) {
    for (int64_t at = from; at < to; at += kThreads) {
      const Values some = load(x + at * kSize);
      const Word<T> *halves = reinterpret_cast<const Word<T> *>(&some);
      for (int apart = 1; apart < team.ranks; apart++) {
        const int peer = (team.rank + apart) % team.ranks;
        uint4 *box = team.small(peer, team.rank, number & 1) + 2 * at;
        store_volatile(box, marked(halves[0], number));
        store_volatile(box + 1, marked(halves[1], number));
      }
    }
  } else {
    const int peer = 1 - team.rank;
    Values *sent = reinterpret_cast<Values *>(team.in(peer, team.rank, number & 1));
    for_some<4>(from, to, kThreads, [&](const auto &each) {
      Values some[4];
      each([&](int j, int64_t i) { some[j] = load(x + i * kSize); });
      each([&](int j, int64_t i) { sent[i] = some[j]; });
    });
    meet(team, 0, number);
  }

  int turn = 0;
  for (int row = first; row < last; row += kRows, turn ^= 1) {
    Values made[kRows][kPer];
    // visit(r, p, vector): of the ones that this thread has of the rows in work.
    const auto each = [&](auto visit) {
#pragma unroll
      for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int p = 0; p < kPer; p++) {
          const int column = p * kThreads + threadIdx.x;
          if (row + r < last && column < vectors) visit(r, p, int64_t(row + r) * vectors + column);
        }
      }
    };
    each([&](int r, int p, int64_t at) { made[r][p] = load(residual + at * kSize); });
    each([&](int r, int p, int64_t at) {
      typename Sum<T>::type sums[kSize] = {};
      take<T, kWords>(sums, team, x, at, number);
      made[r][p] = rounded_onto<T>(made[r][p], sums);
      store(residual + at * kSize, made[r][p]);
    });
    float own[kRows] = {};
    each([&](int r, int p, int64_t) {
#pragma unroll
      for (int j = 0; j < kSize; j++) {
        const float value = to_float(made[r][p].at[j]);
        own[r] = fmaf(value, value, own[r]);
      }
    });
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      const float sum = warp_sum(own[r]);
      if (lane == 0) squares[turn][r][warp] = sum;
    }
    __syncthreads();  // one for each turn: all have read what the turn before last left
    float scales[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      const float sum = warp_sum(lane < kWarps ? squares[turn][r][lane] : 0.0f);
      scales[r] = rsqrtf(sum / norm.width + norm.eps);
    }
    each([&](int r, int p, int64_t at) {
      Values result;
#pragma unroll
      for (int j = 0; j < kSize; j++) {
        const T normed = from_float<T>(to_float(made[r][p].at[j]) * scales[r]);  // rounded, as the model was trained
        result.at[j] = from_float<T>(to_float(normed) * to_float(weights[p].at[j]));
      }
      store(norm.out + at * kSize, result);
    });
  }
  end(team, number);
}

// Rows that go at once: in words, or as many as a box holds of two ranks. 0: there is no way.
template <typename T> int rows_at_once(const Team &team, const Norm<T> &norm, bool words) {
  const int64_t bytes = int64_t(norm.width) * sizeof(T);
  if (norm.width % Vec<T>::kSize || norm.width > kHeld * kThreads * Vec<T>::kSize) return 0;
  if (words) return norm.rows;
  return team.ranks == 2 ? int(kLargeBytes / 2 / bytes) : 0;
}

template <typename T>
int sum_norm(const Team &team, const T *x, T *residual, Norm<T> norm, int64_t most_small, cudaStream_t stream) {
  const int64_t width = norm.width;
  const bool words = norm.rows * width * int64_t(sizeof(T)) <= most_small;
  const int at_once = rows_at_once(team, norm, words), rows = norm.rows, vectors = norm.width / Vec<T>::kSize;
  if (at_once == 0) return int(cudaErrorInvalidValue);
  const auto kernel = [&](auto of_words) {
    constexpr bool kWords = decltype(of_words)::value;
    if (vectors <= kThreads) return sum_norm_kernel<T, 1, kWords>;
    return vectors <= 2 * kThreads ? sum_norm_kernel<T, 2, kWords> : sum_norm_kernel<T, 4, kWords>;
  };
  const auto chosen = words ? kernel(Constant<true>()) : kernel(Constant<false>());
  for (int first = 0; first < rows; first += at_once) {
    norm.rows = min(at_once, rows - first);
    const int error = launch(chosen, dim3(min(norm.rows, kCtas)), dim3(kThreads), 0, stream, team, x + first * width,
                             residual + first * width, norm);
    if (error) return error;
    norm.out += norm.rows * width;
  }
  return 0;
}

}  // namespace
}  // namespace octavo
