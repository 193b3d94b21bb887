// What few requests ask: changes of their rows of the logits before the draw, in the order of
// worker/runner/cpu/logits_processors.py.
//
//     a row of any type -> masks, allowed, forbidden -> bad words -> bias -> penalties -> a row of float32
//
// The given rows stay as they are: log-probabilities are of these. A CTA has kSpan neighbouring ids of a row in shared
// memory and does everything for them. What has been generated stands in the token pool, and each CTA reads all of it for
// the ids that are its own: 4 bytes a token, where attention reads 100,000. So nothing is counted from step to step, and
// nothing has to be counted again when a request is preempted.
#include "sample.cuh"

namespace octavo {
namespace {

constexpr int kThreads = 256, kSpan = 4096;
constexpr unsigned kInPrompt = 1u << 31;
constexpr float kUnlikely = -1e30f;  // of a bad word: drawn only when nothing else may be

// One row to change; 8 words. mask: its row of the masks, or -1. change: what its request wishes, or null.
struct Row {
  int row, slot, end, mask;
  const int *change;
};

// Of a request: a header, then what it counts, as kernels/cuda/sampling/adjust.py packs it.
enum Field : int {
  kPrompt, kMinTokens, kForbidden, kBiases, kWords, kWordIds, kAllowedWords, kRepetition, kPresence, kFrequency
};
constexpr int kHeader = 16;

struct Change {
  const int *header, *forbidden, *biased, *word_ends, *word_ids, *allowed;
  const float *biases;

