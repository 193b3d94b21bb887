// Divides a step's decode attention among the CTAs of decode.cu, once for all layers.
//
// Rows whose tables begin with the same blocks form a group; the blocks they share are read once for each tile of the
// group's rows. The units, tiles first, are then laid on a line, a block as long as it costs, and the line is cut into
// equal slices, one a CTA. Of a row that a window shows the end of, only blocks that it shows are anybody's work, and
// only rows that are shown whole share a prefix. Where units are few, each is instead cut by itself, so that no CTA has two items, and within
// one cluster if it can be, which merges faster than CTAs that meet in memory. Everything is decided by one CTA of
// 1,024 threads, one a row, in integers: the same step, the same plan.
#include "decode.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 1024;
constexpr int kHashed = 2 * kThreads;
constexpr int kClusterGain = 16;  // blocks: what a CTA may have more of, to be spared meeting others in memory
constexpr int kFewestRows = 4, kFewestBlocks = 8;  // of a group: below, reading once saves less than it costs

struct Shape {
  int rows, kv_heads, group, width, ctas;
  int block_cost, quad_cost;  // of a row's block and of a tile's kQuad blocks
  int unit_cost;              // of a unit, beside its blocks
  int least;                  // blocks a CTA should at least have
  int sharing;                // 0: look for no shared prefixes
  int clusters;               // 1: the CTAs are launched in clusters
  int window;                 // tokens that a row sees, itself the last; 0: all
};

struct Scratch {
  int sums[33];
  int most;              // blocks of a row
  int leader[kThreads];  // the first row of a row's group, -1: none
  int common[kThreads];  // of a leader: blocks that its group shares
  union {
    struct {
      int key[kHashed], leader[kHashed], count[kHashed];
    } hash;
    struct {
      int start[kThreads], begin[kThreads], pieces[kThreads];  // of a row's own blocks
      int place[kThreads];                                     // tile | first query << 16; -1: of no tile
      int tile_base[kThreads], member_base[kThreads];          // of a leader
      int tile_member[kThreads / 4], tile_rows[kThreads / 4], tile_start[kThreads / 4];
      int tile_quads[kThreads / 4], tile_slot[kThreads / 4];
    } line;
  };
};

__device__ int exclusive_scan(int x, int *sums, int &total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int inclusive = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(0xffffffffu, inclusive, step);
    if (lane >= step) inclusive += before;
  }
  __syncthreads();  // `sums` may still be read from the scan before
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  if (warp == 0) {
    int whole = sums[lane];
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, whole, step);
      if (lane >= step) whole += before;
    }
    sums[lane] = whole;
  }
  __syncthreads();
  total = sums[31];
  return inclusive - x + (warp ? sums[warp - 1] : 0);
}

__device__ __forceinline__ int ceil_div(int a, int b) { return (a + b - 1) / b; }

// How many of the first `limit` entries of two tables agree; by a whole warp.
__device__ int agreeing(const int *a, const int *b, int limit) {
  constexpr int kAtOnce = 4;
  const int lane = threadIdx.x & 31;
  for (int base = 0; base < limit; base += 32 * kAtOnce) {
    bool differ[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int at = base + 32 * i + lane;
      differ[i] = at < limit && a[at] != b[at];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const unsigned where = __ballot_sync(0xffffffffu, differ[i]);
      if (where) return base + 32 * i + __ffs(where) - 1;
    }
  }
  return limit;
}

// Sets scratch.leader[row] and returns how many blocks the row shares with its group, 0: it has none. A group is rows
// that have the same block at a depth, the deepest first, so that one that shares little does not cut the rest short.
__device__ int find_groups(Scratch &scratch, int rows, int slot, int full, const int *row_slots, const int *lengths,
                           const int *tables, int width) {
  constexpr int kDepths[] = {128, 32, kFewestBlocks};
  const int row = threadIdx.x;
  int keys[3], shared = 0;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const bool deep = row < rows && full >= kDepths[i] && width >= kDepths[i];
    keys[i] = deep ? tables[int64_t(slot) * width + kDepths[i] - 1] : -1;
  }
  scratch.leader[row] = -1;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    int key = shared ? -1 : keys[i], at = 0;
    if (!__syncthreads_or(key >= 0)) continue;
    for (int j = row; j < kHashed; j += kThreads) {
      scratch.hash.key[j] = -1;
      scratch.hash.leader[j] = kThreads;
      scratch.hash.count[j] = 0;
    }
    __syncthreads();
    if (key >= 0) {
      at = (unsigned(key) * 2654435761u) >> 21;
      for (;; at = (at + 1) % kHashed) {
        const int found = atomicCAS(&scratch.hash.key[at], -1, key);
        if (found == -1 || found == key) break;
      }
      atomicMin(&scratch.hash.leader[at], row);
      atomicAdd(&scratch.hash.count[at], 1);
    }
    __syncthreads();
    const bool candidate = key >= 0 && scratch.hash.count[at] >= kFewestRows;
    const int leader = candidate ? scratch.hash.leader[at] : -1;
    if (candidate) scratch.leader[row] = leader;
    if (leader == row) scratch.common[row] = full;
    if (!__syncthreads_or(candidate)) continue;
    for (int other = row >> 5; other < rows; other += kThreads / 32) {
      const int first = scratch.leader[other];
      if (first < 0 || first == other) continue;
      const int limit = (min(lengths[other], lengths[first]) - 1) / kBlockTokens;
      const int same = agreeing(tables + int64_t(row_slots[other]) * width, tables + int64_t(row_slots[first]) * width,
                                min(limit, width));
      if ((row & 31) == 0) atomicMin(&scratch.common[first], same);
    }
    __syncthreads();
    if (candidate) shared = scratch.common[leader] / kQuad * kQuad;
    if (shared < kFewestBlocks) shared = 0;
    __syncthreads();
    if (candidate && !shared) scratch.leader[row] = -1;
  }
  __syncthreads();
  return shared;
}

