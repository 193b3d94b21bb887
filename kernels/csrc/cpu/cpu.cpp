// The CPU backend's kernels in float32, for any processor: the arithmetic is in cpu_simd.h, compiled for each
// instruction set below; the best one that the processor has is chosen when the library is loaded.
//
// A weight [out, in] is stored in panels of PANEL outputs, so that a product reads its weights once, from the first to
// the last byte; the last panel is padded with zeros:
//
//     panels[p][k][j] = weight[p * PANEL + j][k]
//
// Threads are those of the OpenMP runtime that torch has loaded. Nothing is linked to: a second runtime would bring a
// second pool, whose threads would compete with torch's for the same cores.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

extern "C" __attribute__((weak)) void GOMP_parallel(void (*)(void*), void*, unsigned threads, unsigned flags);

namespace {

constexpr int PANEL = 16;
constexpr int64_t RUN = 192;  // inputs of a sum in one run; runs are added up, which keeps more digits than a long one
constexpr int64_t LINE = 64;  // bytes of a cache line
constexpr int64_t TILE_TOKENS = 128;
constexpr int64_t WORTH_A_THREAD = 1 << 17;  // numbers; fewer are done before a sleeping thread is awake
constexpr int64_t UNIT_QUERIES = 64;  // of attention: their sums stay in the nearest cache

enum Epilogue { STORE, ADD, SILU_MUL };

// cpu/native_ops.py makes these. bias: padded to whole panels, or null.
struct Matrix {
    const float* panels;
    const float* bias;
    int64_t in, out;
};

struct Rows {
    const float* data;
    int64_t stride, count;
};

// Some rows of x times some panels, over `depth` inputs; `first` begins the sums, else they are added to.
struct Block {
    const float* x;
    int64_t x_stride;
    const float* weights;
    int64_t panel_stride, depth;
    float* tile;
    int64_t tile_stride;
    bool first;
    const char* ahead;
    int64_t ahead_step;
};
using BlockFunction = void (*)(const Block&);

// `next` of a task is what no thread has begun. columns: of y.
struct Product {
    const Matrix* matrix;
    const float* x;
    int64_t x_stride, rows;
    const float* norm;
    float eps;
    Epilogue epilogue;
    float* y;
    int64_t columns, block_rows, chunk;
    std::atomic<int64_t> next{0};
};

struct Norm {
    const float* x;
    int64_t x_stride, rows, size;
    const float* weight;
    float eps;
    float* y;
    int64_t chunk;
    std::atomic<int64_t> next{0};
};

struct Rope {
    float* qkv;
    int64_t tokens, heads, kv_heads, dim;
    const float *cos, *sin, *q_norm, *k_norm;
    float eps;
    float* pool;
    int64_t places;
    const int64_t* write_index;
    std::atomic<int64_t> next{0};
};

// Up to TILE_TOKENS keys and values, from position `begin` on.
struct Tile {
    const float *keys, *values;
    const int64_t* table;
    int64_t begin, tokens, block_size, dim;
    float scale;

    const float* token(const float* part, int64_t t) const {
        const int64_t at = begin + t;
        return part + (table[at / block_size] * block_size + at % block_size) * dim;
    }
};

struct Softmax {
    float top, sum;
};

// Token i reads the blocks of tables + i * table_stride and sees the last `window` of lengths[i] tokens, or of
// start + i + 1 without lengths. A window of 0 is all of them.
struct Attention {
    const float* q;
    int64_t q_stride, tokens, heads, kv_heads, dim;
    const float* pool;
    int64_t blocks, block_size;
    const int64_t* tables;
    int64_t table_stride;
    const int64_t* lengths;
    int64_t start, window;
    float* out;
    int64_t unit_tokens, unit_heads;
    std::atomic<int64_t> next{0};

    int64_t length(int64_t token) const { return lengths ? lengths[token] : start + token + 1; }

    int64_t begin(int64_t token) const { return window ? std::max<int64_t>(0, length(token) - window) : 0; }

    Tile tile(int64_t token, int64_t kv_head, int64_t begin, int64_t count) const {
        const int64_t head_floats = blocks * block_size * dim;
        const float* keys = pool + kv_head * head_floats;
        return {keys,       keys + kv_heads * head_floats, tables + token * table_stride,          begin, count,
                block_size, dim,                           1 / std::sqrt(static_cast<float>(dim))};
    }
};

// Floats between rows of `size`: an odd number of cache lines.
constexpr int64_t spread(int64_t size) {
    constexpr int64_t LINE_FLOATS = LINE / sizeof(float);
    return ((size + LINE_FLOATS - 1) / LINE_FLOATS | 1) * LINE_FLOATS;
}

// The calling thread's own memory, kept for its life.
float* scratch(int64_t floats) {
    thread_local float* kept = nullptr;
    thread_local int64_t size = 0;
    if (size < floats) {
        std::free(kept);
        size = (floats * sizeof(float) + LINE - 1) / LINE * LINE / sizeof(float);
        kept = static_cast<float*>(std::aligned_alloc(LINE, size * sizeof(float)));
    }
    return kept;
}

template <class Task>
void run(void (*part)(Task&), Task& task, int threads) {
    if (threads <= 1 || !GOMP_parallel) return part(task);
    struct Call {
        void (*part)(Task&);
        Task& task;
    } call{part, task};
    const auto enter = [](void* data) {
        const Call& call = *static_cast<Call*>(data);
        call.part(call.task);
    };
    GOMP_parallel(enter, &call, threads, 0);
}

}  // namespace

