// What passes between the GPUs of neighbouring stages on one host: messages into memory of the receiver, in order.
//
//     region of a rank:  arrived | taken | ctas | boxes [count, bytes]
//
// `arrived` and the boxes are written by the rank before, `taken` by the next one: numbers of messages, from 1 on, that
// only rise. A box is written again once what lay in it was taken. Both ends do this on their streams; no host waits.
#include "peer.cuh"

namespace octavo {
namespace {

constexpr int kCtas = 24, kThreads = 512;
constexpr int64_t kArrivedAt = 0, kTakenAt = 128, kCtasAt = 256, kBoxesAt = 512;

// Of one region.
struct Boxes {
  int64_t bytes;
  unsigned count;
};

__device__ __forceinline__ unsigned *word_at(char *region, int64_t at) {
  return reinterpret_cast<unsigned *>(region + at);
}
__device__ __forceinline__ char *box_of(char *region, unsigned number, const Boxes &boxes) {
  return region + kBoxesAt + (number % boxes.count) * boxes.bytes;
}

// Every thread of the CTA waits until `word` has come to `number`.
__device__ __forceinline__ void await_by_all(const unsigned *word, unsigned number) {
  if (threadIdx.x == 0) await(word, number);
  __syncthreads();
}
// After all CTAs' work: `word`, which another GPU waits for, becomes `number`.
__device__ __forceinline__ void announce(unsigned *arrived, unsigned *word, unsigned number) {
  __syncthreads();
  if (threadIdx.x > 0) return;
  __threadfence_system();
  if (!is_last_cta(arrived)) return;
  __threadfence_system();
  store_release(word, number);
}

__device__ __forceinline__ void copy(uint4 *to, const uint4 *from, int64_t vectors) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + 3 * step < vectors; i += 4 * step) {
    uint4 some[4];
#pragma unroll
    for (int j = 0; j < 4; j++) some[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < 4; j++) to[i + j * step] = some[j];
  }
  for (; i < vectors; i += step) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    send_kernel(char *own, char *next, const uint4 *from, int64_t vectors, unsigned number, Boxes boxes) {
  wait_for_previous();
  await_by_all(word_at(own, kTakenAt), number - boxes.count);
  copy(reinterpret_cast<uint4 *>(box_of(next, number, boxes)), from, vectors);
  announce(word_at(own, kCtasAt), word_at(next, kArrivedAt), number);
}

__global__ void __launch_bounds__(kThreads)
    receive_kernel(char *own, char *before, uint4 *to, int64_t vectors, unsigned number, Boxes boxes) {
  wait_for_previous();
  await_by_all(word_at(own, kArrivedAt), number);
  copy(to, reinterpret_cast<const uint4 *>(box_of(own, number, boxes)), vectors);
  announce(word_at(own, kCtasAt), word_at(before, kTakenAt), number);
}

// What the last stage sampled, for the first one's token pool: count, 0, 0, 0, then (slot, place, id, 0) of each.
__global__ void __launch_bounds__(kThreads)
    send_ids_kernel(char *own, char *next, const int *header, const int *slots, const int *ends, const int *ids,
                    unsigned number, Boxes boxes) {
  wait_for_previous();
  await_by_all(word_at(own, kTakenAt), number - boxes.count);
  int4 *box = reinterpret_cast<int4 *>(box_of(next, number, boxes));
  const int count = header[3];
  if (threadIdx.x == 0) box[0] = make_int4(count, 0, 0, 0);
  for (int i = threadIdx.x; i < count; i += kThreads) box[1 + i] = make_int4(slots[i], ends[i], ids[i], 0);
  announce(word_at(own, kCtasAt), word_at(next, kArrivedAt), number);
}

__global__ void __launch_bounds__(kThreads)
    take_ids_kernel(char *own, char *before, int *tokens, int64_t tokens_stride, unsigned number, Boxes boxes) {
  wait_for_previous();
  await_by_all(word_at(own, kArrivedAt), number);
  const int4 *box = reinterpret_cast<const int4 *>(box_of(own, number, boxes));
  const int count = box[0].x;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int4 one = box[1 + i];
    tokens[one.x * tokens_stride + one.y] = one.z;
  }
  announce(word_at(own, kCtasAt), word_at(before, kTakenAt), number);
}

int ctas_for(int64_t vectors) {
  const int64_t ctas = (vectors + kThreads - 1) / kThreads;
  return int(ctas < 1 ? 1 : ctas < kCtas ? ctas : kCtas);
}

}  // namespace
}  // namespace octavo

// Bytes of the region of a rank to which so many messages may be under way, of at most box_bytes, a multiple of 16.
extern "C" int64_t octavo_mailbox_bytes(int64_t box_bytes, int boxes) { return octavo::kBoxesAt + boxes * box_bytes; }

// Regions: of this rank, and of the next. bytes: a multiple of 16, as the addresses are.
extern "C" int octavo_mailbox_send(void *own, void *next, const void *from, int64_t bytes, unsigned number,
                                   int64_t box_bytes, int boxes, cudaStream_t stream) {
  using namespace octavo;
  if (bytes > box_bytes || bytes % 16) return int(cudaErrorInvalidValue);
  return launch(send_kernel, dim3(ctas_for(bytes / 16)), dim3(kThreads), 0, stream, (char *)own, (char *)next,
                (const uint4 *)from, bytes / 16, number, Boxes{box_bytes, unsigned(boxes)});
}

// Regions: of this rank, and of the one before.
extern "C" int octavo_mailbox_receive(void *own, void *before, void *to, int64_t bytes, unsigned number,
                                      int64_t box_bytes, int boxes, cudaStream_t stream) {
  using namespace octavo;
  if (bytes > box_bytes || bytes % 16) return int(cudaErrorInvalidValue);
  return launch(receive_kernel, dim3(ctas_for(bytes / 16)), dim3(kThreads), 0, stream, (char *)own, (char *)before,
                (uint4 *)to, bytes / 16, number, Boxes{box_bytes, unsigned(boxes)});
}

// header[3]: how many samples there are.
extern "C" int octavo_mailbox_send_ids(void *own, void *next, const void *header, const void *slots, const void *ends,
                                       const void *ids, unsigned number, int64_t box_bytes, int boxes,
                                       cudaStream_t stream) {
  using namespace octavo;
  return launch(send_ids_kernel, dim3(1), dim3(kThreads), 0, stream, (char *)own, (char *)next, (const int *)header,
                (const int *)slots, (const int *)ends, (const int *)ids, number, Boxes{box_bytes, unsigned(boxes)});
}

extern "C" int octavo_mailbox_take_ids(void *own, void *before, void *tokens, int64_t tokens_stride, unsigned number,
                                       int64_t box_bytes, int boxes, cudaStream_t stream) {
  using namespace octavo;
  return launch(take_ids_kernel, dim3(1), dim3(kThreads), 0, stream, (char *)own, (char *)before, (int *)tokens,
                tokens_stride, number, Boxes{box_bytes, unsigned(boxes)});
}
