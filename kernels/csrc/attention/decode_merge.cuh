// Results of parts of a row's tokens, each relative to its own highest score, and their sum.
#pragma once

#include "decode_mma.cuh"
#include "decode_reader.cuh"

namespace octavo {

template <typename T> struct Merge {
  T *out;
  Plan plan;
  float *partials;     // [parts, d]: first those of rows, g a part, then those of tiles, kTileQueries a part
  float2 *bounds;      // [parts]: maximum and total
  int64_t tile_parts;  // where those of tiles begin
  int heads, group;    // heads: of keys
};

// Four of d.
struct Sum {
  float4 o = {0.0f, 0.0f, 0.0f, 0.0f};
  float maximum = kNone, total = 0.0f;

  __device__ __forceinline__ void raise(float to) {
    const float factor = power_of_two(maximum - to);
    maximum = to;
    total *= factor;
    o.x *= factor, o.y *= factor, o.z *= factor, o.w *= factor;
  }
  // bound.x may not exceed `maximum`.
  __device__ __forceinline__ void add(float2 bound, float4 part) {
    const float weight = power_of_two(bound.x - maximum);
    total += weight * bound.y;
    o.x += weight * part.x, o.y += weight * part.y, o.z += weight * part.z, o.w += weight * part.w;
  }
};

template <typename T, int D>
__device__ __forceinline__ void write(const Merge<T> &m, int row, int query_head, int d, const Sum &sum) {
  const float inverse = sum.total > 0.0f ? 1.0f / sum.total : 0.0f;
  const uint32_t low = pack(sum.o.x * inverse, sum.o.y * inverse, T());
  const uint2 packed = make_uint2(low, pack(sum.o.z * inverse, sum.o.w * inverse, T()));
  const int64_t head = int64_t(row) * m.heads * m.group + query_head;
  *reinterpret_cast<uint2 *>(m.out + head * D + d) = packed;
}

template <typename T> __device__ __forceinline__ Parts load_parts(const Merge<T> &m, int unit) {
  const int4 parts = __ldcg(reinterpret_cast<const int4 *>(m.plan.parts + unit));
  return {parts.x, parts.y, parts.z, parts.w};
}

// How many parts of the unit arrived before. What they wrote is seen by whoever arrives last.
template <typename T> __device__ __forceinline__ int arrive(const Merge<T> &m, int unit) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(m.plan.arrivals + unit) : "memory");
  return before;
}

// By one thread, of the part that was `before`th: if it is the last, the unit is to be collected.
template <typename T>
__device__ __forceinline__ void note(const Merge<T> &m, Arrived &arrived, int side, int unit, const Parts &parts,
                                     int before) {
  if (before + 1 < parts.count + parts.shared_count()) return;
  m.plan.arrivals[unit] = 0;
  const int at = atomicAdd(arrived.count + side, 1);
  arrived.units[at] = unit;
  arrived.parts[at] = parts;
}

// A warp's result to shared memory. to: [g][kStride]; bounds: [g].
template <typename T, int D>
__device__ __forceinline__ void leave(const Result<D> &result, int group, float *to, float2 *bounds) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int query = 2 * (lane & 3) + j;
    if (query >= group) continue;
    float *at = to + query * Layout<T, D>::kStride + (lane >> 2);
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
      at[16 * i] = result.o[i][j];
      at[16 * i + 8] = result.o[i][j + 2];
    }
    if (lane < 4) bounds[query] = make_float2(result.maximum[j], result.total[j]);
  }
}

// The warps' results at one place of d. from: [warps][g][kStride]; bounds: [warps][g].
template <typename T, int D>
__device__ __forceinline__ Sum merged(int group, int query, int d, const float *from, const float2 *bounds) {
  Sum sum;
#pragma unroll
  for (int w = 0; w < kWarps; w++) sum.maximum = fmaxf(sum.maximum, bounds[w * group + query].x);
#pragma unroll
  for (int w = 0; w < kWarps; w++) {
    const int index = w * group + query;
    sum.add(bounds[index], *reinterpret_cast<const float4 *>(from + index * Layout<T, D>::kStride + d));
  }
  return sum;
}

// The warps' results, merged, to `out` or to the item's part. By the whole CTA.
template <typename T, int D>
__device__ __forceinline__ void put(const Merge<T> &m, const Item &item, const float *from, const float2 *bounds) {
  for (int at = threadIdx.x; at < m.group * (D / 4); at += kThreads) {
    const int query = at / (D / 4), d = at % (D / 4) * 4;
    const Sum sum = merged<T, D>(m.group, query, d, from, bounds);
    if (item.part < 0) {
      write<T, D>(m, item.row, item.head() * m.group + query, d, sum);
    } else {
      const int64_t part = int64_t(item.part) * m.group + query;
      __stcg(reinterpret_cast<float4 *>(m.partials + part * D + d), sum.o);
      if (d == 0) __stcg(m.bounds + part, make_float2(sum.maximum, sum.total));
    }
  }
}

// What the pieces of a unit send to the CTA that has the first: parts [kCluster][g][d], bounds [kCluster][g].
struct Mailbox {
  float *parts;
  float2 *bounds;
  uint32_t barrier;

  template <int D> static int bytes(int group) {
    return kCluster * group * (D * int(sizeof(float)) + int(sizeof(float2))) + 8;
  }

