// Attention of rows that have one new token each, over their paged keys and values, on the tensor cores.
//
// A CTA of four warps walks its items (decode.cuh). Every warp reads its own blocks, each fourth one of an item, through
// its own ring of shared memory, kStages deep, that runs on across items: no barrier stands between memory and a warp.
// A block is 16 tokens, the M of an mma, and the query heads of a kv head are its N of 8:
//
//   S^T [16 tokens, 8 queries] = K Q^T          O^T [d, 8 queries] += V^T P^T
//
// S^T leaves the mma with a token a row and enters the next one, as P^T, with a token a column: movmatrix turns it.
// Blocks of one row: each warp has its own O^T, merged at the end. Blocks shared by a tile of rows: every warp takes all
// four blocks and its own 16 of the tile's 64 queries. Partial results are merged by the CTA that is the last to have
// one for a (row, kv head), in the order of the plan: the same step gives the same bits. (Kwon 2023; Dao 2023)
#include "decode.cuh"

namespace octavo {
namespace {

constexpr int kWarps = kQuad, kThreads = 32 * kWarps;
constexpr int kTileN = kTileQueries / kWarps / 8;  // mma columns of a warp, in eights
constexpr float kNone = -1e30f;                    // the maximum of no scores; finite, so that differences are numbers

template <typename T, int D> struct Layout {
  static constexpr int kStages = D == 64 ? 6 : D == 96 ? 4 : 3;
  static constexpr int kChunks = D / 8;            // of 16 bytes, in a token's key
  static constexpr int kHalf = kBlockTokens * D;   // elements of a block's keys
  static constexpr int kStride = D + 4;            // floats; four apart, two queries lie in different banks
  static constexpr size_t kRing = size_t(kStages) * kWarps * 2 * kHalf * sizeof(T);
  static constexpr size_t kMerge = size_t(kWarps) * 8 * kStride * sizeof(float);
  static constexpr size_t kBytes = kRing + kMerge + kWarps * 8 * sizeof(float2) + 16;

  // Chunks of a token are permuted so that the eight rows of an ldmatrix lie in different banks.
  __device__ static int chunk(int token, int at) { return D == 96 ? at ^ ((token >> 1) & 3) : at ^ (token & 7); }
  __device__ static uint32_t offset(int token, int at) { return uint32_t(token * kChunks + chunk(token, at)) * 16; }
};

template <typename T> struct Args {
  const T *q, *pool;
  T *out;
  const int *tables;
  Plan plan;
  float *partials;  // [parts, d]: first those of rows, g a part, then those of tiles, kTileQueries a part
  float2 *bounds;   // [parts]: maximum and sum
  int64_t tile_parts;                // where those of tiles begin
  int64_t kv_stride, head_stride;    // of the pool, elements
  int64_t q_stride, q_head_stride;   // elements
  int width, heads, group;           // heads: of keys
  float scale;                       // d^-0.5 log2 e: exponentials are powers of two
  int early;                         // may blocks before the last be read before the kernel before has ended?
  int fused;
};

__device__ __forceinline__ void copy_async(uint32_t to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ uint32_t transpose(uint32_t a) {
  uint32_t b;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(b) : "r"(a));
  return b;
}

__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t pack(float low, float high, bf16) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t &>(both);
}
__device__ __forceinline__ uint32_t pack(float low, float high, f16) {
  const __half2 both = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t &>(both);
}
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What arrived before is seen by whoever gets a later number.
__device__ __forceinline__ int arrive(int *counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// Over the lanes that hold the same pair of queries: those that differ in lane / 4.
template <typename Op> __device__ __forceinline__ float over_tokens(float x, Op op) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float sum(float a, float b) { return a + b; }

// Eight queries of a warp: their part of Q, and of the result so far. Lane 4a + b holds queries 2b and 2b + 1.
template <typename T, int D> struct Queries {
  uint32_t q[D / 16][2];
  float o[D / 16][4];  // [d / 16]: (a, 2b), (a, 2b + 1), (a + 8, 2b), (a + 8, 2b + 1)
  float maximum[2], total[2];

  // `from`: the query of lane / 4, null: none.
  __device__ __forceinline__ void start(const T *from) {
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        q[i][j] = from ? __ldcg(reinterpret_cast<const unsigned *>(from + 16 * i + 8 * j + 2 * (threadIdx.x & 3))) : 0;
      }
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) o[i][j] = 0.0f;
    maximum[0] = maximum[1] = kNone;
    total[0] = total[1] = 0.0f;
  }

