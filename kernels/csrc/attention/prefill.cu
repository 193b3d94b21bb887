// Attention of the rows of a step that have several new tokens: their tiles, heaviest first, and the launch.

#include "prefill_exact.cuh"

namespace octavo {

constexpr int kPlanThreads = 1024, kLevelKeys = 128, kPlanLevels = 1024;
constexpr int kLeastPart = 2048;  // keys: fewer would be read faster than their result is merged

struct PlanParams {
  const int *header, *row_slots, *starts, *counts, *begins;
  int *head;
  Tile *tiles;
  int fill, bound, enough;  // queries of a full tile; tiles there is room for; as many as keep the device busy
  int window;               // keys that a query sees, its own the last; 0: all before it
  int together;             // keys that the kernel reads at a time; no part ends within them
};

// A counting sort by the keys that a tile attends to: a long tile that begins last would leave the others waiting.
// Where there are too few tiles to keep the device busy, as of a small chunk of a long prompt, keys are divided, too,
// into at most 2 enough parts of one size, and a smaller one for each tile: two rounds balance better than one.
__global__ __launch_bounds__(kPlanThreads) void prefill_plan(PlanParams params) {
  __shared__ int begins[kPlanLevels];  // tiles of a level, then where the next of it goes
  __shared__ int totals[kPlanThreads / 32];
  __shared__ int whole, keys, places;  // tiles before any is divided, their keys; places taken by parts
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  wait_for_previous();
  release_next();
  const int rows = params.header[0], first_row = params.header[1];
  begins[thread] = 0;
  if (thread == 0) whole = keys = places = 0;
  __syncthreads();
  const auto each = [&](auto &&visit) {  // a warp a row
    for (int row = first_row + warp; row < rows; row += kPlanThreads / 32) {
      const int count = params.counts[row], start = params.starts[row];
      for (int query = lane * params.fill; query < count; query += 32 * params.fill)
        visit(row, query, min(params.fill, count - query), start + query);
    }
  };
  // The first key that a tile reads: that of its first query, or some before it.
  const auto first_key = [&](int position) {
    return params.window ? max(0, position - params.window + 1) / params.together * params.together : 0;
  };
  each([&](int, int, int queries, int position) {
    atomicAdd(&whole, 1);
    atomicAdd(&keys, position + queries - first_key(position));
  });
  __syncthreads();
  int span = 1 << 30;
  if (whole < params.enough && params.window == 0)  // not every query sees the first key of a part of a window
    span = (max(kLeastPart - 1, keys / (2 * params.enough)) / params.together + 1) * params.together;
  // Every query sees the first key of every part: the last one takes what is beyond a multiple of `span`, too.
  const auto each_part = [&](int queries, int position, auto &&visit) {
    const int parts = position / span + 1;
    for (int part = 0; part < parts; ++part) {
      const int begin = part ? part * span : first_key(position), end = part + 1 < parts ? begin + span : position + queries;
      visit(part, parts, begin, end, kPlanLevels - 1 - min((end - begin - 1) / kLevelKeys, kPlanLevels - 1));
    }
  };
  each([&](int, int, int queries, int position) {
    each_part(queries, position, [&](int, int, int, int, int level) { atomicAdd(&begins[level], 1); });
  });
  __syncthreads();
  const int mine = begins[thread];
  int before = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) totals[warp] = before;
  __syncthreads();
  for (int i = 0; i < warp; ++i) before += totals[i];
  begins[thread] = before - mine;
  if (thread == kPlanThreads - 1) params.head[0] = min(before, params.bound), params.head[1] = 0;
  __syncthreads();
  each([&](int row, int query, int queries, int position) {
    int place = 0;
    each_part(queries, position, [&](int part, int parts, int begin, int end, int level) {
      if (part == 0 && parts > 1) place = atomicAdd(&places, parts);
      const int at = atomicAdd(&begins[level], 1);
      if (at < params.bound)
        params.tiles[at] = {params.row_slots[row], params.begins[row] + query, position, queries, begin, end,
                            part, parts, place};
    });
  });
}

using Encode = decltype(&cuTensorMapEncodeTiled);

