// How kernels of different GPUs meet in memory that both reach: words that are written with release and read with
// acquire at system scope, and numbers that only rise, so that nothing is ever reset.
//
// A loop that waits for another GPU ends when that one arrives, or with its process: what watches the ranks kills
// them from outside. All CTAs of such a kernel must be resident at once, so grids are small.
#pragma once

#include "../common/common.cuh"

namespace octavo {

__device__ __forceinline__ unsigned load_acquire(const unsigned *from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(unsigned *to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Waits until the word at `from` is `number` or later; numbers may wrap.
__device__ __forceinline__ void await(const unsigned *from, unsigned number) {
  while (int(load_acquire(from) - number) < 0) {
  }
}

// 16 bytes past the first-level cache, whole.
__device__ __forceinline__ uint4 load_volatile(const uint4 *from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_volatile(uint4 *to, const uint4 &value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// By thread 0 of each CTA: true in the last one of the grid. `arrived`: a word of this GPU's own, 0 before and after.
__device__ __forceinline__ bool is_last_cta(unsigned *arrived) {
  return atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
}

}  // namespace octavo
