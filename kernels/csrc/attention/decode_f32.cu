// Decode attention in float32 throughout, for exactness, not for speed: one CTA a (row, kv head).
//
// Which warp takes which block, and the order in which warps are merged, depend on the row alone: its result has the
// same bits whatever else is in the batch.
#include "../common/common.cuh"

namespace octavo {
namespace {

constexpr int kBlock = 16, kWarps = 8, kMostQueries = 8;

struct Args {
  const float *q, *pool;
  float *out;
  const int *tables, *row_slots, *lengths, *header;
  int64_t kv_stride, head_stride, q_stride, q_head_stride;
  int width, heads, group, window;
  float scale;  // d^-0.5 log2 e
};

template <int D> struct Shared {
  float q[kMostQueries][D];
  float weights[kWarps][kMostQueries][kBlock];
  float o[kWarps][kMostQueries][D];
  float maximum[kWarps][kMostQueries], total[kWarps][kMostQueries];
};

// Each query's product with a block's key of lane / 2; the two lanes of a key take every other 16 bytes of it.
template <int D>
__device__ __forceinline__ void score(float (&s)[kMostQueries], const Shared<D> &shared, const float *keys, int group) {
  const int lane = threadIdx.x & 31, half = lane & 1;
#pragma unroll
  for (int n = 0; n < kMostQueries; n++) s[n] = 0.0f;
#pragma unroll 4
  for (int i = half * 4; i < D; i += 8) {
    const float4 k = *reinterpret_cast<const float4 *>(keys + lane / 2 * D + i);
#pragma unroll
    for (int n = 0; n < kMostQueries; n++) {
      if (n >= group) break;
      const float4 q = *reinterpret_cast<const float4 *>(&shared.q[n][i]);
      s[n] = fmaf(k.x, q.x, fmaf(k.y, q.y, fmaf(k.z, q.z, fmaf(k.w, q.w, s[n]))));
    }
  }
#pragma unroll
  for (int n = 0; n < kMostQueries; n++) s[n] += __shfl_xor_sync(0xffffffffu, s[n], 1);
}

template <int D> __global__ void __launch_bounds__(32 * kWarps) decode_kernel(const __grid_constant__ Args args) {
  constexpr int kColumns = D / 32;
  __shared__ __align__(16) Shared<D> shared;
  wait_for_previous();
  release_next();
  const int row = blockIdx.x / args.heads, head = blockIdx.x % args.heads;
  if (row >= args.header[1]) return;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, length = args.lengths[row];
  const int first = args.window ? max(0, length - args.window) : 0;  // token that the row sees
  const int *table = args.tables + int64_t(args.row_slots[row]) * args.width;
  for (int at = threadIdx.x; at < args.group * D; at += 32 * kWarps)
    shared.q[at / D][at % D] = args.q[row * args.q_stride + (head * args.group + at / D) * args.q_head_stride + at % D];
  __syncthreads();

  float o[kMostQueries][kColumns] = {}, maximum[kMostQueries], total[kMostQueries] = {};
#pragma unroll
  for (int n = 0; n < kMostQueries; n++) maximum[n] = -1e30f;
  for (int block = first / kBlock + warp; block * kBlock < length; block += kWarps) {
    const float *keys = args.pool + head * args.head_stride + int64_t(table[block]) * kBlock * D;
    const float *values = keys + args.kv_stride;
    const int tokens = min(kBlock, length - block * kBlock), hidden = max(0, first - block * kBlock);
    float s[kMostQueries];
    score<D>(s, shared, keys, args.group);
#pragma unroll
    for (int n = 0; n < kMostQueries; n++) {
      if (n >= args.group) break;
      const float scaled = lane / 2 >= hidden && lane / 2 < tokens ? s[n] * args.scale : -INFINITY;
      const float highest = fmaxf(maximum[n], warp_max(scaled));
      const float factor = exp2f(maximum[n] - highest), weight = exp2f(scaled - highest);
      maximum[n] = highest;
      total[n] = total[n] * factor + warp_sum(lane & 1 ? 0.0f : weight);
#pragma unroll
      for (int i = 0; i < kColumns; i++) o[n][i] *= factor;
      if ((lane & 1) == 0) shared.weights[warp][n][lane / 2] = weight;
    }
    __syncwarp();
    for (int token = hidden; token < tokens; token++) {
      float v[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; i++) v[i] = values[token * D + 32 * i + lane];
#pragma unroll
      for (int n = 0; n < kMostQueries; n++) {
        if (n >= args.group) break;
        const float weight = shared.weights[warp][n][token];
#pragma unroll
        for (int i = 0; i < kColumns; i++) o[n][i] = fmaf(weight, v[i], o[n][i]);
      }
    }
    __syncwarp();
  }

#pragma unroll
  for (int n = 0; n < kMostQueries; n++) {
#pragma unroll
    for (int i = 0; i < kColumns; i++) shared.o[warp][n][32 * i + lane] = o[n][i];
    if (lane == 0) shared.maximum[warp][n] = maximum[n], shared.total[warp][n] = total[n];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < args.group * D; at += 32 * kWarps) {
    const int n = at / D, d = at % D;
    float highest = -1e30f, sum = 0.0f, result = 0.0f;
    for (int w = 0; w < kWarps; w++) highest = fmaxf(highest, shared.maximum[w][n]);
    for (int w = 0; w < kWarps; w++) {
      const float weight = exp2f(shared.maximum[w][n] - highest);
      sum += weight * shared.total[w][n];
      result += weight * shared.o[w][n][d];
    }
    args.out[(int64_t(row) * args.heads * args.group + head * args.group + n) * D + d] = sum > 0 ? result / sum : 0.0f;
  }
}

}  // namespace
}  // namespace octavo

// q: [rows, g * k, d] by its strides; pool: [2, k, blocks, 16, d]; tables: [slots, width]; out: [rows, g * k * d].
// window: tokens that a row sees, itself the last; 0: all.
extern "C" int octavo_decode_f32(const float *q, const float *pool, float *out, const int *tables,
                                 const int *row_slots, const int *lengths, const int *header, int64_t kv_stride,
                                 int64_t head_stride, int64_t q_stride, int64_t q_head_stride, int width, int heads,
                                 int group, int d, int window, int rows, cudaStream_t stream) {
  using namespace octavo;
  const float scale = 1.4426950408889634f / sqrtf(float(d));
  const Args args{q,           pool,     out,           tables, row_slots, lengths, header, kv_stride,
                  head_stride, q_stride, q_head_stride, width,  heads,     group,   window, scale};
  if (group > kMostQueries) return int(cudaErrorInvalidValue);
  switch (d) {
    case 64: return launch(decode_kernel<64>, rows * heads, 32 * kWarps, 0, stream, args);
    case 96: return launch(decode_kernel<96>, rows * heads, 32 * kWarps, 0, stream, args);
    case 128: return launch(decode_kernel<128>, rows * heads, 32 * kWarps, 0, stream, args);
  }
  return int(cudaErrorInvalidValue);
}
