// What prefill attention works on, and the warp that fetches it from the paged pool for the others.
#pragma once

#include "../common/hopper.cuh"

namespace octavo {

// Queries of one row and a range of their keys: all, or one of several parts, whose results are merged by the last.
struct alignas(16) Tile {
  int slot, token, position, queries;  // token, position: of the first query, in the step and in its request
  int begin, end;                      // keys; begin is a multiple of those read at a time
  int part, parts;                     // 1 of 1: all keys
  int place, unused[3];                // place: of the first part's result
};

struct PrefillParams {
  const int *tables;  // [slots + 1, width]
  const int *head;    // {tiles, next}: next is the work handed out beyond the first of each block; 0 before and after
  const Tile *tiles;
  int *next;
  void *out;       // [tokens, h * d]
  float *sums;     // [parts, k, rows, d]: of a part, relative to its greatest score
  float2 *bounds;  // [parts, k, rows]: that score in powers of two, and the sum of the weights
  int *arrivals;   // [parts, k, warpgroups]: of parts that are there; 0 before and after
  int width, out_stride, kv_heads, group, blocks;  // blocks: with the padding one
  int window;                                      // keys that a query sees, its own the last; 0: all before it
  float scale;                                     // c
};

template <typename T, int kDim_, int kWarpgroups_, int kStages_, int kKeys_> struct PrefillShape {
  using Element = T;
  static constexpr int kDim = kDim_, kWarpgroups = kWarpgroups_, kStages = kStages_;
  static constexpr int kRows = 64 * kWarpgroups, kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kBlock = 16, kKeys = kKeys_, kBlocks = kKeys / kBlock;
  static constexpr int kChunk = kDim % 64 == 0 ? 64 : 32;  // elements of a swizzled row
  static constexpr int kChunks = kDim / kChunk, kRowBytes = kChunk * 2;
  static constexpr int kOctetBytes = kChunks * 8 * kRowBytes;  // of 8 keys, all chunks: see the boxes in prefill.cu
  static constexpr int kKeyBytes = kKeys * kDim * 2;
  static constexpr int kGive = kWarpgroups == 3 ? 32 : 24, kTake = kWarpgroups == 3 ? 160 : 240;

  struct Shared {
    alignas(1024) T q[2][kChunks][kRows * kChunk];  // two: the next tile's arrive while this one's are in use
    alignas(1024) T k[kStages][kKeys * kDim];       // [key / 8][chunk][8][kChunk]
    alignas(1024) T v[kStages][kKeys * kDim];
    Tile tile[2];
    int head[2];
    int last[kWarpgroups];  // whether all other parts of a warpgroup's rows were there
    uint64_t q_full[2], q_empty[2], k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  };
};

template <class S>
__device__ __forceinline__ void prefill_fetch(typename S::Shared &shared, const CUtensorMap *queries,
                                              const CUtensorMap *pool, const PrefillParams &params) {
  const int lane = threadIdx.x % 32, total = params.head[0] * params.kv_heads;
  const int q_bytes = S::kRows / params.group * params.group * S::kDim * 2;
  Ring<2> tiles;
  Ring<S::kStages> keys;
  for (int work = blockIdx.x;; ++tiles) {
    const int slot = tiles.at;
    barrier_wait(&shared.q_empty[slot], tiles.freed());
    if (work >= total) {
      if (lane == 0) {
        shared.tile[slot].queries = 0;
        barrier_arrive(&shared.q_full[slot]);
      }
      return;
    }
    int next = 0;
    if (lane == 0) next = atomicAdd(params.next, 1);
    const Tile tile = params.tiles[work / params.kv_heads];
    const int head = work % params.kv_heads;
    if (lane == 0) {
      shared.tile[slot] = tile;
      shared.head[slot] = head;
      barrier_expect(&shared.q_full[slot], q_bytes);
      for (int chunk = 0; chunk < S::kChunks; ++chunk)
        copy_box(shared.q[slot][chunk], queries, &shared.q_full[slot], chunk * S::kChunk, head * params.group, tile.token);
    }
    const int last = (tile.end - 1) / S::kBlock;
    const int *table = params.tables + int64_t(tile.slot) * params.width;
    const int key_rows = head * params.blocks, value_rows = (params.kv_heads + head) * params.blocks;
    int first = tile.begin / S::kBlock, block = table[min(first + lane, last)];
    for (; first <= last; first += S::kBlocks, ++keys) {
      const int upcoming = table[min(first + S::kBlocks + lane, last)], stage = keys.at;
      barrier_wait(&shared.k_empty[stage], keys.freed());
      if (lane == 0) barrier_expect(&shared.k_full[stage], S::kKeyBytes);
      __syncwarp();
      if (lane < S::kBlocks)
        copy_box(shared.k[stage] + lane * S::kBlock * S::kDim, pool, &shared.k_full[stage], 0, 0, 0,
                 (key_rows + block) * 2);
      barrier_wait(&shared.v_empty[stage], keys.freed());
      if (lane == 0) barrier_expect(&shared.v_full[stage], S::kKeyBytes);
      __syncwarp();
      if (lane < S::kBlocks)
        copy_box(shared.v[stage] + lane * S::kBlock * S::kDim, pool, &shared.v_full[stage], 0, 0, 0,
                 (value_rows + block) * 2);
      block = upcoming;
    }
    // As many are handed out here as there is work, so the last of them leaves the counter as it was found.
    if (lane == 0 && next == total - 1) *params.next = 0;
    work = gridDim.x + __shfl_sync(0xffffffffu, next, 0);
  }
}

}  // namespace octavo
