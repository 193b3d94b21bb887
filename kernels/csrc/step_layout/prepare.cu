// The beginning of a step: apply what changed in the requests' state, then lay out the step's rows and tokens.
//
// Both take one packed buffer of int32 words from the host; cuda/step_layout/changes.py and cuda/step_layout/steps.py hold the layouts.
#include "../common/common.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockTokens = 16;
constexpr int kHeader = 16;       // words of a step's header
constexpr int kChangesHeader = 8;
constexpr int kMostRows = 1024;
constexpr int kRowsEach = kMostRows / kThreads;

enum Kind : int { kTokens = 0, kTable = 1, kPad = 2 };

struct State {
  int *tokens, *tables;
  float *temperature;
  int *top_k;
  float *top_p, *min_p;
  int64_t *seeds;
  int tokens_stride, width;
};

// A segment for each warp, an admit for each thread. Nothing is written twice, so nothing waits.
__global__ void __launch_bounds__(kThreads) apply_kernel(const int *__restrict__ changes, State state) {
  wait_for_previous();
  release_next();
  const int segments = changes[0], admits = changes[1];
  const int thread = blockIdx.x * kThreads + threadIdx.x, threads = gridDim.x * kThreads, lane = threadIdx.x & 31;
  const int4 *segment_at = reinterpret_cast<const int4 *>(changes + kChangesHeader);
  for (int at = thread / 32; at < segments; at += threads / 32) {
    const int4 segment = segment_at[at];  // slot * 4 + kind, first, count, source
    const int kind = segment.x & 3, count = segment.z;
    const int64_t slot = segment.x >> 2;
    int *to = kind == kTokens ? state.tokens + slot * state.tokens_stride : state.tables + slot * state.width;
    to += segment.y;
    const int *from = changes + segment.w;
#pragma unroll 4
    for (int i = lane; i < count; i += 32) to[i] = kind == kPad ? segment.w : from[i];
  }
  const int4 *admit_at = segment_at + segments;
  for (int at = thread; at < admits; at += threads) {
    const int4 first = admit_at[2 * at], second = admit_at[2 * at + 1];  // slot, top_k, temperature, top_p; min_p, seed
    state.top_k[first.x] = first.y;
    state.temperature[first.x] = __int_as_float(first.z);
    state.top_p[first.x] = __int_as_float(first.w);
    state.min_p[first.x] = __int_as_float(second.x);
    state.seeds[first.x] = int64_t(uint64_t(unsigned(second.y)) | uint64_t(unsigned(second.z)) << 32);
  }
}

struct Sizes {
  int rows, samples, tokens;  // of the bucket
  int pad_slot;
};

struct Step {
  int *header, *ids, *positions, *places;                    // tokens
  int *row_slots, *starts, *counts, *begins, *lengths;       // rows
  int *sample_tokens, *sample_slots, *sample_ends, *counters;  // samples
};

// begins[row] = tokens before `row`, for all rows of the bucket; each thread has kRowsEach neighbours.
__device__ void scan_counts(const int *counts, int rows, int *begins, int *sums) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, first = threadIdx.x * kRowsEach;
  int own[kRowsEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kRowsEach; i++) own[i] = first + i < rows ? counts[first + i] : 0;
#pragma unroll
  for (int i = 0; i < kRowsEach; i++) sum += own[i];
  int upto = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  int before = upto - sum;
#pragma unroll
  for (int i = 0; i < kThreads / 32; i++) before += i < warp ? sums[i] : 0;
#pragma unroll
  for (int i = 0; i < kRowsEach; i++) {
    begins[first + i] = before;
    before += own[i];
  }
  __syncthreads();
}

__device__ __forceinline__ void fill_rows(const int *packed, const Sizes &sizes, int rows, const int *begins,
                                          const Step &step) {
  const int *slots = packed + kHeader, *starts = slots + sizes.rows, *counts = starts + sizes.rows;
  for (int row = blockIdx.x * kThreads + threadIdx.x; row < sizes.rows; row += gridDim.x * kThreads) {
    const bool real = row < rows;
    const int start = real ? starts[row] : 0, count = real ? counts[row] : 0;
    step.row_slots[row] = real ? slots[row] : sizes.pad_slot;
    step.starts[row] = start;
    step.counts[row] = count;
    step.begins[row] = begins[row];
    step.lengths[row] = start + count;
  }
}