// Of the driver that is there, so that nothing links against one.
static Encode encoder() {
  static const Encode found = [] {
    void *function = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

struct Launch {
  const void *queries, *pool;
  int tokens, q_stride, heads, bound;
  PrefillParams params;
  cudaStream_t stream;
};

template <class S, bool kWindow> int launch_tensor(const Launch &call) {
  if (encoder() == nullptr) return int(cudaErrorNotSupported);
  const bool brain = __is_same(typename S::Element, bf16);
  const auto type = brain ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto swizzle = S::kRowBytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const auto encode = [&](CUtensorMap *map, int rank, const void *base, const cuuint64_t *sizes,
                          const cuuint64_t *strides, const cuuint32_t *box) {
    return encoder()(map, type, rank, const_cast<void *>(base), sizes, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS;
  };
  CUtensorMap queries, pool;
  const PrefillParams &params = call.params;
  const cuuint32_t group = params.group;
  const cuuint64_t q_sizes[3] = {S::kDim, cuuint64_t(call.heads), cuuint64_t(call.tokens)};
  const cuuint64_t q_strides[2] = {S::kDim * 2, cuuint64_t(call.q_stride) * 2};
  const cuuint32_t q_box[3] = {S::kChunk, group, S::kRows / group};
  // A block of 16 keys: [2 of 8 keys][chunk][8][kChunk], so that 8 keys and a chunk lie in one piece.
  const cuuint64_t rows = cuuint64_t(2) * params.kv_heads * params.blocks * S::kBlock;
  const cuuint64_t sizes[4] = {S::kChunk, 8, S::kChunks, rows / 8};
  const cuuint64_t strides[3] = {S::kDim * 2, S::kRowBytes, S::kDim * 16};
  const cuuint32_t box[4] = {S::kChunk, 8, S::kChunks, S::kBlock / 8};
  if (encode(&queries, 3, call.queries, q_sizes, q_strides, q_box) ||
      encode(&pool, 4, call.pool, sizes, strides, box))
    return int(cudaErrorInvalidValue);
  int device, processors;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const dim3 grid(min(processors, call.bound * params.kv_heads));
  return launch(prefill_tensor<S, kWindow>, grid, S::kThreads, sizeof(typename S::Shared), call.stream, queries, pool,
                params);
}

template <typename T> int launch_dim(int dim, const Launch &call) {
  if (call.params.window) switch (dim) {
    case 64: return launch_tensor<PrefillShape<T, 64, 3, 4, 128>, true>(call);
    case 96: return launch_tensor<PrefillShape<T, 96, 2, 3, 128>, true>(call);
    case 128: return launch_tensor<PrefillShape<T, 128, 2, 2, 128>, true>(call);
  }
  switch (dim) {
    case 64: return launch_tensor<PrefillShape<T, 64, 3, 4, 128>, false>(call);
    case 96: return launch_tensor<PrefillShape<T, 96, 2, 3, 128>, false>(call);
    case 128: return launch_tensor<PrefillShape<T, 128, 2, 2, 160>, false>(call);
  }
  return int(cudaErrorInvalidValue);
}

template <int kDim> int launch_exact(const Launch &call) {
  const dim3 grid(min(call.bound * call.params.kv_heads, 1 << 20));
  return launch(prefill_exact<kDim>, grid, kExactThreads, sizeof(ExactShared<kDim>), call.stream,
                static_cast<const float *>(call.queries), static_cast<const float *>(call.pool), call.q_stride,
                call.params);
}

}  // namespace octavo

using namespace octavo;

extern "C" int octavo_prefill_plan(const void *header, const void *row_slots, const void *starts, const void *counts,
                                   const void *begins, void *tiles, int fill, int bound, int enough,
                                   int window, int together, cudaStream_t stream) {
  const auto ints = [](const void *pointer) { return static_cast<const int *>(pointer); };
  Tile *list = static_cast<Tile *>(tiles);
  const PlanParams params = {ints(header), ints(row_slots), ints(starts), ints(counts), ints(begins),
                             reinterpret_cast<int *>(list), list + 1, fill, bound, enough, window, together};
  return launch(prefill_plan, 1, kPlanThreads, 0, stream, params);
}

// queries: [tokens, heads, dim] with rows q_stride apart; pool: [2, kv_heads, blocks, 16, dim]; tables: [slots, width];
// tiles: [bound + 1, 12]; out: [tokens, heads * dim]; sums, bounds, arrivals: see PrefillParams;
// window: that of the plan.
extern "C" int octavo_prefill_attention(int dtype, int dim, const void *queries, int tokens, int q_stride, int heads,
                                        const void *pool, int kv_heads, int blocks, const void *tables, int width,
                                        void *tiles, int bound, void *out, void *sums, void *bounds, void *arrivals,
                                        float scale, int window, cudaStream_t stream) {
  Tile *list = static_cast<Tile *>(tiles);
  int *head = reinterpret_cast<int *>(list);
  const PrefillParams params = {static_cast<const int *>(tables), head, list + 1, head + 1, out,
                                static_cast<float *>(sums), static_cast<float2 *>(bounds),
                                static_cast<int *>(arrivals), width, heads * dim, kv_heads, heads / kv_heads, blocks,
                                window, scale * 1.4426950408889634f};
  const Launch call = {queries, pool, tokens, q_stride, heads, bound, params, stream};
  if (dtype == kBf16) return launch_dim<bf16>(dim, call);
  if (dtype == kF16) return launch_dim<f16>(dim, call);
  switch (dim) {
    case 64: return launch_exact<64>(call);
    case 96: return launch_exact<96>(call);
    case 128: return launch_exact<128>(call);
  }
  return int(cudaErrorInvalidValue);
}
