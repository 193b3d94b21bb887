// Pieces of gemm.cu: bulk copies with a hint for the L2, stores to the shared memory of a cluster, and the transposed
// exchange of 8 x 8 results.
#pragma once

#include "../common/hopper.cuh"

namespace octavo {

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