  // Scores, in place, to weights relative to the maximum with them. s: [n] of a mma's tile.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[N][4], float scale) {
    float factor[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float highest = fmaxf(s[0][j], s[0][j + 2]);
#pragma unroll
      for (int n = 1; n < N; n++) highest = fmaxf(highest, fmaxf(s[n][j], s[n][j + 2]));
      highest = fmaxf(maximum[j], over_tokens(highest, larger) * scale);
      factor[j] = power_of_two(maximum[j] - highest);
      maximum[j] = highest;
      total[j] *= factor[j];
#pragma unroll
      for (int n = 0; n < N; n++) {
        s[n][j] = power_of_two(fmaf(s[n][j], scale, -highest));
        s[n][j + 2] = power_of_two(fmaf(s[n][j + 2], scale, -highest));
        total[j] += s[n][j] + s[n][j + 2];
      }
    }
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      o[i][0] *= factor[0], o[i][1] *= factor[1];
      o[i][2] *= factor[0], o[i][3] *= factor[1];
    }
  }

  // The sum over all lanes' tokens; after it `total` is whole.
  __device__ __forceinline__ void finish() {
    total[0] = over_tokens(total[0], sum);
    total[1] = over_tokens(total[1], sum);
  }
};

template <typename T, int D> struct Reader {
  using L = Layout<T, D>;
  static constexpr int kSlot = 2 * L::kHalf * sizeof(T);

  const Args<T> &args;
  const int lane, warp, cta;
  const uint32_t ring;  // this warp's first slot
  Item item;
  int quad, entries;    // the next quad of the item; lane i: the block of quad i, of 32
  bool waited, more;

  __device__ Reader(const Args<T> &args, uint32_t ring)
      : args(args), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), cta(blockIdx.x),
        ring(ring + (threadIdx.x >> 5) * kSlot) {}

  __device__ __forceinline__ uint32_t slot(int stage, int of) const {
    return ring + (stage * kWarps + of - warp) * kSlot;
  }
  __device__ __forceinline__ void open(const Item &next) {
    item = next;
    more = true;
    quad = 0;
    look_up();
  }
  __device__ __forceinline__ void look_up() {
    const int block = item.begin + (quad + lane) * kQuad + warp;
    entries = block < item.end ? __ldcg(args.tables + int64_t(item.slot) * args.width + block) : 0;
  }

  // Asks for this warp's next block and moves on, over items if need be. Always one group.
  __device__ __forceinline__ void next(int stage) {
    if (more) {
      const int block = item.begin + quad * kQuad + warp;
      const int entry = __shfl_sync(0xffffffffu, entries, quad & 31);
      if (block < item.end) {
        const int tokens = item.length - block * kBlockTokens;
        if (!waited && tokens <= kBlockTokens) wait_for_previous(), waited = true;
        const T *from = args.pool + item.head() * args.head_stride + int64_t(entry) * L::kHalf;
        const uint32_t to = slot(stage, warp);
#pragma unroll
        for (int i = 0; i < L::kHalf / 8 / 32; i++) {
          const int at = i * 32 + lane, token = at / L::kChunks;
          const uint32_t offset = L::offset(token, at % L::kChunks);
          const int bytes = token < tokens ? 16 : 0;  // zeros for tokens that are not: what is there may be NaN
          copy_async(to + offset, from + at * 8, bytes);
          copy_async(to + L::kHalf * sizeof(T) + offset, from + args.kv_stride + at * 8, bytes);
        }
      }
      quad++;
      if (item.begin + quad * kQuad >= item.end) {
        more = item.more();
        if (more) open(load_item(args.plan.items + item.unit + cta + 1));
      } else if (quad % 32 == 0) {
        look_up();
      }
    }
    commit();
  }
};

