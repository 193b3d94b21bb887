// Causal attention of new tokens over the paged pool on tensor cores, for 16-bit elements.
//
// A tile has up to 64 kWarpgroups rows: the g query heads of one kv head for up to rows / g consecutive queries of one
// row of the step, so that keys and values are fetched once for all g. One warp fetches (prefill_fetch.cuh) 128 or 160
// keys and as many values at a time; each of the other warpgroups owns 64 rows. In its turn at the tensor cores it asks
// for the scores of keys j and the products with values j - 1; its exponentials run beside these, and beside others'
// turns. (Shah 2024)
//
// Softmax is online (Milakov 2018): m is the greatest score seen, l the sum of 2^(c (s - m)), c = log2(e) / sqrt(d).
// m follows a greater score only when it is ahead by more than kSlack, so that rescaling is rare; l shares the stale m,
// so the result is the same. Of a window (kWindow), the first keys of a tile may be before all that a row sees: its m is
// -inf then, and what follows begins anew. A tile with a part of the keys leaves its m, l and sums in memory; whoever comes last of
// the parts adds them up. (Dao 2023, flash decoding)
//
// Why not Triton: of four tile shapes its best reached 367 (d = 64) and 364 TFLOP/s (d = 128) for two prompts of 4,096,
// 32 heads over 8, on the H100 where this reaches 480 and 590 (benchmarks/kernels/prefill.py).
#pragma once

#include "prefill_fetch.cuh"

namespace octavo {

template <class S, bool kWindow> struct PrefillConsumer {
  using T = typename S::Element;
  using Queries = Described<S::kRowBytes, 8 * S::kRowBytes>;
  typename S::Shared &shared;
  const Described<S::kRowBytes, S::kOctetBytes> all_keys{shared.k};
  const Described<S::kRowBytes, S::kOctetBytes, 8 * S::kRowBytes> all_values{shared.v};
  const float scale;
  const unsigned window;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;  // the same in all lanes, for the compiler
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  static constexpr float kSlack = 8.0f;  // powers of two

  float scores[S::kKeys / 2], out[S::kDim / 2];
  uint32_t weights[S::kKeys / 4];  // the probabilities of the previous keys, as the first operand of a product
  float greatest[2], sum[2], shrink[2];
  int position[2];  // of the two rows that this thread has a part of
  Ring<S::kStages> keys, values;
  bool added;

  __device__ PrefillConsumer(typename S::Shared &shared, const PrefillParams &params)
      : shared(shared), scale(params.scale), window(params.window) {}

  // The tensor cores go round the warpgroups.
  __device__ void turn_begin() {
    if (S::kWarpgroups > 1) named_sync(1 + warpgroup, 256);
  }
  __device__ void turn_end() {
    if (S::kWarpgroups > 1) named_arrive(1 + (warpgroup + 1) % S::kWarpgroups, 256);
  }
  __device__ void release(uint64_t *empty) {
    __syncwarp();
    if (lane == 0) barrier_arrive(empty);
  }

  __device__ __forceinline__ void score(const Queries &q) {
    const int k = keys.at * S::kKeyBytes;
    products_begin();
#pragma unroll
    for (int step = 0; step < S::kDim / 16; ++step) {
      const int chunk = step * 16 / S::kChunk, byte = step * 16 % S::kChunk * 2;
      Product<T, S::kKeys>::shared_shared(scores, q.at(chunk * S::kRows * S::kRowBytes + byte),
                                          all_keys.at(k + chunk * 8 * S::kRowBytes + byte), step > 0);
    }
    products_commit();
  }

  __device__ __forceinline__ void gather() {
    const int v = values.at * S::kKeyBytes;
    products_begin();
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step)
      Product<T, S::kDim>::register_shared(out, weights + 4 * step, all_values.at(v + step * 2 * S::kOctetBytes),
                                           step > 0 || added);
    added = true;
    products_commit();
  }

  static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

