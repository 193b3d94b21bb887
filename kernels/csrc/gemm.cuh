// Pieces of gemm.cu: matrix products of more widths than hopper.cuh has, bulk copies with a hint for the L2, stores to
// the shared memory of a cluster, and the transposed exchange of 8 x 8 results.
#pragma once

#include "hopper.cuh"

namespace octavo {

#define OCTAVO_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OCTAVO_D16(i) OCTAVO_D4(i), OCTAVO_D4(i + 4), OCTAVO_D4(i + 8), OCTAVO_D4(i + 12)
#define OCTAVO_D64(i) OCTAVO_D16(i), OCTAVO_D16(i + 16), OCTAVO_D16(i + 32), OCTAVO_D16(i + 48)
#define OCTAVO_D16_NAMES "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OCTAVO_D128_NAMES                                                                                             \
  OCTAVO_D16_NAMES                                                                                                    \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "    \
  "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "    \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "      \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, "      \
  "%121, %122, %123, %124, %125, %126, %127"

#define OCTAVO_WIDE_PRODUCT(T, NAME, N, NAMES, OPERANDS, P0, P1, P2)                                           \
  template <> struct Product<T, N> {                                                                           \
    static __device__ __forceinline__ void shared_shared(float (&d)[N / 2], uint64_t a, uint64_t b, int add) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " P2 ", 0;\n"                                         \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NAMES "}, " P0 ", " P1 \
                   ", add, 1, 1, 0, 0;\n}"                                                                     \
                   : OPERANDS                                                                                  \
                   : "l"(a), "l"(b), "r"(add));                                                                \
    }                                                                                                          \
  };
#define OCTAVO_WIDE_OPERANDS OCTAVO_D64(0), OCTAVO_D64(64)
OCTAVO_WIDE_PRODUCT(bf16, "bf16", 32, OCTAVO_D16_NAMES, OCTAVO_D16(0), "%16", "%17", "%18")
OCTAVO_WIDE_PRODUCT(f16, "f16", 32, OCTAVO_D16_NAMES, OCTAVO_D16(0), "%16", "%17", "%18")
OCTAVO_WIDE_PRODUCT(bf16, "bf16", 256, OCTAVO_D128_NAMES, OCTAVO_WIDE_OPERANDS, "%128", "%129", "%130")
OCTAVO_WIDE_PRODUCT(f16, "f16", 256, OCTAVO_D128_NAMES, OCTAVO_WIDE_OPERANDS, "%128", "%129", "%130")
#undef OCTAVO_D4
#undef OCTAVO_D16
#undef OCTAVO_D64
#undef OCTAVO_D16_NAMES
#undef OCTAVO_D128_NAMES
#undef OCTAVO_WIDE_PRODUCT
#undef OCTAVO_WIDE_OPERANDS

// The next use of a ring of stages: which one, and the parity of that round.
template <int kSize> struct Stages {
  int at = 0;
  uint32_t filled = 0;
  __device__ __forceinline__ uint32_t freed() const { return filled ^ 1; }
  __device__ __forceinline__ void operator++() {
    at = at + 1 == kSize ? 0 : at + 1;
    filled ^= at == 0;
  }
};

// What is read once must not push out what is read again.
__device__ __forceinline__ uint64_t policy_read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_read_soon() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_read_again() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void copy_box_2d(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;"
      :
      : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_box_4d(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int w,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %4, %5}], [%2], %6;"
      :
      : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(0), "r"(w), "l"(policy)
      : "memory");
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// All threads of all CTAs of a cluster. Orders no memory but what a thread itself has waited for.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Stores where the CTA `rank` of the cluster has what this one has at `mine`, and tells its `barrier` of 16 bytes.
__device__ __forceinline__ void send_in_cluster(const void *mine, const uint64_t *barrier, uint32_t rank,
                                                const float *value) {
  asm volatile(
      "{\n.reg .b32 to, at;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\nmapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [to], {%3, %4, %5, %6}, [at];\n}" ::"r"(
          shared_address(mine)),
      "r"(shared_address(barrier)), "r"(rank), "r"(__float_as_uint(value[0])), "r"(__float_as_uint(value[1])),
      "r"(__float_as_uint(value[2])), "r"(__float_as_uint(value[3]))
      : "memory");
}

// 8 x 8 elements over a warp: lane i holds two of row i / 4, from column 2 (i % 4); afterwards, of column i / 4.
__device__ __forceinline__ uint32_t transposed(uint32_t pair) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

__device__ __forceinline__ uint32_t pair_of(float low, float high, bf16) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ __forceinline__ uint32_t pair_of(float low, float high, f16) {
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
template <typename T> __device__ __forceinline__ float2 halves_of(uint32_t pair) {
  const T *both = reinterpret_cast<const T *>(&pair);
  return make_float2(to_float(both[0]), to_float(both[1]));
}

}  // namespace octavo