template <typename T, int D> struct Attention {
  using L = Layout<T, D>;

  const Args<T> &args;
  Reader<T, D> reader;
  int stage;
  float *merge;    // [warps][8][kStride]
  float2 *bounds;  // [warps][8]
  int *last;

  __device__ Attention(const Args<T> &args, unsigned char *shared)
      : args(args), reader(args, uint32_t(__cvta_generic_to_shared(shared))), stage(0),
        merge(reinterpret_cast<float *>(shared + L::kRing)),
        bounds(reinterpret_cast<float2 *>(shared + L::kRing + L::kMerge)),
        last(reinterpret_cast<int *>(shared + L::kRing + L::kMerge + kWarps * 8 * sizeof(float2))) {}

  __device__ __forceinline__ void step() { stage = stage + 1 == L::kStages ? 0 : stage + 1; }
  __device__ __forceinline__ int free_stage() const { return stage == 0 ? L::kStages - 1 : stage - 1; }

  __device__ __forceinline__ const T *query(int row, int head) const {
    return args.q + row * args.q_stride + head * args.q_head_stride;
  }

  // S^T of one block with eight queries.
  __device__ __forceinline__ void score(float (&s)[4], const Queries<T, D> &queries, uint32_t keys) const {
    const int lane = threadIdx.x & 31;
    float odd[4] = {};
    s[0] = s[1] = s[2] = s[3] = 0.0f;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      uint32_t k[4];
      load_matrices(k, keys + L::offset(lane & 15, 2 * i + (lane >> 4)));
      multiply(i & 1 ? odd : s, k, queries.q[i], T());
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] += odd[i];
  }

  __device__ __forceinline__ void turn(uint32_t (&p)[2], const float (&s)[4]) const {
    p[0] = transpose(pack(s[0], s[1], T()));
    p[1] = transpose(pack(s[2], s[3], T()));
  }

  __device__ __forceinline__ uint32_t value_offset(int i) const {
    const int lane = threadIdx.x & 31;
    return L::kHalf * sizeof(T) + L::offset((lane & 7) + (lane >> 4) * 8, 2 * i + ((lane >> 3) & 1));
  }

  __device__ void own(const Item &item) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int query_head = item.head() * args.group + (lane >> 2);
    Queries<T, D> queries;
    queries.start((lane >> 2) < args.group ? query(item.row, query_head) : nullptr);
    for (int block = item.begin + warp; block - warp < item.end; block += kQuad) {
      wait_for_all_but<L::kStages - 2>();
      __syncwarp();
      reader.next(free_stage());
      if (block < item.end) {
        const uint32_t keys = reader.slot(stage, warp);
        float s[1][4];
        score(s[0], queries, keys);
        const int tokens = item.length - block * kBlockTokens;
        if (tokens < kBlockTokens) {
          if ((lane >> 2) >= tokens) s[0][0] = s[0][1] = -INFINITY;
          if ((lane >> 2) + 8 >= tokens) s[0][2] = s[0][3] = -INFINITY;
        }
        queries.weigh(s, args.scale);
        uint32_t p[2];
        turn(p, s[0]);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          uint32_t v[4];
          load_transposed(v, keys + value_offset(i));
          multiply(queries.o[i], v, p, T());
        }
      }
      step();
    }
    queries.finish();
    leave(queries);
    __syncthreads();
    put(item);
    if (item.part < 0 || !args.fused) {
      __syncthreads();
      return;
    }
    __syncthreads();
    const int unit = item.row * args.heads + item.head();
    if (threadIdx.x == 0) *last = is_last(unit);
    __syncthreads();
    if (*last) collect(item.row, item.head());
  }

  // A warp's result to shared memory.
  __device__ __forceinline__ void leave(const Queries<T, D> &queries) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int query = 2 * (lane & 3) + j;
      if (query >= args.group) continue;
      float *to = merge + (warp * 8 + query) * L::kStride + (lane >> 2);
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        to[16 * i] = queries.o[i][j];
        to[16 * i + 8] = queries.o[i][j + 2];
      }
      if (lane < 4) bounds[warp * 8 + query] = make_float2(queries.maximum[j], queries.total[j]);
    }
  }

  // The four warps' results, merged: to `out` or to the item's part.
  __device__ __forceinline__ void put(const Item &item) {
    for (int at = threadIdx.x; at < args.group * (D / 4); at += kThreads) {
      const int query = at / (D / 4), d = at % (D / 4) * 4;
      float highest = kNone, total = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; w++) highest = fmaxf(highest, bounds[w * 8 + query].x);
      float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < kWarps; w++) {
        const float2 bound = bounds[w * 8 + query];
        add(o, total, bound, *reinterpret_cast<const float4 *>(merge + (w * 8 + query) * L::kStride + d), highest);
      }
      if (item.part < 0) {
        write(item.row, item.head() * args.group + query, d, o, total);
      } else {
        const int64_t part = int64_t(item.part) * args.group + query;
        __stcg(reinterpret_cast<float4 *>(args.partials + part * D + d), o);
        if (d == 0) __stcg(args.bounds + part, make_float2(highest, total));
      }
    }
  }

  __device__ static __forceinline__ void add(float4 &o, float &total, float2 bound, float4 part, float highest) {
    const float weight = power_of_two(bound.x - highest);
    total += weight * bound.y;
    o.x += weight * part.x, o.y += weight * part.y, o.z += weight * part.z, o.w += weight * part.w;
  }

  __device__ __forceinline__ void write(int row, int query_head, int d, float4 o, float total) const {
    const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
    const uint2 packed = make_uint2(pack(o.x * inverse, o.y * inverse, T()), pack(o.z * inverse, o.w * inverse, T()));
    const int64_t head = int64_t(row) * args.heads * args.group + query_head;
    *reinterpret_cast<uint2 *>(args.out + head * D + d) = packed;
  }

  __device__ __forceinline__ bool is_last(int unit) const {
    const Parts parts = load_parts(unit);
    if (arrive(args.plan.arrivals + unit) + 1 < parts.count + (parts.shared_count_query & 0xffff)) return false;
    args.plan.arrivals[unit] = 0;
    return true;
  }
  __device__ __forceinline__ Parts load_parts(int unit) const {
    const int4 parts = __ldcg(reinterpret_cast<const int4 *>(args.plan.parts + unit));
    return {parts.x, parts.y, parts.z, parts.w};
  }

  // All parts of a (row, kv head), in order, to `out`. By the whole CTA.
  __device__ void collect(int row, int head) {
    constexpr int kAtOnce = 4;
    const Parts parts = load_parts(row * args.heads + head);
    const int shared_count = parts.shared_count_query & 0xffff, all = parts.count + shared_count;
    for (int at = threadIdx.x; at < args.group * (D / 4); at += kThreads) {
      const int query = at / (D / 4), d = at % (D / 4) * 4;
      const int64_t own_part = int64_t(parts.first) * args.group + query;
      const int64_t shared_part = args.tile_parts + int64_t(parts.shared_first) * kTileQueries +
                                  (parts.shared_count_query >> 16) + query;
      float highest = kNone, total = 0.0f;
      float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      for (int base = 0; base < all; base += kAtOnce) {
        float2 bound[kAtOnce];
        float4 part[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; i++) {
          const int n = base + i;
          const int64_t index = n < parts.count ? own_part + int64_t(n) * args.group
                                                : shared_part + int64_t(n - parts.count) * kTileQueries;
          bound[i] = make_float2(kNone, 0.0f);
          part[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (n < all) {
            bound[i] = __ldcg(args.bounds + index);
            part[i] = __ldcg(reinterpret_cast<const float4 *>(args.partials + index * D + d));
          }
        }
        float now = highest;
#pragma unroll
        for (int i = 0; i < kAtOnce; i++) now = fmaxf(now, bound[i].x);
        const float factor = power_of_two(highest - now);
        highest = now;
        total *= factor;
        o.x *= factor, o.y *= factor, o.z *= factor, o.w *= factor;
#pragma unroll
        for (int i = 0; i < kAtOnce; i++) add(o, total, bound[i], part[i], highest);
      }
      write(row, head * args.group + query, d, o, total);
    }
  }

  // Blocks of a tile: whole quads of whole blocks, by the plan.
  __device__ void tile(const Item &item) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int queries_of_tile = item.tile_rows() * args.group;
    Queries<T, D> queries[kTileN];
#pragma unroll
    for (int n = 0; n < kTileN; n++) {
      const int at = (warp * kTileN + n) * 8 + (lane >> 2);
      const T *from = nullptr;
      if (at < queries_of_tile) {
        const int row = __ldcg(args.plan.members + item.row + at / args.group);
        from = query(row, item.head() * args.group + at % args.group);
      }
      queries[n].start(from);
    }
    for (int block = item.begin; block < item.end; block += kQuad) {
      wait_for_all_but<L::kStages - 2>();
      __syncthreads();
      reader.next(free_stage());
      float s[kTileN][kQuad][4];
#pragma unroll
      for (int b = 0; b < kQuad; b++) {
        const uint32_t keys = reader.slot(stage, b);
#pragma unroll
        for (int n = 0; n < kTileN; n++) s[n][b][0] = s[n][b][1] = s[n][b][2] = s[n][b][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          uint32_t k[4];
          load_matrices(k, keys + L::offset(lane & 15, 2 * i + (lane >> 4)));
#pragma unroll
          for (int n = 0; n < kTileN; n++) multiply(s[n][b], k, queries[n].q[i], T());
        }
      }
#pragma unroll
      for (int n = 0; n < kTileN; n++) queries[n].weigh(s[n], args.scale);
#pragma unroll
      for (int b = 0; b < kQuad; b++) {
        const uint32_t keys = reader.slot(stage, b);
        uint32_t p[kTileN][2];
#pragma unroll
        for (int n = 0; n < kTileN; n++) turn(p[n], s[n][b]);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          uint32_t v[4];
          load_transposed(v, keys + value_offset(i));
#pragma unroll
          for (int n = 0; n < kTileN; n++) multiply(queries[n].o[i], v, p[n], T());
        }
      }
      step();
    }