__device__ __forceinline__ void fill_samples(const int *packed, const Sizes &sizes, int samples, const int *begins,
                                             const Step &step) {
  const int *slots = packed + kHeader, *starts = slots + sizes.rows, *counts = starts + sizes.rows;
  const int *sample_rows = counts + sizes.rows, *counters = sample_rows + sizes.samples;
  for (int sample = blockIdx.x * kThreads + threadIdx.x; sample < sizes.samples; sample += gridDim.x * kThreads) {
    const bool real = sample < samples;
    const int row = real ? sample_rows[sample] : 0, count = counts[row];
    step.sample_tokens[sample] = real ? begins[row] + count - 1 : 0;
    step.sample_slots[sample] = real ? slots[row] : sizes.pad_slot;
    step.sample_ends[sample] = real ? starts[row] + count : 0;
    step.counters[sample] = real ? counters[sample] : 0;
  }
}

__device__ __forceinline__ void gather(const State &state, int64_t slot, int position, int &id, int &place) {
  id = state.tokens[slot * state.tokens_stride + position];
  place = state.tables[slot * state.width + position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
}

// Each CTA sums the counts for itself, and fills kThreads tokens and a share of the rows and samples.
__global__ void __launch_bounds__(kThreads)
    step_kernel(const int *__restrict__ packed, State state, Step step, Sizes sizes) {
  __shared__ int begins[kMostRows];
  __shared__ int sums[kThreads / 32];
  wait_for_previous();
  release_next();
  const int *slots = packed + kHeader, *starts = slots + sizes.rows, *counts = starts + sizes.rows;
  const int rows = packed[0], decoding = packed[1], tokens = packed[2];
  const int token = blockIdx.x * kThreads + threadIdx.x;
  int id = 0, position = 0, place = -1;
  if (token < decoding) {  // its row is known without the sums
    position = starts[token];
    gather(state, slots[token], position, id, place);
  }
  scan_counts(counts, rows, begins, sums);
  if (token < sizes.tokens) {
    if (token >= decoding && token < tokens) {
      int low = decoding, high = rows;  // the row that begins last at or before `token`
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (begins[middle] <= token ? low : high) = middle;
      }
      position = starts[low] + token - begins[low];
      gather(state, slots[low], position, id, place);
    }
    step.ids[token] = id;
    step.positions[token] = position;
    step.places[token] = place;
  }
  fill_rows(packed, sizes, rows, begins, step);
  fill_samples(packed, sizes, packed[3], begins, step);
  if (blockIdx.x == 0 && threadIdx.x < kHeader) step.header[threadIdx.x] = packed[threadIdx.x];
}

}  // namespace
}  // namespace octavo

extern "C" int octavo_apply_changes(const void *changes, int words, void *tokens, int tokens_stride, void *tables,
                                    int width, void *temperature, void *top_k, void *top_p, void *min_p, void *seeds,
                                    cudaStream_t stream) {
  const octavo::State state = {(int *)tokens,   (int *)tables,  (float *)temperature, (int *)top_k, (float *)top_p,
                               (float *)min_p, (int64_t *)seeds, tokens_stride,        width};
  constexpr int kWordsEach = 64, kMostCtas = 264;  // short segments are the most: a warp for each
  const int ctas = words / kWordsEach + 1;
  return octavo::launch(octavo::apply_kernel, dim3(ctas < kMostCtas ? ctas : kMostCtas), dim3(octavo::kThreads), 0,
                        stream, (const int *)changes, state);
}

// `step`: the addresses of header, ids, positions, places, row_slots, starts, counts, begins, lengths, sample_tokens,
// sample_slots, sample_ends and counters.
extern "C" int octavo_prepare_step(const void *packed, const void *tokens, int tokens_stride, const void *tables,
                                   int width, int pad_slot, void *const *step, int rows, int samples, int most_tokens,
                                   cudaStream_t stream) {
  if (rows > octavo::kMostRows) return int(cudaErrorInvalidValue);
  octavo::State state = {};
  state.tokens = (int *)tokens;
  state.tables = (int *)tables;
  state.tokens_stride = tokens_stride;
  state.width = width;
  int *at[13];
  for (int i = 0; i < 13; i++) at[i] = (int *)step[i];
  const octavo::Step to = {at[0], at[1], at[2], at[3],  at[4],  at[5], at[6],
                           at[7], at[8], at[9], at[10], at[11], at[12]};
  const octavo::Sizes sizes = {rows, samples, most_tokens, pad_slot};
  const int ctas = (most_tokens + octavo::kThreads - 1) / octavo::kThreads;
  return octavo::launch(octavo::step_kernel, dim3(ctas), dim3(octavo::kThreads), 0, stream, (const int *)packed, state,
                        to, sizes);
}
