// The warpgroups of gemm.cu that multiply, add the sums of a cluster's CTAs, and write results.
#pragma once

#include "gemm_fetch.cuh"

namespace octavo {

// Of 16 rows and 8 tokens, what a lane reads and writes in memory: 2 columns, and 2 that are 8 further, of a token.
template <typename T> struct Spot {
  T *to;
  bool low, high;  // which pairs exist
  int first;       // column of the unit
  __device__ __forceinline__ Spot(const Params &params, int unit_column, int token) : first(unit_column) {
    const int lane = threadIdx.x % 32;
    token += lane / 4;
    to = static_cast<T *>(params.out) + token * params.out_stride + unit_column + 2 * (lane % 4);
    low = token < params.tokens && unit_column < params.n;
    high = token < params.tokens && unit_column + 8 < params.n;
  }
  __device__ __forceinline__ uint2 before() const {
    return make_uint2(low ? *reinterpret_cast<const uint32_t *>(to) : 0,
                      high ? *reinterpret_cast<const uint32_t *>(to + 8) : 0);
  }
  __device__ __forceinline__ void write(uint32_t pair) const {
    if (low) *reinterpret_cast<uint32_t *>(to) = pair;
  }
  __device__ __forceinline__ void write_high(uint32_t pair) const {
    if (high) *reinterpret_cast<uint32_t *>(to + 8) = pair;
  }
};

__device__ __forceinline__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

// d: rows lane / 4 and lane / 4 + 8 of a unit, each with the tokens 2 (lane % 4) and the next. Whole warps.
template <typename T>
__device__ __forceinline__ void finish(const Params &params, const Spot<T> &spot, uint2 before, float4 d) {
  if (params.mode == kSiluMul) {
    spot.write(transposed(pair_of(silu(d.x) * d.z, silu(d.y) * d.w, T())));
    return;
  }
  if (params.bias != nullptr) {
    const T *bias = static_cast<const T *>(params.bias);
    const int row = spot.first + threadIdx.x % 32 / 4;
    const float low = row < params.n ? to_float(bias[row]) : 0.0f;
    const float high = row + 8 < params.n ? to_float(bias[row + 8]) : 0.0f;
    d.x += low, d.y += low, d.z += high, d.w += high;
  }
  if (params.mode == kAdd) {
    const float2 low = halves_of<T>(transposed(before.x)), high = halves_of<T>(transposed(before.y));
    d.x += low.x, d.y += low.y, d.z += high.x, d.w += high.y;
  }
  spot.write(transposed(pair_of(d.x, d.y, T())));
  spot.write_high(transposed(pair_of(d.z, d.w, T())));
}

template <class S> struct Multiplier {
  using T = typename S::Element;
  using Rows = Described<S::kRowBytes, 8 * S::kRowBytes>;
  typename S::Shared &shared;
  const Params &params;
  const Share share;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);  // the same in all lanes, for the compiler
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const Rows weight{shared.weight}, x{shared.x};
  Ring<S::kStages> stage;
  float sums[S::kParts][S::kTokens / 2];

  __device__ __forceinline__ void release(int which) const {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[which]);
  }
  // Keeps what reads or writes the sums on its side of this line; the compiler knows nothing of wgmma.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int part = 0; part < S::kParts; ++part)
