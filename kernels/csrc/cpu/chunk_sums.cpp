// Keyed sums of each 32 KiB of some bytes, at the speed of memory: what the digest of a model's weights is made of.
//
// Of a chunk of 32-bit words m, with keys k, twice, the second time with keys four words on:
//
//     sum over i of ((m[2i] + k[2i]) mod 2^32) * ((m[2i+1] + k[2i+1]) mod 2^32), mod 2^64
//
// This is NH of UMAC with two passes (Black and others 1999): two chunks that differ, in a way that does not depend on the
// keys, have the same sums with a probability of 2^-64 at most. kernels/cpu/chunk_sums.py has the same in NumPy.

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t CHUNK = 32 << 10;  // bytes
constexpr int64_t SHIFT = 4;         // words

struct Sums {
    uint64_t first, second;
};

inline uint64_t pair(const uint32_t* words, const uint32_t* keys) {
    return uint64_t(uint32_t(words[0] + keys[0])) * uint32_t(words[1] + keys[1]);
}

// `bytes` of them, from word `from` of the chunk on; half a pair at the end is filled up with zeros.
void add_rest(const unsigned char* data, int64_t from, int64_t bytes, const uint32_t* keys, Sums& sums) {
    for (int64_t at = 4 * from; at < bytes; at += 8) {
        uint32_t words[2] = {0, 0};
        std::memcpy(words, data + at, size_t(bytes - at < 8 ? bytes - at : 8));
        sums.first += pair(words, keys + at / 4);
        sums.second += pair(words, keys + at / 4 + SHIFT);
    }
}

void add_plain(const unsigned char* data, int64_t bytes, const uint32_t* keys, Sums& sums) {
    add_rest(data, 0, bytes, keys, sums);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) inline __m256i products(__m256i words, const uint32_t* keys) {
    const __m256i sum = _mm256_add_epi32(words, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys)));
    return _mm256_mul_epu32(sum, _mm256_srli_epi64(sum, 32));
}

__attribute__((target("avx2"))) inline uint64_t total(__m256i lanes) {
    uint64_t each[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(each), lanes);
    return each[0] + each[1] + each[2] + each[3];
}

__attribute__((target("avx2"))) void add_avx2(const unsigned char* data, int64_t bytes, const uint32_t* keys, Sums& sums) {
    __m256i first[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256i second[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    int64_t word = 0;
    for (; 4 * (word + 16) <= bytes; word += 16) {
        for (int half = 0; half < 2; ++half) {
            const int64_t at = word + 8 * half;
            const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 4 * at));
            first[half] = _mm256_add_epi64(first[half], products(words, keys + at));
            second[half] = _mm256_add_epi64(second[half], products(words, keys + at + SHIFT));
        }
    }
    sums.first += total(_mm256_add_epi64(first[0], first[1]));
    sums.second += total(_mm256_add_epi64(second[0], second[1]));
    add_rest(data, word, bytes, keys, sums);
}
#endif

using Add = void (*)(const unsigned char*, int64_t, const uint32_t*, Sums&);

Add best() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add_plain;
}

}  // namespace

// data: little-endian. keys: of CHUNK / 4 + SHIFT words. sums: two for each chunk, of which the last may be shorter.
extern "C" void chunk_sums(const unsigned char* data, int64_t bytes, const uint32_t* keys, uint64_t* sums) {
    static const Add add = best();
    for (int64_t begin = 0; begin < bytes; begin += CHUNK) {
        Sums chunk = {0, 0};
        add(data + begin, bytes - begin < CHUNK ? bytes - begin : CHUNK, keys, chunk);
        *sums++ = chunk.first;
        *sums++ = chunk.second;
    }
}
