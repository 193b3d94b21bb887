// How a product of gemm.cu is cut into tiles and shares of k, and the warp that fetches them for the others.
#pragma once

#include "gemm.cuh"

namespace octavo {

enum Mode : int { kStore = 0, kAdd = 1, kSiluMul = 2 };

struct Params {
  const void *bias;
  void *out;
  int64_t out_stride;  // elements
  int tokens, n;       // n: outputs of a row
  int mode;
  int tiles, token_tiles;  // all; of the batch
  int split, steps;        // CTAs of a cluster; of 64 of k, in all
  int owned;               // units that a CTA of a cluster finishes, at most
  int early;               // the next kernel may begin when the ring is full, not only when all is asked for
};

// kParts: 64 rows of a tile, of each warpgroup. kSlots: CTAs that fit an SM.
template <typename T, int kParts_, int kTokens_, int kStages_, int kSlots_ = 1> struct Shape {
  using Element = T;
  static constexpr int kParts = kParts_, kTokens = kTokens_, kStages = kStages_, kSlots = kSlots_;
  static constexpr int kConsumers = 2, kWarps = 4 * kConsumers, kThreads = 32 * kWarps + 32;
  static constexpr int kRows = 64 * kParts * kConsumers, kUnits = kRows / 16;
  static constexpr int kStep = 64, kRowBytes = 2 * kStep;
  static constexpr int kWeightBytes = kRows * kRowBytes, kTokenBytes = kTokens * kRowBytes;
  static constexpr int kBlocks = kTokens / 8;

  struct Shared {
    alignas(1024) char weight[kStages][kWeightBytes];
    alignas(1024) char x[kStages][kTokenBytes];
    uint64_t full[kStages], empty[kStages], gathered;
  };
};

// The part of the work that a CTA does: tiles `tile`, `tile` + `stride`, .. and of each the steps begin <= i < end.
struct Share {
  int tile, stride, rank, begin, end;
  __device__ explicit Share(const Params &params) {
    rank = params.split > 1 ? int(cluster_rank()) : 0;
    tile = blockIdx.x / params.split;
    stride = gridDim.x / params.split;
    begin = rank * params.steps / params.split;
    end = (rank + 1) * params.steps / params.split;
  }
};

template <class S> struct Fetcher {
  typename S::Shared &shared;
  const CUtensorMap *weight, *x;
  const Params &params;
  const Share share;
  const uint64_t weight_policy = params.token_tiles > 1 ? policy_read_soon() : policy_read_once();
  const uint64_t x_policy = policy_read_again();

  __device__ void fetch_weight(int stage, int tile, int step) const {
    barrier_expect(&shared.full[stage], S::kWeightBytes + S::kTokenBytes);
    const int octets = params.mode == kSiluMul ? S::kRows / 16 : S::kRows / 8;
    copy_box_4d(shared.weight[stage], weight, &shared.full[stage], step * S::kStep, tile / params.token_tiles * octets,
                weight_policy);
  }
  __device__ void fetch_x(int stage, int tile, int step) const {
    copy_box_2d(shared.x[stage], x, &shared.full[stage], step * S::kStep, tile % params.token_tiles * S::kTokens,
                x_policy);
  }

  __device__ void run() const {
    const int tiles = (params.tiles - share.tile + share.stride - 1) / share.stride;
    const int all = tiles * (share.end - share.begin);
    const int ahead = min(S::kStages, all);
    int tile = share.tile, step = share.begin;
    const auto advance = [&] {
      if (++step == share.end) step = share.begin, tile += share.stride;
    };
    for (int i = 0; i < ahead; ++i, advance()) fetch_weight(i, tile, step);
    if (ahead == all || params.early) release_next();
    wait_for_previous();
    tile = share.tile, step = share.begin;
    for (int i = 0; i < ahead; ++i, advance()) fetch_x(i, tile, step);
    Ring<S::kStages> stage;
    for (int i = 0; i < ahead; ++i) ++stage;
    for (int i = ahead; i < all; ++i, ++stage, advance()) {
      barrier_wait(&shared.empty[stage.at], stage.freed());
      fetch_weight(stage.at, tile, step);
      fetch_x(stage.at, tile, step);
    }
    if (ahead != all && !params.early) release_next();
  }
};

}  // namespace octavo
