// Attention of rows that have one new token each, over their paged keys and values, on the tensor cores.
//
// A CTA of four warps walks its items (decode.cuh). Every warp reads its own blocks, each fourth one of an item, into
// its own ring of shared memory that runs on across items: no barrier stands between memory and a warp. Blocks of one
// row: each warp has its own result for the queries of a kv head, merged at the end. Blocks shared by a tile of rows:
// every warp takes all four blocks and its own share of the tile's queries. Partial results of a (row, kv head) are
// sent to one CTA of the cluster, or left in memory and merged by the CTA that is the last to leave one, in the order
// of the plan: the same step gives the same bits. (Kwon 2023; Dao 2023)
#include "decode_merge.cuh"

namespace octavo {
namespace {

constexpr int kTileN = kTileQueries / kWarps / 8;  // of a tile, a warp's queries in eights

template <typename T> struct Args {
  const T *q, *pool;
  const int *tables;
  int64_t kv_stride, head_stride;   // of the pool, elements
  int64_t q_stride, q_head_stride;  // elements
  int width;
  float scale;  // d^-0.5 log2 e: exponentials are powers of two
  int window;   // tokens of a row that are seen, its last ones
  int clusters;
  Merge<T> merge;
};

// Between kernels, see common.cuh: decode_plan.cu lets no kernel begin before it has ended. The plan, the tables, and
// all keys and values but the newest token's are thus there when this kernel begins; only the rest is waited for.
template <typename T, int D> struct Attention {
  using L = Layout<T, D>;

  const Args<T> &args;
  const Merge<T> &m;
  const int lane, warp;
  Reader<T, D> reader;
  Queries<T, D> queries;  // of the row whose turn it is
  bool deep;              // all there is to read was asked for at once
  int stage = 0;
  int side = 0;           // which half of `merge` is next
  float *merge;           // [2][warps][g][kStride]
  float2 *bounds;         // [2][warps][8]
  Arrived *arrived;       // count: [side]
  const Mailbox mailbox;  // of launches in clusters

  // A part is written, then said to have arrived, then, if it was the last, collected with the others: each at the end
  // of an item, one item later, so that nobody waits for memory. -1: none.
  int written = -1, announced = -1;
  Parts announced_parts;  // of thread 0, like the next
  int before = 0;         // parts that had arrived before

  __device__ Attention(const Args<T> &args, unsigned char *shared)
      : args(args), m(args.merge), lane(threadIdx.x & 31), warp(threadIdx.x >> 5),
        merge(reinterpret_cast<float *>(shared + L::kRing)), mailbox(shared + L::bytes(m.group), m.group, D) {
    bounds = reinterpret_cast<float2 *>(merge + 2 * kWarps * m.group * L::kStride);
    arrived = reinterpret_cast<Arrived *>(bounds + 2 * kWarps * 8);
    reader.pool = args.pool, reader.tables = args.tables, reader.items = m.plan.items;
    reader.kv_stride = args.kv_stride, reader.head_stride = args.head_stride, reader.width = args.width;
    reader.lane = lane, reader.warp = warp;
    reader.ring = uint32_t(__cvta_generic_to_shared(shared)) + warp * L::kSlot;
    reader.waited = false;
    if (threadIdx.x < 2) arrived->count[threadIdx.x] = 0;
  }

  __device__ __forceinline__ float *half(int of) const { return merge + of * kWarps * m.group * L::kStride; }

  __device__ __forceinline__ void wait_for_stage() const {
    if (deep)
      wait_for_all_but<1>();
    else
      wait_for_all_but<0>();
  }

  __device__ __forceinline__ const T *query(int row, int head) const {
    return args.q + row * args.q_stride + head * args.q_head_stride;
  }
  __device__ __forceinline__ void fetch(const Item &item) {
    const int of_head = lane >> 2;
    queries.fetch(of_head < m.group ? query(item.row, item.head() * m.group + of_head) : nullptr);
  }

  __device__ __forceinline__ uint32_t key_offset(int i) const { return L::offset(lane & 15, 2 * i + (lane >> 4)); }
  __device__ __forceinline__ uint32_t value_offset(int i) const {
    return L::kHalf * sizeof(T) + L::offset((lane & 7) + (lane >> 4) * 8, 2 * i + ((lane >> 3) & 1));
  }

  // One block of a row. tokens: those of the row from the block's first on.
  __device__ __forceinline__ void attend(Result<D> &result, uint32_t keys, int tokens) {
    float s[1][4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      uint32_t k[4];
      load_matrices(k, keys + key_offset(i));
      multiply(i & 1 ? odd : s[0], k, queries.at[i], T());
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[0][i] += odd[i];
    if (tokens < kBlockTokens) {
      if ((lane >> 2) >= tokens) s[0][0] = s[0][1] = -INFINITY;
      if ((lane >> 2) + 8 >= tokens) s[0][2] = s[0][3] = -INFINITY;
    }
    if (tokens > args.window) {  // the window begins in this block: one token of it is seen at least
      if ((lane >> 2) < tokens - args.window) s[0][0] = s[0][1] = -INFINITY;
      if ((lane >> 2) + 8 < tokens - args.window) s[0][2] = s[0][3] = -INFINITY;
    }
    result.template weigh<1>(s, args.scale);
    uint32_t p[2];
    turn<T>(p, s[0]);
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      uint32_t v[4];
      load_transposed(v, keys + value_offset(i));
      multiply(result.o[i], v, p, T());
    }
  }

  // Before a barrier of the CTA.
  __device__ __forceinline__ void note_announced() {
    if (threadIdx.x == 0 && announced >= 0) note(m, *arrived, side, announced, announced_parts, before);
  }
  // After it.
  __device__ __forceinline__ void collect_announced() {
    if (announced >= 0 && arrived->count[side]) {
      collect<T, D>(m, arrived->parts, arrived->units, 1, half(side ^ 1));
      __syncthreads();
      if (threadIdx.x == 0) arrived->count[side] = 0;
    }
    announced = written;
    written = -1;
    if (threadIdx.x == 0 && announced >= 0) {
      announced_parts = load_parts(m, announced);
      before = arrive(m, announced);
    }
    side ^= 1;
  }

  // Blocks of one row, whose queries were fetched. `next`: the item that follows, if any does.
  __device__ __forceinline__ void own(const Item &item, const Item &next) {
    Result<D> result;
    result.clear();
    for (int block = item.begin + warp; block - warp < item.end; block += kQuad) {
      wait_for_stage();
      __syncwarp();
      reader.next(stage ^ 1);
      if (block < item.end) attend(result, reader.slot(stage, warp), item.length - block * kBlockTokens);
      stage ^= 1;
    }
    if (item.more()) fetch(next);
    result.finish();
    float *mine = half(side);
    float2 *my_bounds = bounds + side * kWarps * 8;
    leave<T, D>(result, m.group, mine + warp * m.group * L::kStride, my_bounds + warp * m.group);
    note_announced();
    __syncthreads();
    collect_announced();
    if (item.cluster()) {
      put_in_cluster<T, D>(m, item, mine, my_bounds, mailbox);
      return;
    }
    put<T, D>(m, item, mine, my_bounds);
    if (item.part >= 0) written = item.row * m.heads + item.head();
  }

  __device__ __forceinline__ void settle() {
    while (written >= 0 || announced >= 0) {
      note_announced();
      __syncthreads();
      collect_announced();
    }
  }

  // A quad that a tile shares: whole blocks, by the plan.
  __device__ __forceinline__ void attend(Result<D> (&results)[kTileN], const Queries<T, D> (&of_tile)[kTileN]) {
    float s[kTileN][kQuad][4] = {};
#pragma unroll
    for (int b = 0; b < kQuad; b++)
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        uint32_t k[4];
        load_matrices(k, reader.slot(stage, b) + key_offset(i));
#pragma unroll
        for (int n = 0; n < kTileN; n++) multiply(s[n][b], k, of_tile[n].at[i], T());
      }
#pragma unroll
    for (int n = 0; n < kTileN; n++) results[n].template weigh<kQuad>(s[n], args.scale);
#pragma unroll
    for (int b = 0; b < kQuad; b++) {
      uint32_t p[kTileN][2];
#pragma unroll
      for (int n = 0; n < kTileN; n++) turn<T>(p[n], s[n][b]);
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        uint32_t v[4];
        load_transposed(v, reader.slot(stage, b) + value_offset(i));
#pragma unroll
        for (int n = 0; n < kTileN; n++) multiply(results[n].o[i], v, p[n], T());
      }
    }
  }