#pragma unroll
    for (int n = 0; n < kTileN; n++) {
      queries[n].finish();
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = (warp * kTileN + n) * 8 + 2 * (lane & 3) + j;
        if (at >= queries_of_tile) continue;
        const int64_t part = args.tile_parts + int64_t(item.part) * kTileQueries + at;
        float *to = args.partials + part * D + (lane >> 2);
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
          __stcg(to + 16 * i, queries[n].o[i][j]);
          __stcg(to + 16 * i + 8, queries[n].o[i][j + 2]);
        }
        if (lane < 4) __stcg(args.bounds + part, make_float2(queries[n].maximum[j], queries[n].total[j]));
      }
    }
    __syncthreads();
    if (!args.fused) return;
    // Rows whose last part this was, as bits.
    unsigned *done = reinterpret_cast<unsigned *>(last);
    if (threadIdx.x < 2) done[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x < item.tile_rows()) {
      const int row = __ldcg(args.plan.members + item.row + threadIdx.x);
      if (is_last(row * args.heads + item.head())) atomicOr(done + threadIdx.x / 32, 1u << (threadIdx.x & 31));
    }
    __syncthreads();
    for (int word = 0; word < 2; word++)
      for (unsigned rest = done[word]; rest; rest &= rest - 1)
        collect(__ldcg(args.plan.members + item.row + word * 32 + __ffs(rest) - 1), item.head());
    __syncthreads();
  }

  __device__ void run() {
    reader.waited = !args.early;
    if (!args.early) wait_for_previous();
    Item item = load_item(args.plan.first + blockIdx.x);
    if (item.begin >= item.end) {
      wait_for_previous();
      return;
    }
    reader.open(item);
#pragma unroll
    for (int i = 0; i < L::kStages - 1; i++) reader.next(i);
    wait_for_previous();
    reader.waited = true;
    release_next();
    for (;;) {
      if (item.shared())
        tile(item);
      else
        own(item);
      if (!item.more()) break;
      item = load_item(args.plan.items + item.unit + blockIdx.x + 1);
    }
  }
};