__global__ void __launch_bounds__(kThreads)
    plan_kernel(const int *header, const int *row_slots, const int *lengths, const int *tables, Shape shape,
                Plan plan) {
  __shared__ Scratch scratch;
  // Without release_next(): no later kernel begins before this one has ended, so that attention, wherever it comes, may
  // read the plan and all that is older before it waits for the kernel before it.
  wait_for_previous();
  const int row = threadIdx.x, heads = shape.kv_heads;
  const int rows = min(header[1], shape.rows);
  int slot = 0, length = 0;
  if (row < shape.rows) slot = row_slots[row], length = lengths[row];
  const int blocks = max(1, ceil_div(length, kBlockTokens));
  const int hidden = shape.window ? max(0, length - shape.window) : 0;  // tokens before those that the row sees
  const int full = hidden ? 0 : max(0, (length - 1) / kBlockTokens);    // blocks before that of the step's own token
  int shared = 0, rank = 0, size = 0, tiles = 0, all_tiles = 0, all_quads = 0, all_blocks, ignored;
  if (shape.sharing && rows >= kFewestRows)
    shared = find_groups(scratch, rows, slot, full, row_slots, lengths, tables, shape.width);

  const int tile_rows = kTileQueries / shape.group;
  if (__syncthreads_or(shared > 0)) {
    const int leader = scratch.leader[row];
    if (shared)
      for (int other = 0; other < rows; other++) {
        const bool mate = scratch.leader[other] == leader;
        size += mate;
        rank += mate && other < row;
      }
    const bool leads = shared && rank == 0;
    if (leads) tiles = ceil_div(size, tile_rows);
    const int quads = shared / kQuad;
    const int tile = exclusive_scan(tiles, scratch.sums, all_tiles);
    const int member = exclusive_scan(leads ? size : 0, scratch.sums, ignored);
    const int start = exclusive_scan(tiles * quads, scratch.sums, all_quads);
    if (leads) scratch.line.tile_base[row] = tile, scratch.line.member_base[row] = member;
    for (int i = 0; i < tiles; i++) {
      scratch.line.tile_member[tile + i] = member + i * tile_rows;
      scratch.line.tile_rows[tile + i] = min(tile_rows, size - i * tile_rows);
      scratch.line.tile_start[tile + i] = start + i * quads;
      scratch.line.tile_quads[tile + i] = quads;
      scratch.line.tile_slot[tile + i] = slot;
    }
    __syncthreads();
    if (shared) {
      plan.members[scratch.line.member_base[leader] + rank] = row;
      scratch.line.place[row] =
          (scratch.line.tile_base[leader] + rank / tile_rows) | (rank % tile_rows * shape.group) << 16;
    }
  }

  const int begin = shared ? shared : hidden / kBlockTokens;
  const int own = row < rows ? blocks - begin : 0;
  const int own_start = exclusive_scan(own, scratch.sums, all_blocks);
  const int shared_cost = all_quads * heads * shape.quad_cost;
  const int tile_units = all_tiles * heads, units = tile_units + rows * heads;
  const int cost = shared_cost + all_blocks * heads * shape.block_cost + units * shape.unit_cost;
  const int even = ceil_div(cost, shape.ctas);
  const int slice = max(max(even, shape.least * shape.block_cost), shape.quad_cost + shape.unit_cost);

  // Each unit by itself, if that makes no CTA's share much larger.
  const int most = max(shape.least, (even + even / 8 - shape.unit_cost) / shape.block_cost);
  int pieces = ceil_div(own, most), all_pieces;
  const int piece_start = exclusive_scan(pieces, scratch.sums, all_pieces);
  bool apart = all_tiles == 0 && all_pieces * heads <= shape.ctas;

  // Or in `each_unit` neighbouring CTAs of a cluster.
  int each_unit = 0;
  if (shape.clusters && all_tiles == 0 && units) {
    if (threadIdx.x == 0) scratch.most = 0;
    __syncthreads();
    atomicMax(&scratch.most, own);
    __syncthreads();
    for (each_unit = kCluster; units * each_unit > shape.ctas;) each_unit /= 2;
    if (each_unit && ceil_div(scratch.most, each_unit) > even / shape.block_cost + kClusterGain) each_unit = 0;
  }
  if (each_unit) apart = true, pieces = min(each_unit, ceil_div(own, shape.least));
  scratch.line.start[row] = apart ? piece_start : own_start;
  scratch.line.begin[row] = begin;
  if (!shared) scratch.line.place[row] = -1;
  scratch.line.pieces[row] = apart ? pieces : own;
  __syncthreads();

  for (int unit = threadIdx.x; unit < units; unit += kThreads) {
    const bool tiled = unit < tile_units;
    const int index = tiled ? unit : unit - tile_units, of = index / heads, head = index % heads;
    const int lead = apart ? 0 : shape.unit_cost;
    int count, start, each;  // blocks or quads, where on the line the first begins, how long one is
    if (tiled) {
      count = scratch.line.tile_quads[of], each = shape.quad_cost;
      start = (scratch.line.tile_start[of] * heads + head * count) * each;
    } else {
      count = scratch.line.pieces[of], each = apart ? 1 : shape.block_cost;
      start = (scratch.line.start[of] * heads + head * count) * each + shared_cost;
    }
    start += (unit + 1) * lead;
    if (each_unit) start = unit * each_unit;
    const int width = apart ? 1 : slice;
    const int from = start / width, to = (start + (count - 1) * each) / width;
    const int each_before = unit == tile_units && tile_units ? shape.quad_cost : each;
    const bool fresh = unit == 0 || (start - lead - each_before) / width < from;  // none reaches it
    const bool follows = unit + 1 < units && (start + count * each + lead) / width == to;
    Item item;
    item.unit = unit;
    int first_block = 0, own_blocks = 0, place = -1;
    if (tiled) {
      item.row = scratch.line.tile_member[of];
      item.slot = scratch.line.tile_slot[of];
      item.length = 0x7fffffff;
    } else {
      item.row = of;
      item.slot = row_slots[of];
      item.length = lengths[of];
      first_block = scratch.line.begin[of];
      place = scratch.line.place[of];
      own_blocks = max(1, ceil_div(item.length, kBlockTokens)) - first_block;
    }
    const bool whole = !tiled && place < 0 && from == to;
    for (int cta = from; cta <= to; cta++) {
      int begin = cta == from ? 0 : ceil_div(cta * width - start, each);
      int end = cta == to ? count : ceil_div((cta + 1) * width - start, each);
      if (apart) {
        begin = own_blocks * begin / count;
        end = own_blocks * end / count;
      }
      item.begin = tiled ? begin * kQuad : first_block + begin;
      item.end = tiled ? end * kQuad : first_block + end;
      item.part = whole ? -1 : each_unit ? cta - from : index + cta;
      item.flags = head | (tiled ? scratch.line.tile_rows[of] << 8 | Item::kShared : 0);
      if (each_unit && !whole) item.flags |= count << 8 | Item::kCluster;
      if (cta == to && follows) item.flags |= Item::kMore;
      plan.items[unit + cta] = item;
      if (cta > from || fresh) plan.first[cta] = item;
    }
    for (int cta = to + 1; cta < from + each_unit; cta++) plan.first[cta] = Item{};
    if (tiled) continue;
    Parts parts = {index + from, whole ? 0 : to - from + 1, 0, 0};
    if (place >= 0) {
      const int tile = place & 0xffff, query = place >> 16;
      const int quads = scratch.line.tile_quads[tile];
      const int tile_start = (scratch.line.tile_start[tile] * heads + head * quads) * shape.quad_cost +
                             (tile * heads + head + 1) * shape.unit_cost;
      const int tile_from = tile_start / slice, tile_to = (tile_start + (quads - 1) * shape.quad_cost) / slice;
      parts.shared_first = tile * heads + head + tile_from;
      parts.shared_count_query = (tile_to - tile_from + 1) | query << 16;
    }
    plan.parts[index] = parts;
  }
  const int used = each_unit ? units * each_unit : apart ? all_pieces * heads : (cost - shape.block_cost) / slice + 1;
  for (int cta = used + threadIdx.x; cta < shape.ctas; cta += kThreads) plan.first[cta] = Item{};
}

}  // namespace
}  // namespace octavo

// header: [16] int32, [1] counts the rows; row_slots, lengths: [rows]; tables: [slots, width]; window: 0: none; the
// rest as in Plan.
extern "C" int octavo_decode_plan(const int *header, const int *row_slots, const int *lengths, const int *tables,
                                  void *first, void *items, int *members, void *parts, int *arrivals, int rows,
                                  int kv_heads, int group, int width, int ctas, int block_cost, int quad_cost,
                                  int unit_cost, int least, int sharing, int clusters, int window,
                                  cudaStream_t stream) {
  using namespace octavo;
  if (rows > kThreads || kv_heads > 255) return int(cudaErrorInvalidValue);
  const Shape shape{rows, kv_heads, group, width, ctas, block_cost, quad_cost, unit_cost, least, sharing,
                    clusters, window};
  const Plan plan{static_cast<Item *>(first), static_cast<Item *>(items), members, static_cast<Parts *>(parts),
                  arrivals};
  return launch(plan_kernel, 1, kThreads, 0, stream, header, row_slots, lengths, tables, shape, plan);
}
