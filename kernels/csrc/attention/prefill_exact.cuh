// Causal attention of new tokens over the paged pool in float32 throughout, for models that ask for exactness.
//
// Tiles are those of prefill_tensor.cuh, and so is the softmax, but m follows every greater score. A block has 64 rows
// and takes 64 keys at a time through shared memory. Of its 256 threads, 16 share a row: each has 4 rows, and of every
// 64 keys, and of d, one part in 16.
#pragma once

#include "prefill_tensor.cuh"

namespace octavo {

constexpr int kExactRows = 64, kExactKeys = 64, kExactThreads = 256;

template <int kDim> struct ExactShared {
  static constexpr int kPitch = kDim + 4;  // 16 rows, read side by side, must not share a bank
  float q[kExactRows][kPitch], k[kExactKeys][kPitch], v[kExactKeys][kPitch], weights[kExactRows][kExactKeys + 4];
};

template <int kDim>
__global__ __launch_bounds__(kExactThreads) void prefill_exact(const float *queries, const float *pool, int q_stride,
                                                               PrefillParams params) {
  extern __shared__ __align__(1024) char space[];
  auto &shared = *reinterpret_cast<ExactShared<kDim> *>(space);
  constexpr int kUnits = kDim / 4, kBlock = 16;
  const int part = threadIdx.x % 16, first_row = threadIdx.x / 16 * 4;
  wait_for_previous();
  release_next();
  const int total = params.head[0] * params.kv_heads, fill = kExactRows / params.group;
  for (int work = blockIdx.x; work < total; work += gridDim.x) {
    const Tile tile = params.tiles[work / params.kv_heads];  // with all its keys
    const int head = work % params.kv_heads, length = tile.end;
    const int *table = params.tables + int64_t(tile.slot) * params.width;
    __syncthreads();
    for (int unit = threadIdx.x; unit < kExactRows * kUnits; unit += kExactThreads) {
      const int row = unit / kUnits, at = unit % kUnits * 4, query = min(row / params.group, fill - 1);
      float4 value = make_float4(0, 0, 0, 0);
      if (query < tile.queries)
        value = *reinterpret_cast<const float4 *>(queries + int64_t(tile.token + query) * q_stride +
                                                  (head * params.group + row % params.group) * kDim + at);
      *reinterpret_cast<float4 *>(&shared.q[row][at]) = value;
    }
    float out[4][kDim / 16] = {}, greatest[4], sum[4] = {};
    for (int i = 0; i < 4; ++i) greatest[i] = -INFINITY;
    const unsigned window = params.window ? params.window : 0x7fffffff;
    for (int first = tile.begin; first < length; first += kExactKeys) {
      __syncthreads();
      for (int unit = threadIdx.x; unit < kExactKeys * kUnits; unit += kExactThreads) {
        const int key = unit / kUnits, at = unit % kUnits * 4;
        float4 k = make_float4(0, 0, 0, 0), v = k;  // after the last key there may be anything
        if (first + key < length) {
          const int block = table[(first + key) / kBlock], offset = (first + key) % kBlock;
          const float *from = pool + ((int64_t(head) * params.blocks + block) * kBlock + offset) * kDim + at;
          k = *reinterpret_cast<const float4 *>(from);
          v = *reinterpret_cast<const float4 *>(from + int64_t(params.kv_heads) * params.blocks * kBlock * kDim);
        }
        *reinterpret_cast<float4 *>(&shared.k[key][at]) = k;
        *reinterpret_cast<float4 *>(&shared.v[key][at]) = v;
      }
      __syncthreads();
      float scores[4][4] = {};  // keys part, part + 16, ...
      for (int at = 0; at < kDim; at += 4) {
        float4 q[4], k[4];
        for (int i = 0; i < 4; ++i) q[i] = *reinterpret_cast<const float4 *>(&shared.q[first_row + i][at]);
        for (int j = 0; j < 4; ++j) k[j] = *reinterpret_cast<const float4 *>(&shared.k[part + 16 * j][at]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            scores[i][j] = fmaf(q[i].x, k[j].x, scores[i][j]);
            scores[i][j] = fmaf(q[i].y, k[j].y, scores[i][j]);
            scores[i][j] = fmaf(q[i].z, k[j].z, scores[i][j]);
            scores[i][j] = fmaf(q[i].w, k[j].w, scores[i][j]);
          }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = tile.position + (first_row + i) / params.group;
        float most = greatest[i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // As unsigned, a later key is beyond any window.
          if (unsigned(position - (first + part + 16 * j)) >= window) scores[i][j] = -INFINITY;
          most = fmaxf(most, scores[i][j]);
        }
        for (int lane = 8; lane > 0; lane /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
        const float base = most == -INFINITY ? 0.0f : most;  // of keys that all lie before the row's window
        const float shrink = exp2f((greatest[i] - base) * params.scale);
        greatest[i] = most;
        sum[i] *= shrink;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float weight = exp2f((scores[i][j] - base) * params.scale);
          sum[i] += weight;
          shared.weights[first_row + i][part + 16 * j] = weight;
        }
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c) out[i][c] *= shrink;
      }
      __syncwarp();  // a row's 16 threads are of one warp
      for (int key = 0; key < kExactKeys; ++key) {
        float weights[4];
        for (int i = 0; i < 4; ++i) weights[i] = shared.weights[first_row + i][key];
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c) {
          const float value = shared.v[key][part + 16 * c];
#pragma unroll
          for (int i = 0; i < 4; ++i) out[i][c] = fmaf(weights[i], value, out[i][c]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      for (int lane = 8; lane > 0; lane /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], lane);
      const int row = first_row + i, query = row / params.group;
      if (query >= tile.queries) continue;
      float *to = static_cast<float *>(params.out) + int64_t(tile.token + query) * params.out_stride +
                  (head * params.group + row % params.group) * kDim;
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) to[part + 16 * c] = out[i][c] / sum[i];
    }
  }
}

}  // namespace octavo
