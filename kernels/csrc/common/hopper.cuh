// Hopper's own instructions: barriers that count bytes, bulk tensor copies (TMA), warpgroup matrix products (wgmma).
//
// Addresses of shared memory are 32-bit. Tiles lie in "swizzled" rows: the 16-byte units of a row of 128 (64) bytes are
// permuted by XOR with address bits 7..9 (7..8), which TMA and wgmma apply by themselves; tiles start at multiples of
// 1,024 bytes. A row then holds 64 (32) elements of 16 bits: a chunk.
#pragma once

#include <cuda.h>

#include "common.cuh"

namespace octavo {

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

// Barriers in shared memory. `phase`: the parity of the completed phase that is waited for.
__device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and makes the phase wait for `bytes` of bulk copies.
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t phase) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(phase)
        : "memory");
  } while (!done);
}
// Makes initialised barriers, or ordinary stores to shared memory, visible to TMA and wgmma.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Hardware barriers 1..15 between whole warps; 0 is __syncthreads.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// A warpgroup gives registers back, or takes what others gave: its count from here on.
template <int kRegisters> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> __device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The next use of a ring of stages: which one, and the parity of that round.
template <int kSize> struct Ring {
  int at = 0;
  uint32_t filled = 0;
  __device__ __forceinline__ uint32_t freed() const { return filled ^ 1; }
  __device__ __forceinline__ void operator++() {
    at = at + 1 == kSize ? 0 : at + 1;
    filled ^= at == 0;
  }
};

// Bulk tensor copies of a box at (x, y, ...) of the tensor that a map describes; `barrier` is told the bytes.
__device__ __forceinline__ void prefetch_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z,
                                         int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
      :
      : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Describes a tile to wgmma. kOctetBytes: from 8 rows to the next 8; kChunkBytes: from a chunk to the next, read only
// where rows are the summed dimension (the second operand of P V).
template <int kRowBytes, int kOctetBytes, int kChunkBytes = 16> struct Described {
  static_assert(kRowBytes == 128 || kRowBytes == 64, "rows of 64 or 32 elements");
  uint32_t low;
  __device__ __forceinline__ explicit Described(const void *tile)
      : low((shared_address(tile) & 0x3ffff) >> 4 | uint32_t(kChunkBytes >> 4) << 16) {}
  __device__ __forceinline__ uint64_t at(int bytes) const {
    constexpr uint32_t kHigh = (kRowBytes == 128 ? 1u : 2u) << 30 | uint32_t(kOctetBytes >> 4);
    return uint64_t(kHigh) << 32 | (low + uint32_t(bytes >> 4));
  }
};

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending> __device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define OCTAVO_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define OCTAVO_8(d, i) OCTAVO_4(d, i), OCTAVO_4(d, i + 4)
#define OCTAVO_16(d) OCTAVO_8(d, 0), OCTAVO_8(d, 8)
#define OCTAVO_32_FROM(d, i) OCTAVO_8(d, i), OCTAVO_8(d, i + 8), OCTAVO_8(d, i + 16), OCTAVO_8(d, i + 24)
#define OCTAVO_32(d) OCTAVO_32_FROM(d, 0)
#define OCTAVO_48(d) OCTAVO_32(d), OCTAVO_8(d, 32), OCTAVO_8(d, 40)
#define OCTAVO_64(d) OCTAVO_32(d), OCTAVO_32_FROM(d, 32)
#define OCTAVO_80(d) OCTAVO_64(d), OCTAVO_8(d, 64), OCTAVO_8(d, 72)
#define OCTAVO_128(d) OCTAVO_64(d), OCTAVO_32_FROM(d, 64), OCTAVO_32_FROM(d, 96)
#define OCTAVO_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define OCTAVO_NAMES_32 \
  OCTAVO_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OCTAVO_NAMES_48 \
  OCTAVO_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OCTAVO_NAMES_64 \
  OCTAVO_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OCTAVO_NAMES_80 \
  OCTAVO_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define OCTAVO_NAMES_128 \
  OCTAVO_NAMES_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
  "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, " \
  "%119, %120, %121, %122, %123, %124, %125, %126, %127"

