// How decode attention is divided: what decode_plan.cu writes and decode.cu reads.
//
// A unit is a (row, kv head) pair, or of a shared prefix a (tile, kv head) pair, a tile being at most kTileQueries / g
// rows whose tables begin with the same blocks. An item is the part of a unit's blocks that one CTA attends to; a CTA's
// items are those of consecutive units. Unit u of CTA c is item u + c: along the division either the unit or the CTA
// advances, so no two items meet, and the items of a CTA, like the partial results of a unit, lie side by side.
#pragma once

#include "../common/common.cuh"

namespace octavo {

constexpr int kBlockTokens = 16;
constexpr int kQuad = 4;  // blocks that the four warps of a CTA read at once
constexpr int kTileQueries = 64;
constexpr int kCluster = 8;  // CTAs

struct alignas(16) Item {
  int row;     // of a tile: where in `members` its rows begin
  int unit;    // tiles' units before rows' units
  int slot;    // whose table names the blocks
  int begin, end;  // blocks
  int length;  // tokens of the row
  int part;    // where the partial result goes, -1: this is the whole result; kCluster: which of the pieces this is
  int flags;   // kv head | rows of the tile, or pieces of the unit, << 8 | the rest

  static constexpr int kShared = 1 << 24;   // of a tile
  static constexpr int kMore = 1 << 25;     // this CTA's next item follows
  static constexpr int kCluster = 1 << 26;  // the unit's pieces lie in neighbouring CTAs of one cluster
  __device__ int head() const { return flags & 0xff; }
  __device__ int tile_rows() const { return (flags >> 8) & 0xffff; }
  __device__ int pieces() const { return (flags >> 8) & 0xffff; }
  __device__ bool shared() const { return flags & kShared; }
  __device__ bool more() const { return flags & kMore; }
  __device__ bool cluster() const { return flags & kCluster; }
};
static_assert(sizeof(Item) == 32, "two loads of 16 bytes");

__device__ __forceinline__ Item load_item(const Item *from) {
  union {
    int4 words[2];
    Item item;
  } both;
  both.words[0] = __ldcg(reinterpret_cast<const int4 *>(from));
  both.words[1] = __ldcg(reinterpret_cast<const int4 *>(from) + 1);
  return both.item;
}

// The partial results that make up one (row, kv head); count 0 where one item is all of it.
struct alignas(16) Parts {
  int first, count;                       // of the row's own items
  int shared_first, shared_count_query;   // of its tile's items: count | the row's first query in the tile << 16

  __device__ int shared_count() const { return shared_count_query & 0xffff; }
  __device__ int tile_query() const { return shared_count_query >> 16; }
};

struct Plan {
  Item *first;    // [ctas] a copy of each CTA's first item; an idle CTA's is empty
  Item *items;    // [units + ctas + 32]; as many are loaded at once
  int *members;   // [rows] rows of tiles
  Parts *parts;   // [rows * k]
  int *arrivals;  // [rows * k] items done of a (row, kv head); zero between launches
};

}  // namespace octavo