  template <bool kMasked> __device__ __forceinline__ void soften(int first_key) {
    if (kMasked) {
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; ++i) {
        const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        // As unsigned, a later key is beyond any window.
        const bool hidden = kWindow ? unsigned(position[i / 2 % 2] - key) >= window : key > position[i / 2 % 2];
        if (hidden) scores[i] = -INFINITY;
      }
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      // Two chains each, of even and odd columns: a warp has no other to hide the latency of one.
      float most = scores[2 * row], odd_most = scores[2 * row + 1];
#pragma unroll
      for (int i = 4; i < S::kKeys / 2; i += 4) {
        most = fmaxf(most, scores[i + 2 * row]);
        odd_most = fmaxf(odd_most, scores[i + 2 * row + 1]);
      }
      most = fmaxf(most, odd_most);
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      // Without a window the first keys are seen by every row, so `most` is finite from then on.
      const bool ahead = (most - greatest[row]) * scale > kSlack;
      shrink[row] = ahead ? power_of_two((greatest[row] - most) * scale) : 1.0f;
      if (ahead) greatest[row] = most;
      const float offset = kWindow && greatest[row] == -INFINITY ? 0.0f : greatest[row] * scale;
      float part[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = 2 * row; i < S::kKeys / 2; i += 4) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          scores[i + j] = power_of_two(fmaf(scores[i + j], scale, -offset));
          part[j] += scores[i + j];
        }
      }
      sum[row] = sum[row] * shrink[row] + (part[0] + part[1]);
    }
  }

  __device__ __forceinline__ void rescale() {
    if (!__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] *= shrink[i / 2 % 2];
  }

  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i) weights[i] = pair(scores[2 * i], scores[2 * i + 1]);
  }
  static __device__ __forceinline__ uint32_t pair(float low, float high) {
    uint32_t both;
    if constexpr (sizeof(T) == 2 && __is_same(T, bf16))
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }

  // Keeps what reads or writes these registers on its side of this line; the compiler knows nothing of wgmma.
  template <int kSize> __device__ __forceinline__ void pin(float (&registers)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(registers[i])::"memory");
  }
  template <int kPending, int kSize> __device__ __forceinline__ void await(float (&made)[kSize]) {
    products_wait<kPending>();
    pin(made);
  }

  template <bool kMasked> __device__ __forceinline__ void advance(const Queries &q, int first_key) {
    barrier_wait(&shared.k_full[keys.at], keys.filled);
    turn_begin();
    score(q);
    gather();
    turn_end();
    await<1>(scores);
    release(&shared.k_empty[keys.at]);
    ++keys;
    soften<kMasked>(first_key);
    // Sums are never negative, but the assembler cannot know, and would put the exponentials after the wait for the
    // products that they should run beside.
    Ring<S::kStages> next = values;
    ++next;
    barrier_wait(&shared.v_full[next.at], next.filled ^ uint32_t(fminf(sum[0], sum[1]) < 0.0f));
    await<0>(out);
    release(&shared.v_empty[values.at]);
    values = next;
    rescale();
    pack();
  }

  // Values after the last key may be anything, also not a number, which a weight of 0 would not silence.
  __device__ void clear_after(int rows) {
    constexpr int kUnits = S::kRowBytes / 16;
    char *v = reinterpret_cast<char *>(shared.v[values.at]);
    for (int unit = threadIdx.x % 128; unit < (S::kKeys - rows) * S::kChunks * kUnits; unit += 128) {
      const int row = rows + unit / (S::kChunks * kUnits), chunk = unit / kUnits % S::kChunks;
      char *to = v + row / 8 * S::kOctetBytes + (chunk * 8 + row % 8) * S::kRowBytes + unit % kUnits * 16;
      *reinterpret_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
    }
    fence_async();
    sync();
  }

  __device__ __forceinline__ void sync() { named_sync(1 + S::kWarpgroups + warpgroup, 128); }

  __device__ __forceinline__ float total(int row) const {
    float all = sum[row];
    all += __shfl_xor_sync(0xffffffffu, all, 1);
    all += __shfl_xor_sync(0xffffffffu, all, 2);
    return all;
  }

  // 16 bytes of the result.
  __device__ __forceinline__ uint4 *place(const Tile &tile, int head, int query, int member, int unit,
                                          const PrefillParams &params) const {
    T *to = static_cast<T *>(params.out) + int64_t(tile.token + query) * params.out_stride +
            (head * params.group + member) * S::kDim + unit * 8;
    return reinterpret_cast<uint4 *>(to);
  }

  // Through the space of the tile's own queries, so that 16 bytes are written at a time.
  __device__ __forceinline__ void finish(const Tile &tile, int head, int slot, const PrefillParams &params) {
    sync();  // all four warps have done with the queries
    char *space = reinterpret_cast<char *>(shared.q[slot]);
    const auto at = [&](int row, int unit) {  // unit: 16 bytes of the row
      constexpr int kUnits = S::kRowBytes / 16;
      const int low = unit % kUnits ^ (S::kRowBytes == 128 ? row % 8 : row / 2 % 4);
      return space + (unit / kUnits * S::kRows + row) * S::kRowBytes + low * 16;
    };
    const int first = warpgroup * 64 + warp * 16;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float part = 1.0f / total(row);
#pragma unroll
      for (int i = 0; i < S::kDim / 8; ++i)
        *reinterpret_cast<uint32_t *>(at(first + row * 8 + lane / 4, i) + lane % 4 * 4) =
            pair(out[4 * i + 2 * row] * part, out[4 * i + 2 * row + 1] * part);
    }
    __syncwarp();
    constexpr int kUnits = S::kDim / 8;
    for (int unit = lane; unit < 16 * kUnits; unit += 32) {
      const int row = first + unit / kUnits, query = row / params.group, member = row % params.group;
      if (!is_mine(query, tile, params)) continue;
      *place(tile, head, query, member, unit % kUnits, params) = *reinterpret_cast<const uint4 *>(at(row, unit % kUnits));
    }
  }

  static __device__ __forceinline__ bool is_mine(int query, const Tile &tile, const PrefillParams &params) {
    return query < tile.queries && query < S::kRows / params.group;
  }

  // The part's result, relative to its greatest score; then the sum of all parts, if they are there.
  __device__ __forceinline__ void leave(const Tile &tile, int head, const PrefillParams &params) {
    const int64_t unit = int64_t(tile.place + tile.part) * params.kv_heads + head;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warpgroup * 64 + warp * 16 + i * 8 + lane / 4;
      const float weight = total(i);
      if (!is_mine(row / params.group, tile, params)) continue;
      float *to = params.sums + (unit * S::kRows + row) * S::kDim + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < S::kDim / 8; ++j)
        __stcg(reinterpret_cast<float2 *>(to + 8 * j), make_float2(out[4 * j + 2 * i], out[4 * j + 2 * i + 1]));
      if (lane % 4 == 0) __stcg(params.bounds + unit * S::kRows + row, make_float2(greatest[i] * scale, weight));
    }
    sync();
    if (threadIdx.x % 128 == 0) {
      int *arrivals = params.arrivals + (int64_t(tile.place) * params.kv_heads + head) * S::kWarpgroups + warpgroup;
      int before;
      asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
      shared.last[warpgroup] = before + 1 == tile.parts;
      if (before + 1 == tile.parts) *arrivals = 0;
    }
    sync();
    if (shared.last[warpgroup]) merge(tile, head, params);
  }

  __device__ __forceinline__ void merge(const Tile &tile, int head, const PrefillParams &params) {
    constexpr int kUnits = S::kDim / 8;
    for (int unit = threadIdx.x % 128; unit < 64 * kUnits; unit += 128) {
      const int row = warpgroup * 64 + unit / kUnits, query = row / params.group;
      if (!is_mine(query, tile, params)) continue;
      const int64_t first = (int64_t(tile.place) * params.kv_heads + head) * S::kRows + row;
      const int64_t stride = int64_t(params.kv_heads) * S::kRows;
      float most = -INFINITY, weights = 0.0f, sums[8] = {};
      for (int part = 0; part < tile.parts; ++part)
        most = fmaxf(most, __ldcg(&params.bounds[first + part * stride].x));
      for (int part = 0; part < tile.parts; ++part) {
        const int64_t at = first + part * stride;
        const float2 bound = __ldcg(params.bounds + at);
        const float4 *from = reinterpret_cast<const float4 *>(params.sums + at * S::kDim) + unit % kUnits * 2;
        const float4 low = __ldcg(from), high = __ldcg(from + 1);
        const float weight = power_of_two(bound.x - most);
        weights += weight * bound.y;
        sums[0] += weight * low.x, sums[1] += weight * low.y, sums[2] += weight * low.z, sums[3] += weight * low.w;
        sums[4] += weight * high.x, sums[5] += weight * high.y, sums[6] += weight * high.z, sums[7] += weight * high.w;
      }
      const float part = 1.0f / weights;
      *place(tile, head, query, row % params.group, unit % kUnits, params) =
          make_uint4(pair(sums[0] * part, sums[1] * part), pair(sums[2] * part, sums[3] * part),
                     pair(sums[4] * part, sums[5] * part), pair(sums[6] * part, sums[7] * part));
    }
  }

  // The keys that the warpgroup's own rows need; it passes the turns and the stages of those it does not.
  __device__ __forceinline__ void attend(const Tile &tile, int head, int slot, const PrefillParams &params) {
    const int first_row = warpgroup * 64, queries = min(tile.queries, (first_row + 63) / params.group + 1);
    const int length = tile.end - tile.begin, all = (length + S::kKeys - 1) / S::kKeys;
    const int ahead = tile.position - tile.begin;  // keys of this range before the first query's own
    const bool idle = first_row / params.group >= tile.queries;
    const int needed = idle ? 0 : min(all, (ahead + queries + S::kKeys - 1) / S::kKeys);
    const int clear = min((ahead + first_row / params.group + 1) / S::kKeys, needed);  // wholly before the first row
    // Of a window, those that the last query does not see all of.
    const int veiled = kWindow ? max(0, ahead + queries - int(window) + S::kKeys - 1) / S::kKeys : 0;
    if (needed > 0) {
      const Queries q(reinterpret_cast<char *>(shared.q[slot]) + first_row * S::kRowBytes);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        position[row] = tile.position + (first_row + warp * 16 + row * 8 + lane / 4) / params.group;
        greatest[row] = -INFINITY;
        sum[row] = 0.0f;
      }
      added = false;
      barrier_wait(&shared.k_full[keys.at], keys.filled);
      turn_begin();
      score(q);
      turn_end();
      await<0>(scores);
      release(&shared.k_empty[keys.at]);
      ++keys;
      if (clear > 0 && veiled == 0) soften<false>(tile.begin); else soften<true>(tile.begin);
      barrier_wait(&shared.v_full[values.at], values.filled);
      pack();
      int j = 1;
      if (kWindow)
        for (; j < min(veiled, needed); ++j) advance<true>(q, tile.begin + j * S::kKeys);
      for (; j < clear; ++j) advance<false>(q, tile.begin + j * S::kKeys);
      for (; j < needed; ++j) advance<true>(q, tile.begin + j * S::kKeys);
      if (needed == all && length % S::kKeys) clear_after(length % S::kKeys);
      gather();
      await<0>(out);
      release(&shared.v_empty[values.at]);
      ++values;
      if (tile.parts == 1) finish(tile, head, slot, params); else leave(tile, head, params);
    }
    for (int j = needed; j < all; ++j) {
      turn_begin();
      turn_end();
      barrier_wait(&shared.k_full[keys.at], keys.filled);
      release(&shared.k_empty[keys.at]);
      ++keys;
      barrier_wait(&shared.v_full[values.at], values.filled);
      release(&shared.v_empty[values.at]);
      ++values;
    }
  }

  __device__ void run(const PrefillParams &params) {
    if (S::kWarpgroups > 1 && warpgroup == S::kWarpgroups - 1) turn_end();  // the first turn is warpgroup 0's
    for (Ring<2> tiles;; ++tiles) {
      const int slot = tiles.at;
      barrier_wait(&shared.q_full[slot], tiles.filled);
      const Tile tile = shared.tile[slot];
      if (tile.queries == 0) return;
      attend(tile, shared.head[slot], slot, params);
      fence_async();
      release(&shared.q_empty[slot]);
    }
  }
};

template <class S, bool kWindow>
__global__ __launch_bounds__(S::kThreads, 1) void prefill_tensor(const __grid_constant__ CUtensorMap queries,
                                                                 const __grid_constant__ CUtensorMap pool,
                                                                 const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(1024) char space[];
  auto &shared = *reinterpret_cast<typename S::Shared *>(space);
  if (threadIdx.x == 0) {
    prefetch_map(&queries);
    prefetch_map(&pool);
    constexpr int kWarps = 4 * S::kWarpgroups;
    for (int i = 0; i < 2; ++i) barrier_init(&shared.q_full[i], 1), barrier_init(&shared.q_empty[i], kWarps);
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(&shared.k_full[i], 1), barrier_init(&shared.k_empty[i], kWarps);
      barrier_init(&shared.v_full[i], 1), barrier_init(&shared.v_empty[i], kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous();
  release_next();
  if (threadIdx.x < 128) {
    give_registers<S::kGive>();
    if (threadIdx.x < 32) prefill_fetch<S>(shared, &queries, &pool, params);
  } else {
    take_registers<S::kTake>();
    PrefillConsumer<S, kWindow>(shared, params).run(params);
  }
}

}  // namespace octavo