// d [64, N] (+)= A B for a warpgroup. d: thread i of a warp holds rows i / 4 and i / 4 + 8 of the warp's 16, and of
// each 8 columns the two from 2 (i % 4). A: 64 x 16 from shared memory (`shared_shared`: B's rows go along N) or from
// registers (`register_shared`, of few widths: B has its rows along the summed dimension).
template <typename T, int kN> struct Product;

#define OCTAVO_SHARED_SHARED(T, NAME, N, NAMES, OPERANDS, P0, P1, P2) \
  static __device__ __forceinline__ void shared_shared(float (&d)[N / 2], uint64_t a, uint64_t b, int add) { \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " P2 ", 0;\n" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NAMES "}, " P0 ", " P1 \
                 ", add, 1, 1, 0, 0;\n}" \
                 : OPERANDS(d) \
                 : "l"(a), "l"(b), "r"(add)); \
  }
#define OCTAVO_PRODUCT(T, NAME, N, NAMES, OPERANDS, P0, P1, P2, P3, P4, P5) \
  template <> struct Product<T, N> { \
    OCTAVO_SHARED_SHARED(T, NAME, N, NAMES, OPERANDS, P0, P1, P2) \
    static __device__ __forceinline__ void register_shared(float (&d)[N / 2], const uint32_t *a, uint64_t b, int add) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " P5 ", 0;\n" \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." NAME "." NAME " {" NAMES "}, {" P0 ", " P1 \
                   ", " P2 ", " P3 "}, " P4 ", add, 1, 1, 1;\n}" \
                   : OPERANDS(d) \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)); \
    } \
  };
#define OCTAVO_SHARED_PRODUCT(T, NAME, N, NAMES, OPERANDS, P0, P1, P2) \
  template <> struct Product<T, N> { \
    OCTAVO_SHARED_SHARED(T, NAME, N, NAMES, OPERANDS, P0, P1, P2) \
  };
#define OCTAVO_PRODUCTS(T, NAME) \
  OCTAVO_SHARED_PRODUCT(T, NAME, 32, OCTAVO_NAMES_16, OCTAVO_16, "%16", "%17", "%18") \
  OCTAVO_PRODUCT(T, NAME, 64, OCTAVO_NAMES_32, OCTAVO_32, "%32", "%33", "%34", "%35", "%36", "%37") \
  OCTAVO_PRODUCT(T, NAME, 96, OCTAVO_NAMES_48, OCTAVO_48, "%48", "%49", "%50", "%51", "%52", "%53") \
  OCTAVO_PRODUCT(T, NAME, 128, OCTAVO_NAMES_64, OCTAVO_64, "%64", "%65", "%66", "%67", "%68", "%69") \
  OCTAVO_SHARED_PRODUCT(T, NAME, 160, OCTAVO_NAMES_80, OCTAVO_80, "%80", "%81", "%82") \
  OCTAVO_SHARED_PRODUCT(T, NAME, 256, OCTAVO_NAMES_128, OCTAVO_128, "%128", "%129", "%130")
OCTAVO_PRODUCTS(bf16, "bf16")
OCTAVO_PRODUCTS(f16, "f16")
#undef OCTAVO_4
#undef OCTAVO_8
#undef OCTAVO_16
#undef OCTAVO_32_FROM
#undef OCTAVO_32
#undef OCTAVO_48
#undef OCTAVO_64
#undef OCTAVO_80
#undef OCTAVO_128
#undef OCTAVO_NAMES_16
#undef OCTAVO_NAMES_32
#undef OCTAVO_NAMES_48
#undef OCTAVO_NAMES_64
#undef OCTAVO_NAMES_80
#undef OCTAVO_NAMES_128
#undef OCTAVO_SHARED_SHARED
#undef OCTAVO_PRODUCT
#undef OCTAVO_SHARED_PRODUCT
#undef OCTAVO_PRODUCTS

}  // namespace octavo
