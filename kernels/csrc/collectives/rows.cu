// The ranks of a stage share the rows of a step while they sample: sample i is that of rank i % ranks.
//
//     logits [samples, columns] of each rank  ->  [own samples, ranks * columns] on each rank  ->  ids of all on each
//
// Each rank writes its columns of a row into a box of the row's owner, which then draws as a rank alone does; a few bytes
// of each row come back. Nothing is exchanged of a row between ranks that do not own it.
#include "team.cuh"

namespace octavo {
namespace {

// Units of 16 bytes, or less where rows are not aligned to that. A box has whole rows, `to_stride` units apart.
template <typename Unit> struct Rows {
  Unit *boxes[kMostRanks];  // by rank, from its first row on
  const Unit *from;
  int64_t from_stride, to_stride;
  int units, samples;  // units: of a row's columns here
};

__device__ __forceinline__ int own_samples(int samples, int rank, int ranks) {
  return samples > rank ? (samples - rank + ranks - 1) / ranks : 0;
}

// This rank's columns of the rows that `owner` draws.
template <typename Unit>
__device__ __forceinline__ void send_rows(const Team &team, const Rows<Unit> &rows, int owner, int samples) {
  constexpr int kAtOnce = 4;
  const unsigned units = rows.units, all = own_samples(samples, owner, team.ranks) * units, step = gridDim.x * kThreads;
  Unit *to = rows.boxes[owner] + int64_t(team.rank) * units;
  for (unsigned first = blockIdx.x * kThreads + threadIdx.x; first < all; first += kAtOnce * step) {
    Unit some[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      const unsigned at = first + j * step, row = at / units;
      if (at < all) some[j] = rows.from[(owner + int64_t(row) * team.ranks) * rows.from_stride + (at - row * units)];
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; j++) {
      const unsigned at = first + j * step, row = at / units;
      if (at < all) to[row * rows.to_stride + (at - row * units)] = some[j];
    }
  }
}

// header: of the step, or null where all samples are real. settles: peers may still read what lies in their boxes.
template <typename Unit>
__global__ void __launch_bounds__(kThreads)
    send_kernel(const __grid_constant__ Team team, const __grid_constant__ Rows<Unit> rows, const int *header,
                bool settles) {
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  const int samples = header == nullptr ? rows.samples : min(rows.samples, header[3]);
  if (settles) meet(team, 0, number);
  for (int apart = 1; apart < team.ranks; apart++) send_rows(team, rows, (team.rank + apart) % team.ranks, samples);
  send_rows(team, rows, team.rank, samples);
  meet(team, 1, number);
  end(team, number);
}

struct Drawn {
  const int *header, *slots, *ends;  // header[3]: how many samples there are
  int *ids, *failed, *tokens;
  int64_t tokens_stride;
};

// One CTA. Each rank says as many words to each other one, at least one, so that all meet.
__global__ void __launch_bounds__(kThreads) share_kernel(const __grid_constant__ Team team, Drawn drawn) {
  wait_for_previous();
  release_next();
  const unsigned number = begin(team);
  const int turn = number & 1, samples = drawn.header[3], each = max(1, (samples + team.ranks - 1) / team.ranks);
  for (int i = threadIdx.x; i < each; i += kThreads) {
    const int sample = team.rank + i * team.ranks;
    Word<int> word = {};
    if (sample < samples) word = {drawn.ids[sample], drawn.failed[sample]};
    for (int apart = 1; apart < team.ranks; apart++) {
      const int peer = (team.rank + apart) % team.ranks;
      store_volatile(team.small(peer, team.rank, turn) + i, marked(word, number));
    }
  }
  for (int sample = threadIdx.x; sample < each * team.ranks; sample += kThreads) {
    const int owner = sample % team.ranks;
    if (owner == team.rank) continue;
    const Word<int> word = await_word<int>(team.small(team.rank, owner, turn) + sample / team.ranks, number);
    if (sample >= samples) continue;
    drawn.ids[sample] = word.at[0];
    drawn.failed[sample] = word.at[1];
    drawn.tokens[drawn.slots[sample] * drawn.tokens_stride + drawn.ends[sample]] = word.at[0];
  }
  end(team, number);
}

// Sizes in bytes. first: row of the boxes at which these begin.
struct Given {
  const void *from;
  int64_t from_stride, to_stride, columns;
  int samples, first;
};

template <typename Unit>
int send(const Team &team, void *const *boxes, const Given &given, const int *header, bool settles, int ctas,
         cudaStream_t stream) {
  constexpr int64_t kSize = sizeof(Unit);
  Rows<Unit> rows = {};
  for (int i = 0; i < team.ranks; i++) rows.boxes[i] = (Unit *)((char *)boxes[i] + given.first * given.to_stride);
  rows.from = (const Unit *)given.from;
  rows.from_stride = given.from_stride / kSize;
  rows.to_stride = given.to_stride / kSize;
  rows.units = int(given.columns / kSize);
  rows.samples = given.samples;
  return launch(send_kernel<Unit>, dim3(ctas), dim3(kThreads), 0, stream, team, rows, header, settles);
}

}  // namespace
}  // namespace octavo

// logits: [samples, columns] of elements of `size` bytes, from_stride apart; boxes: of each rank, rows to_stride apart,
// aligned to 16 bytes. Strides and columns in elements. settles: whether peers may still read what lies there.
extern "C" int octavo_rows_send(void *const *regions, int rank, int ranks, void *const *boxes, const void *logits,
                                int64_t from_stride, int samples, int columns, int64_t to_stride, int first,
                                const void *header, int settles, int size, cudaStream_t stream) {
  using namespace octavo;
  if (!is_team(rank, ranks)) return int(cudaErrorInvalidValue);
  const Team team = team_of(regions, rank, ranks);
  const Given given = {logits, from_stride * size, to_stride * size, int64_t(columns) * size, samples, first};
  const int64_t together = given.columns | given.from_stride | int64_t(reinterpret_cast<uintptr_t>(logits));
  const int ctas = ctas_for((samples + ranks - 1) / ranks * given.columns / 16);
  const auto call = [&](auto send) { return send(team, boxes, given, (const int *)header, settles != 0, ctas, stream); };
  if (together % 16 == 0) return call(send<uint4>);
  if (together % 4 == 0) return call(send<unsigned>);
  return call(send<unsigned short>);
}

// ids, failed: [samples], of which each rank has its own at first, and all of them then; ids go into the token pool.
extern "C" int octavo_rows_share(void *const *regions, int rank, int ranks, const void *header, const void *slots,
                                 const void *ends, void *ids, void *failed, void *tokens, int64_t tokens_stride,
                                 cudaStream_t stream) {
  using namespace octavo;
  if (!is_team(rank, ranks)) return int(cudaErrorInvalidValue);
  const Drawn drawn = {(const int *)header, (const int *)slots, (const int *)ends, (int *)ids,
                       (int *)failed,       (int *)tokens,      tokens_stride};
  return launch(share_kernel, dim3(1), dim3(kThreads), 0, stream, team_of(regions, rank, ranks), drawn);
}