  __device__ __forceinline__ void tile(const Item &item) {
    const int of_tile = item.tile_rows() * m.group;
    Queries<T, D> queries_[kTileN];
    Result<D> results[kTileN];
#pragma unroll
    for (int n = 0; n < kTileN; n++) {
      const int at = (warp * kTileN + n) * 8 + (lane >> 2);
      const T *from = nullptr;
      if (at < of_tile)
        from = query(__ldcg(m.plan.members + item.row + at / m.group), item.head() * m.group + at % m.group);
      queries_[n].fetch(from);
      results[n].clear();
    }
    const bool speaks = threadIdx.x < item.tile_rows();  // for a row of the tile
    int unit = 0;
    Parts parts;
    if (speaks) {
      unit = __ldcg(m.plan.members + item.row + threadIdx.x) * m.heads + item.head();
      parts = load_parts(m, unit);
    }
    for (int block = item.begin; block < item.end; block += kQuad) {
      wait_for_stage();
      __syncthreads();
      reader.next(stage ^ 1);
      attend(results, queries_);
      stage ^= 1;
    }
#pragma unroll
    for (int n = 0; n < kTileN; n++) {
      results[n].finish();
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = (warp * kTileN + n) * 8 + 2 * (lane & 3) + j;
        if (at >= of_tile) continue;
        const int64_t part = m.tile_parts + int64_t(item.part) * kTileQueries + at;
        float *to = m.partials + part * D + (lane >> 2);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          __stcg(to + 16 * i, results[n].o[i][j]);
          __stcg(to + 16 * i + 8, results[n].o[i][j + 2]);
        }
        if (lane < 4) __stcg(m.bounds + part, make_float2(results[n].maximum[j], results[n].total[j]));
      }
    }
    __syncthreads();
    if (speaks) note(m, *arrived, 0, unit, parts, arrive(m, unit));
    __syncthreads();
    const int count = arrived->count[0];
    if (count) collect<T, D>(m, arrived->parts, arrived->units, count, merge);
    __syncthreads();
    if (threadIdx.x == 0) arrived->count[0] = 0;
  }

  __device__ void run() {
    release_next();
    if (args.clusters) mailbox.join();
    Item item = load_item(m.plan.first + blockIdx.x);
    if (item.begin >= item.end) {
      wait_for_previous();
      return;
    }
    reader.open(item);
    deep = !item.more() && item.end - item.begin <= L::kStages * kQuad;
    for (int i = 0; i <= int(deep); i++) reader.next(i);
    wait_for_previous();
    reader.waited = true;
    while (item.shared()) {  // a CTA's tiles come before its rows
      const Item next = following(item);
      tile(item);
      if (!item.more()) return;
      item = next;
    }
    fetch(item);
    if (item.cluster()) mailbox.joined();
    for (;;) {
      const Item next = following(item);
      own(item, next);
      if (!item.more()) break;
      item = next;
    }
    settle();
  }

  __device__ __forceinline__ Item following(const Item &item) const {
    return item.more() ? load_item(m.plan.items + item.unit + blockIdx.x + 1) : item;
  }
};

