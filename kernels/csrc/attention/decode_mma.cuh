// Eight queries of one warp against blocks of 16 tokens, by m16n8k16 products of 16-bit numbers summed in float32.
//
//   S^T [16 tokens, 8 queries] = K Q^T          O^T [d, 8 queries] += V^T P^T
//
// Lane 4a + b holds queries 2b and 2b + 1 of tokens a and a + 8 of S^T, and of d = 16i + a and 16i + a + 8 of O^T. S^T
// leaves its product with a token a row and enters the next one, as P^T, with a token a column: movmatrix turns it.
#pragma once

#include "decode.cuh"

namespace octavo {

constexpr float kNone = -1e30f;  // the maximum of no scores; finite, so that differences are numbers

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

// Over the lanes that hold the same pair of queries: those that differ in lane / 4.
template <typename Op> __device__ __forceinline__ float over_tokens(float x, Op op) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

// Q^T: the right side of K Q^T.
template <typename T, int D> struct Queries {
  uint32_t at[D / 16][2];

  // `from`: the query of lane / 4, null: none.
  __device__ __forceinline__ void fetch(const T *from) {
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        at[i][j] = from ? __ldcg(reinterpret_cast<const unsigned *>(from + 16 * i + 8 * j + 2 * (threadIdx.x & 3))) : 0;
  }
};

// P^T: the right side of V^T P^T.
template <typename T> __device__ __forceinline__ void turn(uint32_t (&p)[2], const float (&s)[4]) {
  p[0] = transpose(pack(s[0], s[1], T()));
  p[1] = transpose(pack(s[2], s[3], T()));
}

// The result so far, relative to the highest score so far.
template <int D> struct Result {
  float o[D / 16][4];
  float maximum[2], total[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < D / 16; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
    maximum[0] = maximum[1] = kNone;
    total[0] = total[1] = 0.0f;
  }

  // Scores of N blocks, in place, to weights. scale: of scores, to powers of two.
  template <int N> __device__ __forceinline__ void weigh(float (&s)[N][4], float scale) {
    float factor[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float highest = fmaxf(s[0][j], s[0][j + 2]);
#pragma unroll
      for (int n = 1; n < N; n++) highest = fmaxf(highest, fmaxf(s[n][j], s[n][j + 2]));
      highest = over_tokens(highest, [](float a, float b) { return fmaxf(a, b); });
      highest = fmaxf(maximum[j], highest * scale);
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

  // `total` is a lane's own until then.
  __device__ __forceinline__ void finish() {
    total[0] = over_tokens(total[0], [](float a, float b) { return a + b; });
    total[1] = over_tokens(total[1], [](float a, float b) { return a + b; });
  }
};

}  // namespace octavo