template <typename T, int D>
__global__ void __launch_bounds__(kThreads, 2) decode_kernel(const __grid_constant__ Args<T> args) {
  extern __shared__ __align__(128) unsigned char shared[];
  Attention<T, D>(args, shared).run();
}

template <typename T, int D>
__global__ void __launch_bounds__(kThreads) collect_kernel(const __grid_constant__ Args<T> args) {
  extern __shared__ __align__(128) unsigned char shared[];
  wait_for_previous();
  release_next();
  Attention<T, D> attention(args, shared);
  const Parts parts = attention.load_parts(blockIdx.x);
  if (parts.count > 0) attention.collect(blockIdx.x / args.heads, blockIdx.x % args.heads);
}

template <typename T, int D> int run(const Args<T> &args, int ctas, int rows, cudaStream_t stream) {
  int code = launch(decode_kernel<T, D>, ctas, kThreads, Layout<T, D>::kBytes, stream, args);
  if (!args.fused && !code) code = launch(collect_kernel<T, D>, rows * args.heads, kThreads, 0, stream, args);
  return code;
}

template <typename T> int run(const Args<T> &args, int d, int ctas, int rows, cudaStream_t stream) {
  switch (d) {
    case 64: return run<T, 64>(args, ctas, rows, stream);
    case 96: return run<T, 96>(args, ctas, rows, stream);
    case 128: return run<T, 128>(args, ctas, rows, stream);
  }
  return int(cudaErrorInvalidValue);
}

}  // namespace
}  // namespace octavo