#define SIMD generic
#define TARGET
#define WIDTH 4
#ifdef __aarch64__
#define BLOCK_ROWS 6
#else
#define BLOCK_ROWS 2
#endif
namespace {
#include "cpu_simd.h"
}
#undef SIMD
#undef TARGET
#undef WIDTH
#undef BLOCK_ROWS

#ifdef __x86_64__
#define SIMD avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 8
#define BLOCK_ROWS 6
namespace {
#include "cpu_simd.h"
}
#undef SIMD
#undef TARGET
#undef WIDTH
#undef BLOCK_ROWS
#endif

namespace {

struct Functions {
    void (*multiply)(Product&);
    void (*norm_rows)(Norm&);
    void (*rope)(Rope&);
    void (*attend)(Attention&);
};

// By instruction set, each better than the one before; `all` holds those that this processor has.
int available(Functions (&all)[2]) {
    int count = 0;
    all[count++] = {generic::multiply, generic::norm_rows, generic::rope, generic::attend};
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        all[count++] = {avx2::multiply, avx2::norm_rows, avx2::rope, avx2::attend};
#endif
    return count;
}

Functions best() {
    Functions all[2];
    return all[available(all) - 1];
}

Functions functions = best();

}  // namespace

extern "C" {

// Changes with these functions' arguments: cpu/native_ops.py refuses a library of other sources.
int cpu_interface() { return 2; }

int cpu_panel() { return PANEL; }

// For tests: compute by the instruction set of this rank, 0 being every processor's. Returns whether there is one.
int cpu_use(int rank) {
    Functions all[2];
    if (rank >= available(all)) return 0;
    functions = all[rank];
    return 1;
}

// weight: [out, in], its rows row_stride apart.
void cpu_pack(const float* weight, int64_t row_stride, int64_t out, int64_t in, float* panels) {
    for (int64_t first = 0; first < out; first += PANEL, panels += in * PANEL)
        for (int64_t j = 0; j < PANEL; ++j)
            for (int64_t k = 0; k < in; ++k)
                panels[k * PANEL + j] = first + j < out ? weight[(first + j) * row_stride + k] : 0.0f;
}

void cpu_multiply(const Matrix* matrix, const float* x, int64_t x_stride, int64_t rows, const float* norm, float eps,
                  int epilogue, float* y, int threads) {
    const int64_t columns = epilogue == SILU_MUL ? matrix->out / 2 : matrix->out;
    const int64_t panels = (columns + PANEL - 1) / PANEL;
    // As many rows at a time as leave the second cache room for weights: 512 KiB.
    const int64_t block_rows = std::clamp<int64_t>((128 << 10) / matrix->in, 48, 240);
    const int64_t chunk = std::clamp<int64_t>(panels / (8 * threads) / 4 * 4, 4, 64);
    Product task{matrix, x, x_stride, rows, norm, eps, static_cast<Epilogue>(epilogue), y, columns, block_rows, chunk};
    run(functions.multiply, task, threads);
}

void cpu_norm(const float* x, int64_t x_stride, int64_t rows, int64_t size, const float* weight, float eps, float* y,
              int threads) {
    Norm task{x, x_stride, rows, size, weight, eps, y, 16};
    run(functions.norm_rows, task, rows * size > WORTH_A_THREAD ? threads : 1);
}

void cpu_rope(float* qkv, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim, const float* cos,
              const float* sin, const float* q_norm, const float* k_norm, float eps, float* pool, int64_t places,
              const int64_t* write_index, int threads) {
    Rope task{qkv, tokens, heads, kv_heads, dim, cos, sin, q_norm, k_norm, eps, pool, places, write_index};
    run(functions.rope, task, tokens * heads * dim > WORTH_A_THREAD ? threads : 1);
}

void cpu_attention(const float* q, int64_t q_stride, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim,
                   const float* pool, int64_t blocks, int64_t block_size, const int64_t* tables, int64_t table_stride,
                   const int64_t* lengths, int64_t start, int64_t window, float* out, int threads) {
    const int64_t group = heads / kv_heads;
    int64_t unit_tokens = 1, unit_heads = group;
    if (!lengths) unit_tokens = std::clamp<int64_t>(UNIT_QUERIES / group, 1, 8);
    if (group > UNIT_QUERIES || (lengths && tokens * kv_heads < 4 * threads)) unit_heads = 1;
    Attention task{q,      q_stride,     tokens,  heads, kv_heads, dim, pool,        blocks, block_size,
                   tables, table_stride, lengths, start, window,   out, unit_tokens, unit_heads};
    int64_t seen = 0;
    for (int64_t token = 0; token < tokens; ++token) seen += task.length(token) - task.begin(token);
    run(functions.attend, task, seen * heads * dim > WORTH_A_THREAD ? threads : 1);
}
}
