// Joins the chunks of a row.
#pragma once

#include "sample.cuh"

namespace octavo {
namespace {

// What its chunks say of a row: its best logit, its mass, and what it draws without filters.
struct Joined {
  float best, mass;
  int id;
};

// By one warp.
__device__ __forceinline__ Joined join(const ChunkResult *results, int chunks) {
  const int lane = threadIdx.x & 31;
  uint64_t greatest = 0;
  float best = -INFINITY, temperature = 0.0f;
  for (int i = lane; i < chunks; i += 32) {
    const ChunkResult result = results[i];
    best = max_or_nan(best, result.best);
    greatest = max(greatest, ranked(result.best, result.index));
    temperature = result.temperature;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) best = max_or_nan(best, __shfl_xor_sync(0xffffffffu, best, step));
  temperature = __shfl_sync(0xffffffffu, temperature, 0);
  Joined joined = {best, 0.0f, index_of(warp_greatest(greatest))};
  if (!isfinite(best) || !(temperature > 0.0f)) return joined;
  greatest = 0;
  for (int i = lane; i < chunks; i += 32) {
    const ChunkResult result = results[i];
    greatest = max(greatest, ranked((result.logit - best) / temperature + result.noise, result.drawn));
    joined.mass += result.mass * exp2_fast((result.best - best) * (kLog2E / temperature));
  }
  joined.id = index_of(warp_greatest(greatest));
  joined.mass = warp_sum(joined.mass);
  return joined;
}

}  // namespace
}  // namespace octavo
