// The next token of each row where ranks share the vocabulary: each rank's parts are here, and are joined as if one had
// made them all, so every rank finds the same id. A row's filters are not looked at: their entries need sums over the
// ranks first.
#include "sample_join.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// A warp for each row. parts: [ranks, rows, chunks].
__global__ void __launch_bounds__(kThreads)
    join_kernel(const Part *parts, int ranks, int rows, int chunks, int columns, Samples samples, Requests requests) {
  wait_for_previous();
  release_next();
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= min(rows, samples.header[3])) return;
  const Joined joined = join(parts + int64_t(row) * chunks, chunks, ranks, int64_t(rows) * chunks, columns);
  if ((threadIdx.x & 31) != 0) return;
  samples.ids[row] = joined.id;
  samples.failed[row] = !isfinite(joined.best);
  requests.tokens[int64_t(samples.slots[row]) * requests.tokens_stride + samples.ends[row]] = joined.id;
}

}  // namespace
}  // namespace octavo

// parts: [ranks, rows, chunks] of what octavo_sample leaves on each rank, whose columns are as many on each.
// `of_samples`: addresses of header, slots, ends, ids, failed.
extern "C" int octavo_join_samples(const void *parts, int ranks, int rows, int chunks, int columns,
                                   void *const *of_samples, void *tokens, int tokens_stride, cudaStream_t stream) {
  using namespace octavo;
  Samples samples = {};
  samples.header = (const int *)of_samples[0];
  samples.slots = (const int *)of_samples[1];
  samples.ends = (const int *)of_samples[2];
  samples.ids = (int *)of_samples[3];
  samples.failed = (int *)of_samples[4];
  Requests requests = {};
  requests.tokens = (int *)tokens;
  requests.tokens_stride = tokens_stride;
  return launch(join_kernel, dim3((rows + kWarps - 1) / kWarps), dim3(kThreads), 0, stream, (const Part *)parts, ranks,
                rows, chunks, columns, samples, requests);
}