template <typename T, int D>
__global__ void __launch_bounds__(kThreads, D == 64 ? 3 : 2) decode_kernel(const __grid_constant__ Args<T> args) {
  extern __shared__ __align__(128) unsigned char shared[];
  Attention<T, D>(args, shared).run();
}

template <typename T, int D> int run(const Args<T> &args, int ctas, cudaStream_t stream) {
  const auto kernel = decode_kernel<T, D>;
  const int group = args.merge.group;
  const int bytes = Layout<T, D>::bytes(group) + (args.clusters ? Mailbox::bytes<D>(group) : 0);
  if (!args.clusters) return launch(kernel, ctas, kThreads, bytes, stream, args);
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return int(error);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = ctas;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return int(cudaLaunchKernelEx(&config, kernel, args));
}

template <typename T> int run(const Args<T> &args, int d, int ctas, cudaStream_t stream) {
  switch (d) {
    case 64: return run<T, 64>(args, ctas, stream);
    case 96: return run<T, 96>(args, ctas, stream);
    case 128: return run<T, 128>(args, ctas, stream);
  }
  return int(cudaErrorInvalidValue);
}

}  // namespace
}  // namespace octavo

// q: [rows, g * k, d] by its strides; pool: [2, k, blocks, 16, d]; tables: [slots, width]; out: [rows, g * k * d].
// window: that of the plan.
extern "C" int octavo_decode(const void *q, const void *pool, void *out, const int *tables, void *first, void *items,
                             int *members, void *parts, int *arrivals, float *partials, void *bounds,
                             int64_t tile_parts, int64_t kv_stride, int64_t head_stride, int64_t q_stride,
                             int64_t q_head_stride, int width, int heads, int group, int d, int ctas, int clusters,
                             int window, int dtype, cudaStream_t stream) {
  using namespace octavo;
  const Plan plan{static_cast<Item *>(first), static_cast<Item *>(items), members, static_cast<Parts *>(parts),
                  arrivals};
  auto with = [&](auto zero) {
    using T = decltype(zero);
    const Merge<T> merge{static_cast<T *>(out), plan,  partials, static_cast<float2 *>(bounds),
                         tile_parts,            heads, group};
    const Args<T> args{static_cast<const T *>(q), static_cast<const T *>(pool), tables, kv_stride, head_stride,
                       q_stride, q_head_stride, width, 1.4426950408889634f / sqrtf(float(d)),
                       window ? window : 0x7fffffff, clusters, merge};
    return run(args, d, ctas, stream);
  };
  if (dtype == kBf16) return with(bf16());
  if (dtype == kF16) return with(f16());
  return int(cudaErrorInvalidValue);
}