  __device__ int count(Field field) const { return header == nullptr ? 0 : header[field]; }
  __device__ float value(Field field, float none) const {
    return header == nullptr ? none : __int_as_float(header[field]);
  }
};

struct Tokens {
  const int *at;
  int stride;
};

// Rows of bits: id i is allowed where bit i % 32 of word i / 32 is set.
struct Masks {
  const int *at;
  int words;
};

__device__ __forceinline__ Row row_of(const int4 *rows, int index) {
  const int4 first = rows[2 * index], second = rows[2 * index + 1];
  const uint64_t address = uint64_t(unsigned(second.x)) | uint64_t(unsigned(second.y)) << 32;
  return {first.x, first.y, first.z, first.w, reinterpret_cast<const int *>(address)};
}

__device__ __forceinline__ Change change_of(const int *header) {
  Change change = {};
  if (header == nullptr) return change;
  change.header = header;
  change.forbidden = header + kHeader;
  change.biased = change.forbidden + header[kForbidden];
  change.biases = reinterpret_cast<const float *>(change.biased + header[kBiases]);
  change.word_ends = change.biased + 2 * header[kBiases];
  change.word_ids = change.word_ends + header[kWords];
  change.allowed = change.word_ids + header[kWordIds];
  return change;
}

// The bits of 32 ids from `index` on. Beyond its words a mask allows nothing; none allows everything.
__device__ __forceinline__ unsigned bits_from(const int *mask, int words, int index) {
  if (mask == nullptr) return ~0u;
  const int word = index / 32;
  return __funnelshift_r(word < words ? mask[word] : 0, word + 1 < words ? mask[word + 1] : 0, index % 32);
}

// Whether a word's ids but the last are what has been generated last.
__device__ __forceinline__ bool follows(const int *word, int before, const int *ids, int end, int prompt) {
  if (before > end - prompt) return false;
  for (int i = 0; i < before; i++) {
    if (ids[end - before + i] != word[i]) return false;
  }
  return true;
}

// Rounded after each operation, as the CPU does it: a fused one would keep more.
__device__ __forceinline__ float penalised(float logit, unsigned seen, float repetition, float presence,
                                           float frequency) {
  if (seen == 0) return logit;
  if (repetition != 1.0f) logit = logit > 0.0f ? __fdiv_rn(logit, repetition) : __fmul_rn(logit, repetition);
  const unsigned generated = seen & ~kInPrompt;
  if (generated == 0) return logit;
  return __fsub_rn(logit, __fadd_rn(presence, __fmul_rn(frequency, float(generated))));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    adjust_kernel(Logits<T> logits, const int4 *__restrict__ rows, Tokens tokens, Masks masks,
                  float *__restrict__ out, int64_t out_stride) {
  constexpr int kSize = Vec<T>::kSize;
  __shared__ float values[kSpan];
  __shared__ unsigned seen[kSpan];
  wait_for_previous();
  release_next();
  const Row row = row_of(rows, blockIdx.y);
  const Change change = change_of(row.change);
  const int first = blockIdx.x * kSpan, columns = min(kSpan, logits.vocabulary - first);
  const int *ids = tokens.at + int64_t(row.slot) * tokens.stride;
  const int prompt = change.count(kPrompt);
  const auto own = [&](int id) { return unsigned(id - first) < unsigned(columns); };

  const T *given = logits.at + int64_t(row.row) * logits.stride;
  const int *mask = row.mask < 0 ? nullptr : masks.at + int64_t(row.mask) * masks.words;
  const int *allowed = change.count(kAllowedWords) ? change.allowed : nullptr;
  for (int i = threadIdx.x * kSize; i < columns; i += kThreads * kSize) {
    const Vec<T> some = load_logits(logits, given, first + i);
    const unsigned kept = bits_from(mask, masks.words, first + i) &
                          bits_from(allowed, change.count(kAllowedWords), first + i);
#pragma unroll
    for (int j = 0; j < kSize; j++) values[i + j] = kept >> j & 1 ? to_float(some.at[j]) : -INFINITY;
  }
  const float repetition = change.value(kRepetition, 1.0f);
  const float presence = change.value(kPresence, 0.0f), frequency = change.value(kFrequency, 0.0f);
  const bool penalises = repetition != 1.0f || presence != 0.0f || frequency != 0.0f;
  if (penalises) {
    for (int i = threadIdx.x; i < columns; i += kThreads) seen[i] = 0;
  }
  __syncthreads();

  const int forbidden = change.count(kForbidden), words = change.count(kWords), biases = change.count(kBiases);
  if (row.end - prompt < change.count(kMinTokens)) {
    for (int i = threadIdx.x; i < forbidden; i += kThreads) {
      if (own(change.forbidden[i])) values[change.forbidden[i] - first] = -INFINITY;
    }
    __syncthreads();
  }
  if (words) {
    for (int i = threadIdx.x; i < words; i += kThreads) {
      const int begin = i ? change.word_ends[i - 1] : 0, last = change.word_ends[i] - 1;
      const int id = change.word_ids[last];
      if (!own(id) || !follows(change.word_ids + begin, last - begin, ids, row.end, prompt)) continue;
      // Words that end alike write the same. Not fminf, which would hide a NaN.
      if (values[id - first] > kUnlikely) values[id - first] = kUnlikely;
    }
    __syncthreads();
  }
  if (biases) {
    for (int i = threadIdx.x; i < biases; i += kThreads) {
      if (own(change.biased[i])) values[change.biased[i] - first] += change.biases[i];
    }
    __syncthreads();
  }
  if (penalises) {
    const int begin = repetition != 1.0f ? 0 : prompt;
#pragma unroll 4
    for (int at = begin + threadIdx.x; at < row.end; at += kThreads) {
      const int id = ids[at];
      if (!own(id)) continue;
      if (at < prompt) {
        atomicOr(&seen[id - first], kInPrompt);
      } else {
        atomicAdd(&seen[id - first], 1u);
      }
    }
    __syncthreads();
  }
  float *to = out + blockIdx.y * out_stride + first;
  for (int i = threadIdx.x; i < columns; i += kThreads) {
    to[i] = penalises ? penalised(values[i], seen[i], repetition, presence, frequency) : values[i];
  }
}

template <typename T>
int adjust(const void *at, int64_t stride, int vocabulary, const void *rows, int count, const Tokens &tokens,
           const Masks &masks, float *out, int64_t out_stride, cudaStream_t stream) {
  const bool aligned = stride % Vec<T>::kSize == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  const Logits<T> logits = {(const T *)at, stride, vocabulary, aligned};
  return launch(adjust_kernel<T>, dim3((vocabulary + kSpan - 1) / kSpan, count), dim3(kThreads), 0, stream, logits,
                (const int4 *)rows, tokens, masks, out, out_stride);
}

}  // namespace
}  // namespace octavo

// rows: [count] of a Row, 16 bytes aligned. masks: [?, mask_words]. out: [count, vocabulary] float32.
extern "C" int octavo_adjust(const void *logits, int64_t stride, int vocabulary, const void *rows, int count,
                             const void *tokens, int tokens_stride, const void *masks, int mask_words, void *out,
                             int64_t out_stride, int dtype, cudaStream_t stream) {
  using namespace octavo;
  const Tokens pool = {(const int *)tokens, tokens_stride};
  const Masks bits = {(const int *)masks, mask_words};
  const auto call = [&](auto adjust) {
    return adjust(logits, stride, vocabulary, rows, count, pool, bits, (float *)out, out_stride, stream);
  };
  switch (dtype) {
    case kF32: return call(adjust<float>);
    case kBf16: return call(adjust<bf16>);
    case kF16: return call(adjust<f16>);
    default: return int(cudaErrorInvalidValue);
  }
}