  __device__ Mailbox(unsigned char *at, int group, int d)
      : parts(reinterpret_cast<float *>(at)), bounds(reinterpret_cast<float2 *>(parts + kCluster * group * d)),
        barrier(uint32_t(__cvta_generic_to_shared(bounds + kCluster * group))) {}

  // All CTAs at once; those that send or receive, joined() before they do.
  __device__ void join() const {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier)
                   : "memory");
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  }
  __device__ void joined() const { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

  __device__ void wait_for(int bytes) const {
    if (threadIdx.x == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
        "@!done bra again;\n}" ::"r"(barrier) : "memory");
  }
};

__device__ __forceinline__ uint32_t of_peer(uint32_t address, int rank) {
  uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(rank));
  return at;
}

// As put(), where the unit's other pieces are in the CTAs beside this one.
template <typename T, int D>
__device__ void put_in_cluster(const Merge<T> &m, const Item &item, const float *from, const float2 *bounds,
                               const Mailbox &mailbox) {
  const int vectors = m.group * (D / 4), receiver = blockIdx.x % kCluster - item.part;
  const uint32_t barrier = of_peer(mailbox.barrier, receiver);
  for (int at = threadIdx.x; at < vectors; at += kThreads) {
    const int query = at / (D / 4), d = at % (D / 4) * 4;
    const Sum sum = merged<T, D>(m.group, query, d, from, bounds);
    const float *to = mailbox.parts + (item.part * vectors + at) * 4;
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     of_peer(uint32_t(__cvta_generic_to_shared(to)), receiver)),
                 "f"(sum.o.x), "f"(sum.o.y), "f"(sum.o.z), "f"(sum.o.w), "r"(barrier)
                 : "memory");
    if (d == 0)
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(of_peer(
                       uint32_t(__cvta_generic_to_shared(mailbox.bounds + item.part * m.group + query)), receiver)),
                   "f"(sum.maximum), "f"(sum.total), "r"(barrier)
                   : "memory");
  }
  if (item.part != 0) return;
  const int pieces = item.pieces();
  mailbox.wait_for(pieces * (vectors * int(sizeof(float4)) + m.group * int(sizeof(float2))));
  for (int at = threadIdx.x; at < vectors; at += kThreads) {
    const int query = at / (D / 4), d = at % (D / 4) * 4;
    Sum sum;
    for (int i = 0; i < pieces; i++) sum.maximum = fmaxf(sum.maximum, mailbox.bounds[i * m.group + query].x);
    for (int i = 0; i < pieces; i++)
      sum.add(mailbox.bounds[i * m.group + query], reinterpret_cast<const float4 *>(mailbox.parts)[i * vectors + at]);
    write<T, D>(m, item.row, item.head() * m.group + query, d, sum);
  }
}

// Every `ways`th part of a query from `first` on, at d.
template <typename T, int D>
__device__ __forceinline__ Sum collected(const Merge<T> &m, const Parts &parts, int query, int d, int first, int ways) {
  constexpr int kAtOnce = 8;
  const int all = parts.count + parts.shared_count();
  const int64_t own = int64_t(parts.first) * m.group + query;
  const int64_t shared = m.tile_parts + int64_t(parts.shared_first) * kTileQueries + parts.tile_query() + query;
  Sum sum;
  for (int base = first; base < all; base += kAtOnce * ways) {
    float2 bound[kAtOnce];
    float4 part[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int n = base + i * ways;
      const int64_t at =
          n < parts.count ? own + int64_t(n) * m.group : shared + int64_t(n - parts.count) * kTileQueries;
      bound[i] = n < all ? __ldcg(m.bounds + at) : make_float2(kNone, 0.0f);
      part[i] = n < all ? __ldcg(reinterpret_cast<const float4 *>(m.partials + at * D + d))
                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float highest = sum.maximum;
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) highest = fmaxf(highest, bound[i].x);
    sum.raise(highest);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) sum.add(bound[i], part[i]);
  }
  return sum;
}

// All parts of each of `units` (row, kv head) pairs, in order, to `out`. By the whole CTA; scratch: 24 bytes a thread.
template <typename T, int D>
__device__ void collect(const Merge<T> &m, const Parts *parts, const int *units, int count, float *scratch) {
  const int vectors = m.group * (D / 4), all = count * vectors;
  if (2 * all > kThreads) {
    for (int at = threadIdx.x; at < all; at += kThreads) {
      const int unit = units[at / vectors], query = at % vectors / (D / 4), d = at % (D / 4) * 4;
      const Sum sum = collected<T, D>(m, parts[at / vectors], query, d, 0, 1);
      write<T, D>(m, unit / m.heads, unit % m.heads * m.group + query, d, sum);
    }
    return;
  }
  // Few enough for two threads each.
  const int way = threadIdx.x / all, at = threadIdx.x % all, query = at % vectors / (D / 4), d = at % (D / 4) * 4;
  float4 *o = reinterpret_cast<float4 *>(scratch);
  float2 *bounds = reinterpret_cast<float2 *>(o + all);
  Sum sum;
  if (way < 2) sum = collected<T, D>(m, parts[at / vectors], query, d, way, 2);
  if (way == 1) o[at] = sum.o, bounds[at] = make_float2(sum.maximum, sum.total);
  __syncthreads();
  if (way == 0) {
    const float2 bound = bounds[at];
    sum.raise(fmaxf(sum.maximum, bound.x));
    sum.add(bound, o[at]);
    const int unit = units[at / vectors];
    write<T, D>(m, unit / m.heads, unit % m.heads * m.group + query, d, sum);
  }
}

}  // namespace octavo
