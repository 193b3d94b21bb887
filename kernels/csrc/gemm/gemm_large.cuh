// The parts of gemm_large.cu: the thread that fetches, and the warpgroups that multiply and write.
#pragma once

#include "gemm_fetch.cuh"

namespace octavo {

struct LargeParams {
  int tokens;
  int tiles, token_tiles, steps;  // of a cluster; of the batch; of 64 of k
  int group;                      // tiles of the batch that take turns beside each other
};

// Of the 256 rows of the weight 8 are of the gate, the 8 of up that go with them follow, and so on.
template <typename T> struct LargeShape {
  using Element = T;
  static constexpr int kStages = 4, kConsumers = 2, kThreads = 128 * (kConsumers + 1);
  static constexpr int kTokens = 64 * kConsumers, kColumns = 256, kStep = 64, kRowBytes = 2 * kStep;
  static constexpr int kTokenBytes = kTokens * kRowBytes, kWeightBytes = kColumns * kRowBytes;
  static constexpr int kOutBytes = 64 * kRowBytes;

  struct Shared {
    alignas(1024) char x[kStages][kTokenBytes];
    alignas(1024) char weight[kStages][kWeightBytes];
    alignas(1024) char out[kConsumers][2][kOutBytes];  // 64 tokens by 64 columns each
    uint64_t full[kStages], empty[kStages];
  };
};

// A tile of a cluster: 256 tokens by 256 rows of the weight.
struct LargeTile {
  int tokens, columns;  // their number
  __device__ __forceinline__ LargeTile(const LargeParams &params, int tile) {
    const int all = params.tiles / params.token_tiles, group = tile / (params.group * all);
    const int first = group * params.group, size = min(params.group, params.token_tiles - first);
    const int within = tile - group * params.group * all;
    tokens = first + within % size;
    columns = within / size;
  }
};

// For both CTAs of the cluster, at the same place in each.
__device__ __forceinline__ void copy_box_4d_to_both(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %4, %5}], [%2], %6;"
      :
      : "r"(shared_address(to)), "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(0), "r"(w), "h"(uint16_t(3))
      : "memory");
}
__device__ __forceinline__ void copy_box_out(const CUtensorMap *map, const void *from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               :
               : "l"(map), "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void arrive_in_cluster(uint64_t *barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

template <class S>
__device__ __forceinline__ void large_fetch(typename S::Shared &shared, const CUtensorMap *weight, const CUtensorMap *x,
                                            const LargeParams &params) {
  const int rank = cluster_rank();
  constexpr int kHalf = S::kColumns / 2, kOctets = S::kColumns / 16;
  const uint64_t policy = policy_read_soon();
  Ring<S::kStages> stage;
  for (int i = blockIdx.x / 2; i < params.tiles; i += gridDim.x / 2) {
    const LargeTile tile(params, i);
    const int token = (2 * tile.tokens + rank) * S::kTokens, octet = tile.columns * kOctets + rank * kOctets / 2;
    for (int step = 0; step < params.steps; ++step, ++stage) {
      barrier_wait(&shared.empty[stage.at], stage.freed());
      barrier_expect(&shared.full[stage.at], S::kTokenBytes + S::kWeightBytes);
      copy_box_2d(shared.x[stage.at], x, &shared.full[stage.at], step * S::kStep, token, policy);
      copy_box_4d_to_both(shared.weight[stage.at] + rank * kHalf * S::kRowBytes, weight, &shared.full[stage.at],
                          step * S::kStep, octet);
    }
  }
}

template <class S> struct LargeMultiplier {
  using T = typename S::Element;
  using Rows = Described<S::kRowBytes, 8 * S::kRowBytes>;
  typename S::Shared &shared;
  const LargeParams &params;
  const CUtensorMap *out;
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0) - 1;  // the same in all lanes, for the compiler
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, rank = cluster_rank();
  const Rows x{shared.x}, weight{shared.weight};
  Ring<S::kStages> stage;
  float sums[S::kColumns / 2];

  __device__ __forceinline__ void sync() const { named_sync(1 + warpgroup, 128); }
  __device__ __forceinline__ void release(int which) const {
    __syncwarp();
    if (lane < 2) arrive_in_cluster(&shared.empty[which], lane);
  }
  // Keeps what reads or writes the sums on its side of this line; the compiler knows nothing of wgmma.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int i = 0; i < S::kColumns / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");
  }

  __device__ __forceinline__ void multiply() {
    int previous = -1;
#pragma unroll 1
    for (int step = 0; step < params.steps; ++step) {
      barrier_wait(&shared.full[stage.at], stage.filled);
      const int x_byte = stage.at * S::kTokenBytes + warpgroup * 64 * S::kRowBytes;
      products_begin();
#pragma unroll
      for (int k = 0; k < S::kStep / 16; ++k)
        Product<T, S::kColumns>::shared_shared(sums, x.at(x_byte + k * 32),
                                               weight.at(stage.at * S::kWeightBytes + k * 32), step > 0 || k > 0);
      products_commit();
      products_wait<1>();
      if (previous >= 0) release(previous);
      previous = stage.at;
      ++stage;
    }
    products_wait<0>();
    pin();
    release(previous);
  }

  static __device__ __forceinline__ float silu(float x) {
    float power, part;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.0f + power));
    return x * part;
  }

  // 128 columns of results in shared memory, in swizzled rows.
  __device__ __forceinline__ void lay_out() {
    const int row = warp * 16 + lane / 4;
#pragma unroll
    for (int octet = 0; octet < S::kColumns / 16; ++octet) {
      const float *gate = sums + octet * 8, *up = gate + 4;
      char *to = shared.out[warpgroup][octet / 8] + row * S::kRowBytes + (octet % 8 ^ row % 8) * 16 + lane % 4 * 4;
      *reinterpret_cast<uint32_t *>(to) = pair_of(silu(gate[0]) * up[0], silu(gate[1]) * up[1], T());
      *reinterpret_cast<uint32_t *>(to + 8 * S::kRowBytes) = pair_of(silu(gate[2]) * up[2], silu(gate[3]) * up[3], T());
    }
  }

  __device__ __forceinline__ void write(int column, int token) {
    const bool first = threadIdx.x % 128 == 0;
    fence_async();
    sync();
    if (!first) return;
    copy_box_out(out, shared.out[warpgroup][0], column, token);
    copy_box_out(out, shared.out[warpgroup][1], column + 64, token);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  // What was to be written has been read.
  __device__ __forceinline__ void wait_for_space() {
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    sync();
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (int i = blockIdx.x / 2; i < params.tiles; i += gridDim.x / 2) {
      const LargeTile tile(params, i);
      multiply();
      wait_for_space();
      lay_out();
      write(tile.columns * S::kColumns / 2, (2 * tile.tokens + rank) * S::kTokens + warpgroup * 64);
    }
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
};

}  // namespace octavo