// q: [rows, g * k, d] by its strides; pool: [2, k, blocks, 16, d]; tables: [slots, width]; out: [rows, g * k * d].
extern "C" int octavo_decode(const void *q, const void *pool, void *out, const int *tables, void *first, void *items,
                             int *members, void *parts, int *arrivals, float *partials, void *bounds,
                             int64_t tile_parts, int64_t kv_stride, int64_t head_stride, int64_t q_stride,
                             int64_t q_head_stride, int width, int heads, int group, int d, int ctas, int early,
                             int fused, int rows, int dtype, cudaStream_t stream) {
  using namespace octavo;
  const Plan plan{static_cast<Item *>(first), static_cast<Item *>(items), members, static_cast<Parts *>(parts),
                  arrivals};
  auto with = [&](auto zero) {
    using T = decltype(zero);
    const Args<T> args{static_cast<const T *>(q), static_cast<const T *>(pool), static_cast<T *>(out), tables, plan,
                       partials, static_cast<float2 *>(bounds), tile_parts, kv_stride, head_stride, q_stride,
                       q_head_stride, width, heads, group, 1.4426950408889634f / sqrtf(float(d)), early, fused};
    return run(args, d, ctas, rows, stream);
  };
  if (dtype == kBf16) return with(bf16());
  if (dtype == kF16) return with(f16());
  return int(cudaErrorInvalidValue);
}
