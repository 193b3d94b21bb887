// Blocks on their way from memory: each warp asks for its own, far ahead of what is computed, item after item.
#pragma once

#include "decode.cuh"

namespace octavo {

constexpr int kWarps = kQuad, kThreads = 32 * kWarps;

// (row, kv head) pairs whose last part this CTA had.
struct Arrived {
  Parts parts[kTileQueries];
  int units[kTileQueries];
  int count[2];
};

// Shared memory of a CTA: the ring, [stages][warps] of a block's keys and values, then what the warps merge.
template <typename T, int D> struct Layout {
  static constexpr int kStages = 2;  // more only make requests wait for each other in memory
  static constexpr int kChunks = D / 8;           // of 16 bytes, in a token's key
  static constexpr int kHalf = kBlockTokens * D;  // elements of a block's keys
  static constexpr int kSlot = 2 * kHalf * sizeof(T);
  static constexpr int kRing = kStages * kWarps * kSlot;
  static constexpr int kStride = D + 4;  // floats of a query in `merge`: four apart, two lie in different banks

  __host__ __device__ static int bytes(int group) {
    return kRing + 2 * kWarps * (group * kStride * int(sizeof(float)) + 8 * int(sizeof(float2))) + int(sizeof(Arrived));
  }

  // Chunks of a token are permuted so that the eight rows of an ldmatrix lie in different banks.
  __device__ static int chunk(int token, int at) { return D == 96 ? at ^ ((token >> 1) & 3) : at ^ (token & 7); }
  __device__ static uint32_t offset(int token, int at) { return uint32_t(token * kChunks + chunk(token, at)) * 16; }
};

__device__ __forceinline__ void copy_async(uint32_t to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

template <typename T, int D> struct Reader {
  using L = Layout<T, D>;

  const T *pool;
  const int *tables;
  const Item *items;  // the next to be loaded
  int64_t kv_stride, head_stride;
  int width;
  int lane, warp;
  uint32_t ring;      // this warp's first slot
  Item item;          // being read
  Item ahead;         // lane i: item i of those that `items` was moved over last
  int at;             // which of them follows `item`
  int quad;           // the next of `item`
  int entries;        // lane i: the block of quad i, of 32
  int next_entries;   // of the item that follows, if `peeked`
  bool peeked, more;
  bool waited;        // for the kernel before this one

  __device__ __forceinline__ uint32_t slot(int stage, int of) const {
    return ring + (stage * kWarps + of - warp) * L::kSlot;
  }

  __device__ __forceinline__ void open(const Item &first) {
    item = first;
    items += first.unit + blockIdx.x + 1;
    quad = 0;
    peeked = false;
    more = true;
    entries = look_up(item.slot, item.begin, item.end);
    if (item.more()) refill();
  }

  __device__ __forceinline__ int look_up(int slot, int begin, int end) const {
    const int block = begin + lane * kQuad + warp;
    return block < end ? __ldcg(tables + int64_t(slot) * width + block) : 0;
  }

  __device__ __forceinline__ void refill() {
    ahead = load_item(items + lane);
    items += 32;
    at = 0;
  }

  __device__ __forceinline__ int from_ahead(int of_lane) const { return __shfl_sync(0xffffffffu, of_lane, at); }

  __device__ __forceinline__ void peek() {
    next_entries = look_up(from_ahead(ahead.slot), from_ahead(ahead.begin), from_ahead(ahead.end));
    peeked = true;
  }

  __device__ __forceinline__ void advance() {
    item.slot = from_ahead(ahead.slot);
    item.begin = from_ahead(ahead.begin);
    item.end = from_ahead(ahead.end);
    item.length = from_ahead(ahead.length);
    item.flags = from_ahead(ahead.flags);
    entries = next_entries;
    quad = 0;
    peeked = false;
    if (++at == 32 && item.more()) refill();
  }

  __device__ __forceinline__ void copy(int stage, int block, int entry) {
    const int tokens = item.length - block * kBlockTokens;
    if (!waited && tokens <= kBlockTokens) wait_for_previous(), waited = true;  // the newest token's block
    const T *from = pool + item.head() * head_stride + int64_t(entry) * L::kHalf;
    const uint32_t to = slot(stage, warp);
#pragma unroll
    for (int i = 0; i < L::kHalf / 8 / 32; i++) {
      const int chunk = i * 32 + lane, token = chunk / L::kChunks;
      const uint32_t offset = L::offset(token, chunk % L::kChunks);
      const int bytes = token < tokens ? 16 : 0;  // zeros for tokens that are not: what is there may be NaN
      copy_async(to + offset, from + chunk * 8, bytes);
      copy_async(to + L::kHalf * sizeof(T) + offset, from + kv_stride + chunk * 8, bytes);
    }
  }

  // Asks for this warp's block of the next quad and moves on. Always one group.
  __device__ __forceinline__ void next(int stage) {
    if (more) {
      const int block = item.begin + quad * kQuad + warp;
      const int entry = __shfl_sync(0xffffffffu, entries, quad & 31);
      if (block < item.end) copy(stage, block, entry);
      quad++;
      const int begin = item.begin + quad * kQuad;
      const bool done = begin >= item.end;
      if (item.more() && !peeked && (done || quad > 1)) peek();
      if (done) {
        more = item.more();
        if (more) advance();
      } else if (quad % 32 == 0) {
        entries = look_up(item.slot, begin, item.end);
      }
    }
    commit();
  }
};

}  // namespace octavo