#pragma unroll
      for (int i = 0; i < S::kTokens / 2; ++i) asm volatile("" : "+f"(sums[part][i])::"memory");
  }

  __device__ __forceinline__ void multiply() {
    int previous = -1, left = share.end - share.begin;  // at least one
#pragma unroll
    for (int part = 0; part < S::kParts; ++part)
#pragma unroll
      for (int i = 0; i < S::kTokens / 2; ++i) sums[part][i] = 0.0f;
    pin();
#pragma unroll 1
    do {
      barrier_wait(&shared.full[stage.at], stage.filled);
      const int row_byte = stage.at * S::kWeightBytes + warpgroup * S::kParts * 64 * S::kRowBytes;
      products_begin();
#pragma unroll
      for (int k = 0; k < S::kStep / 16; ++k)
#pragma unroll
        for (int part = 0; part < S::kParts; ++part)
          Product<T, S::kTokens>::shared_shared(sums[part], weight.at(row_byte + part * 64 * S::kRowBytes + k * 32),
                                                x.at(stage.at * S::kTokenBytes + k * 32), 1);
      products_commit();
      products_wait<1>();
      if (previous >= 0) release(previous);
      previous = stage.at;
      ++stage;
    } while (--left > 0);
    products_wait<0>();
    pin();
    release(previous);
  }

  __device__ __forceinline__ int unit(int part) const { return (warpgroup * S::kParts + part) * 4 + warp; }

  // Where results go: the first column of a tile and its first token.
  struct Corner {
    int column, token, height;  // height: columns of a unit
    __device__ __forceinline__ Corner(const Params &params, int tile) {
      const int row_tile = tile / params.token_tiles;
      height = params.mode == kSiluMul ? 8 : 16;
      column = row_tile * S::kUnits * height;
      token = (tile - row_tile * params.token_tiles) * S::kTokens;
    }
  };
  __device__ __forceinline__ Spot<T> spot(const Corner &corner, int unit, int block) const {
    return Spot<T>(params, corner.column + unit * corner.height, corner.token + block * 8);
  }

  __device__ __forceinline__ void run_alone() {
    constexpr int kBatch = S::kParts * S::kTokens > 128 ? 2 : 4;  // reads in flight before the first write
    for (int tile = share.tile; tile < params.tiles; tile += share.stride) {
      multiply();
      const Corner corner(params, tile);
#pragma unroll
      for (int part = 0; part < S::kParts; ++part)
#pragma unroll
        for (int first = 0; first < S::kBlocks; first += kBatch) {
          uint2 before[kBatch] = {};
          if (params.mode == kAdd)
#pragma unroll
            for (int i = 0; i < kBatch; ++i) before[i] = spot(corner, unit(part), first + i).before();
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            const float *d = sums[part] + 4 * (first + i);
            finish(params, spot(corner, unit(part), first + i), before[i], make_float4(d[0], d[1], d[2], d[3]));
          }
        }
    }
  }

  // In a cluster, rank r owns the units r, r + split, ..; of each, a warp finishes every eighth block of 8 tokens.
  static constexpr int kTurns = S::kBlocks > S::kWarps ? S::kBlocks / S::kWarps : 1;
  struct Before {
    uint2 at[kTurns];
  };

  __device__ __forceinline__ float4 *received(int rank, int own, int block) const {
    return reinterpret_cast<float4 *>(&shared) + ((rank * params.owned + own) * S::kBlocks + block) * 32 + lane;
  }
  __device__ __forceinline__ Before read_before(const Corner &corner, int own, int used) const {
    Before before = {};
    const int row = own * params.split + share.rank, first = warpgroup * 4 + warp;
    if (params.mode != kAdd || row >= S::kUnits) return before;
#pragma unroll
    for (int i = 0; i < kTurns; ++i)
      if (first + i * S::kWarps < used) before.at[i] = spot(corner, row, first + i * S::kWarps).before();
    return before;
  }

  __device__ __forceinline__ void run_shared() {
    const Corner corner(params, share.tile);
    const int used = min(S::kBlocks, (params.tokens - corner.token + 7) / 8);
    const int owns = (S::kUnits - share.rank + params.split - 1) / params.split;
    if (threadIdx.x == 0) barrier_expect(&shared.gathered, params.split * owns * used * 512);
    Before next = read_before(corner, 0, used);
    multiply();
    cluster_sync();  // no CTA has use for its stages any more
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
      const int own = unit(part) / params.split, owner = unit(part) - own * params.split;
      float4 *to = received(share.rank, own, 0);
#pragma unroll
      for (int block = 0; block < S::kBlocks; ++block)
        if (block < used) send_in_cluster(to + block * 32, &shared.gathered, owner, sums[part] + 4 * block);
    }
    barrier_wait(&shared.gathered, 0);
#pragma unroll 1
    for (int own = 0; own < owns; ++own) {
      const Before before = next;
      next = read_before(corner, own + 1, used);
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        const int block = warpgroup * 4 + warp + i * S::kWarps;
        if (block >= used) break;
        float4 total = *received(0, own, block);
        for (int rank = 1; rank < params.split; ++rank) {
          const float4 more = *received(rank, own, block);
          total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
        }
        finish(params, spot(corner, own * params.split + share.rank, block), before.at[i], total);
      }
    }
  }
};

}  // namespace octavo
