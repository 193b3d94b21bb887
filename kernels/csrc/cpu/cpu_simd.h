// The arithmetic of cpu.cpp, for one instruction set. cpu.cpp includes this once for each, with
//
//   SIMD         the namespace to put it in
//   TARGET       the attribute that lets the compiler use the instruction set
//   WIDTH        floats of a vector
//   BLOCK_ROWS   rows of a product that are kept in registers
//
// It is written in vectors of the compiler (GCC and Clang have them), not in intrinsics, and carries TARGET on every
// function: what is inlined must be allowed no more than what it is inlined into.

namespace SIMD {

constexpr int PARTS = PANEL / WIDTH;  // vectors of a panel's row

typedef float Vector __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int Integers __attribute__((vector_size(WIDTH * sizeof(int))));
typedef Vector Unaligned __attribute__((aligned(sizeof(float)), may_alias));

#define INLINE TARGET inline __attribute__((always_inline))

INLINE Vector load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }

INLINE void store(float* to, Vector value) { *reinterpret_cast<Unaligned*>(to) = value; }

INLINE float total(Vector value) {
    float lanes[WIDTH];
    store(lanes, value);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// e^x by 2^n e^r, |r| <= ln 2 / 2, and a polynomial for e^r (Cephes, Moshier 1992); about 2 units in the last place.
// Below -87 and above 88 it stays at the ends. A NaN stays one.
INLINE Vector exponential(Vector x) {
    const Vector low = Vector{} - 87.0f, high = Vector{} + 88.0f;
    x = x < low ? low : x;
    x = x > high ? high : x;
    const Vector shift = Vector{} + 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
    const Vector shifted = x * 1.44269504f + shift;
    const Vector whole = shifted - shift;
    const Vector r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Integers exponent = (reinterpret_cast<Integers>(shifted) - reinterpret_cast<Integers>(shift)) + 127;
    return p * reinterpret_cast<Vector>(exponent << 23);
}

// ---- products

// tile[p][r] (+)= x[r] . panel p, over `depth` inputs: R rows and P panels in registers. Each sum is one run in the
// order of the inputs, whatever R and P are, so that a row's result does not depend on the rows beside it.
template <int R, int P>
TARGET void block(const Block& b) {
    Vector sums[P][R][PARTS] = {};
    const float *weights = b.weights, *x = b.x;
    const char* ahead = b.ahead;
    const int64_t x_stride = b.x_stride, panel_stride = b.panel_stride;
#pragma GCC unroll 2
    for (int64_t k = 0; k < b.depth; ++k) {
        __builtin_prefetch(ahead);
        ahead += b.ahead_step;
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
            Vector w[PARTS];
#pragma GCC unroll 8
            for (int v = 0; v < PARTS; ++v) w[v] = load(weights + p * panel_stride + v * WIDTH);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
                for (int v = 0; v < PARTS; ++v) sums[p][r][v] += x[r * x_stride + k] * w[v];
        }
        weights += PANEL;
    }
    float* tile = b.tile;
    const int64_t tile_stride = b.tile_stride;
    const bool first = b.first;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
            for (int v = 0; v < PARTS; ++v) {
                float* sum = tile + p * tile_stride + r * PANEL + v * WIDTH;
                store(sum, first ? sums[p][r][v] : load(sum) + sums[p][r][v]);
            }
}

template <int P, int... R>
constexpr std::array<BlockFunction, sizeof...(R)> blocks(std::integer_sequence<int, R...>) {
    return {block<R + 1, P>...};
}

// Few rows leave registers for more panels: enough sums are then under way to hide the latency of an addition.
constexpr auto ONE_PANEL = blocks<1>(std::make_integer_sequence<int, BLOCK_ROWS>());
constexpr auto TWO_PANELS = blocks<2>(std::make_integer_sequence<int, 2>());
constexpr auto FOUR_PANELS = blocks<4>(std::make_integer_sequence<int, 1>());

TARGET int panels_at_once(int64_t rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

// Sums of `count` panels, beginning with `panel`, into tile [count][rows][PANEL].
TARGET void sum_panels(const Matrix& m, const Rows& x, int64_t panel, int count, float* tile) {
    const int64_t groups = (x.count + BLOCK_ROWS - 1) / BLOCK_ROWS, least = x.count / groups, longer = x.count % groups;
    const float* weights = m.panels + panel * m.in * PANEL;
    for (int64_t k = 0; k < m.in; k += RUN) {
        const int64_t depth = std::min(RUN, m.in - k);
        // Each group of rows fetches its share of the weights that follow. Panels side by side are hardly computed
        // with: the processor looks ahead by itself then, and is better left to it.
        const char* next = reinterpret_cast<const char*>(weights + (count == 1 ? k + depth : k) * PANEL);
        const int64_t step = count == 1 ? LINE / groups : 0;
        int64_t row = 0;
        for (int64_t group = 0; group < groups; ++group) {
            const int64_t rows = least + (group < longer);
            const Block b{x.data + row * x.stride + k, x.stride, weights + k * PANEL, m.in * PANEL, depth,
                          tile + row * PANEL, x.count * PANEL, k == 0, next + group * depth * step, step};
            (count == 4 ? FOUR_PANELS[rows - 1] : count == 2 ? TWO_PANELS[rows - 1] : ONE_PANEL[rows - 1])(b);
            row += rows;
        }
    }
}

// What is done with a panel's sums. `up`: the sums that belong to those of `tile` in SILU_MUL.
TARGET void finish(const Product& t, int64_t row, int64_t rows, int64_t panel, const float* tile, const float* up) {
    const int64_t columns = std::min<int64_t>(PANEL, t.columns - panel * PANEL);
    const float* bias = t.matrix->bias ? t.matrix->bias + panel * PANEL : nullptr;
    for (int64_t r = 0; r < rows; ++r, tile += PANEL, up += PANEL) {
        float edge[PANEL] = {};
        float* y = t.y + (row + r) * t.columns + panel * PANEL;
        float* to = columns == PANEL ? y : edge;
        if (to == edge && t.epilogue == ADD) std::memcpy(edge, y, columns * sizeof(float));
        for (int v = 0; v < PANEL; v += WIDTH) {
            Vector sum = load(tile + v);
            if (bias) sum += load(bias + v);
            if (t.epilogue == ADD) sum += load(to + v);
            if (t.epilogue == SILU_MUL) {
                const Vector factor = bias ? load(up + v) + load(bias + t.columns + v) : load(up + v);
                sum = sum / (exponential(-sum) + 1.0f) * factor;
            }
            store(to + v, sum);
        }
        if (to == edge) std::memcpy(y, edge, columns * sizeof(float));
    }
}

TARGET void norm_row(const float* x, const float* weight, float eps, int64_t size, float* y) {
    const int64_t even = size / WIDTH * WIDTH;
    Vector squares{};
    float rest = 0;
    for (int64_t i = 0; i < even; i += WIDTH) squares += load(x + i) * load(x + i);
    for (int64_t i = even; i < size; ++i) rest += x[i] * x[i];
    const float scale = 1 / std::sqrt((total(squares) + rest) / size + eps);
    for (int64_t i = 0; i < even; i += WIDTH) store(y + i, load(x + i) * scale * load(weight + i));
    for (int64_t i = even; i < size; ++i) y[i] = x[i] * scale * weight[i];
}

// Rows row .. row+count-1 as the product wants them: normalised, and so far apart that they do not compete for the same
// places of the nearest cache, which they do when they are a power of two apart.
TARGET Rows rows_of(const Product& t, int64_t row, int64_t count, float* y) {
    const int64_t in = t.matrix->in, stride = spread(in);
    for (int64_t r = 0; r < count; ++r) {
        const float* x = t.x + (row + r) * t.x_stride;
        if (t.norm)
            norm_row(x, t.norm, t.eps, in, y + r * stride);
        else
            std::memcpy(y + r * stride, x, in * sizeof(float));
    }
    return {y, stride, count};
}

// One thread's part of a product: it takes chunks of panels until none is left.
TARGET void multiply(Product& t) {
    const int64_t panels = (t.columns + PANEL - 1) / PANEL, chunks = (panels + t.chunk - 1) / t.chunk;
    const int64_t row_blocks = (t.rows + t.block_rows - 1) / t.block_rows;
    const bool gated = t.epilogue == SILU_MUL;
    const int64_t most = std::min(t.rows, t.block_rows), tile_size = 4 * most * PANEL;
    float* tile = scratch(2 * tile_size + most * spread(t.matrix->in));
    int64_t current = -1;
    Rows x{};
    for (int64_t unit; (unit = t.next.fetch_add(1, std::memory_order_relaxed)) < row_blocks * chunks;) {
        const int64_t row = unit / chunks * t.block_rows, count = std::min(t.block_rows, t.rows - row);
        if (row != current) x = rows_of(t, current = row, count, tile + 2 * tile_size);
        const int64_t end = std::min(panels, (unit % chunks + 1) * t.chunk);
        for (int64_t panel = unit % chunks * t.chunk; panel < end;) {
            const int wide = panels_at_once(count), together = end - panel < wide ? 1 : wide;
            sum_panels(*t.matrix, x, panel, together, tile);
            if (gated) sum_panels(*t.matrix, x, panels + panel, together, tile + tile_size);
            for (int p = 0; p < together; ++p, ++panel)
                finish(t, row, count, panel, tile + p * count * PANEL, tile + tile_size + p * count * PANEL);
        }
    }
}

TARGET void norm_rows(Norm& t) {
    for (int64_t row; (row = t.next.fetch_add(t.chunk, std::memory_order_relaxed)) < t.rows;)
        for (int64_t r = row; r < std::min(t.rows, row + t.chunk); ++r)
            norm_row(t.x + r * t.x_stride, t.weight, t.eps, t.size, t.y + r * t.size);
}

// ---- rotary embedding

TARGET void rotate(float* x, const float* cos, const float* sin, int64_t dim) {
    const int64_t half = dim / 2;
    int64_t i = 0;
    for (; i + WIDTH <= half; i += WIDTH) {
        const Vector a = load(x + i), b = load(x + half + i);
        store(x + i, a * load(cos + i) + b * load(sin + i));
        store(x + half + i, b * load(cos + half + i) + a * load(sin + half + i));
    }
    for (; i < half; ++i) {
        const float a = x[i], b = x[half + i];
        x[i] = a * cos[i] + b * sin[i];
        x[half + i] = b * cos[half + i] + a * sin[half + i];
    }
}

TARGET void rope(Rope& t) {
    const int64_t dim = t.dim, q_heads = t.heads - 2 * t.kv_heads, rotated = q_heads + t.kv_heads;
    for (int64_t token; (token = t.next.fetch_add(1, std::memory_order_relaxed)) < t.tokens;) {
        float* row = t.qkv + token * t.heads * dim;
        for (int64_t head = 0; head < rotated; ++head) {
            float* x = row + head * dim;
            if (t.q_norm) norm_row(x, head < q_heads ? t.q_norm : t.k_norm, t.eps, dim, x);
            rotate(x, t.cos + token * dim, t.sin + token * dim, dim);
        }
        for (int64_t head = 0; head < 2 * t.kv_heads; ++head)
            std::memcpy(t.pool + (head * t.places + t.write_index[token]) * dim, row + (q_heads + head) * dim,
                        dim * sizeof(float));
    }
}

// ---- attention

// scores[q][t] = q . k over Q queries and T tokens
template <int Q, int T>
INLINE void score(const float* q, const float* k, int64_t dim, float scale, float* scores) {
    Vector sums[Q][T] = {};
    float rest[Q][T] = {};
    int64_t i = 0;
    for (; i + WIDTH <= dim; i += WIDTH)
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t)
#pragma GCC unroll 8
            for (int n = 0; n < Q; ++n) sums[n][t] += load(q + n * dim + i) * load(k + t * dim + i);
    for (; i < dim; ++i)
        for (int t = 0; t < T; ++t)
            for (int n = 0; n < Q; ++n) rest[n][t] += q[n * dim + i] * k[t * dim + i];
    for (int t = 0; t < T; ++t)
        for (int n = 0; n < Q; ++n) scores[n * TILE_TOKENS + t] = (total(sums[n][t]) + rest[n][t]) * scale;
}

template <int Q>
INLINE void score_block(const float* q, const float* k, int64_t tokens, int64_t dim, float scale, float* scores) {
    int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) score<Q, 4>(q, k + t * dim, dim, scale, scores + t);
    for (; t < tokens; ++t) score<Q, 1>(q, k + t * dim, dim, scale, scores + t);
}

// values[q] = values[q] * fades[q] + weights[q] . v over Q queries and C vectors of the head. The tile's own run comes
// first: short runs, added up, keep more digits than a long one.
template <int Q, int C>
INLINE void weigh(const Tile& tile, const float* weights, const float* fades, const float* v, int64_t i,
                  float* values) {
    Vector sums[Q][C] = {};
    for (int64_t t = 0; t < tile.tokens; ++t) {
        const float* token = tile.token(v, t) + i;
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c)
#pragma GCC unroll 8
            for (int n = 0; n < Q; ++n) sums[n][c] += weights[n * TILE_TOKENS + t] * load(token + c * WIDTH);
    }
#pragma GCC unroll 8
    for (int n = 0; n < Q; ++n)
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
            float* value = values + n * tile.dim + i + c * WIDTH;
            store(value, load(value) * fades[n] + sums[n][c]);
        }
}

template <int Q>
INLINE void weigh_tile(const Tile& tile, const float* weights, const float* fades, const float* v, float* values) {
    int64_t i = 0;
    for (; i + 4 * WIDTH <= tile.dim; i += 4 * WIDTH) weigh<Q, 4>(tile, weights, fades, v, i, values);
    for (; i + WIDTH <= tile.dim; i += WIDTH) weigh<Q, 1>(tile, weights, fades, v, i, values);
    for (; i < tile.dim; ++i)
        for (int n = 0; n < Q; ++n) {
            float sum = 0;
            for (int64_t t = 0; t < tile.tokens; ++t) sum += weights[n * TILE_TOKENS + t] * tile.token(v, t)[i];
            values[n * tile.dim + i] = values[n * tile.dim + i] * fades[n] + sum;
        }
}

// Scores to weights e^(score - top) in place, where top is the largest so far; `state` follows. Returns what earlier
// sums are to be multiplied by.
TARGET float soften(float* scores, int64_t tokens, Softmax& state) {
    const int64_t padded = (tokens + WIDTH - 1) / WIDTH * WIDTH;
    for (int64_t t = tokens; t < padded; ++t) scores[t] = -INFINITY;
    Vector tops = load(scores), sums{};
    for (int64_t t = WIDTH; t < padded; t += WIDTH) tops = load(scores + t) > tops ? load(scores + t) : tops;
    float lanes[WIDTH], top = state.top;
    store(lanes, tops);
    for (float lane : lanes) top = std::max(top, lane);
    for (int64_t t = 0; t < padded; t += WIDTH) {
        const Vector weights = exponential(load(scores + t) - top);
        store(scores + t, weights);
        sums += weights;
    }
    const float fade = std::exp(state.top - top);
    state = {top, state.sum * fade + total(sums)};
    return fade;
}

// Q queries of one token over one tile of keys and values.
template <int Q>
TARGET void attend_tile(const Tile& tile, const float* q, Softmax* states, float* values) {
    alignas(LINE) float scores[Q * TILE_TOKENS];
    float fades[Q];
    for (int64_t t = 0; t < tile.tokens;) {
        const int64_t together = std::min(tile.tokens - t, tile.block_size - (tile.begin + t) % tile.block_size);
        score_block<Q>(q, tile.token(tile.keys, t), together, tile.dim, tile.scale, scores + t);
        t += together;
    }
    for (int n = 0; n < Q; ++n) fades[n] = soften(scores + n * TILE_TOKENS, tile.tokens, states[n]);
    weigh_tile<Q>(tile, scores, fades, tile.values, values);
}

// A unit is some tokens of a row and some heads that share keys; its queries take turns at each tile of them.
TARGET void attend_unit(const Attention& t, int64_t first, int64_t head, float* values) {
    const int64_t tokens = std::min(t.unit_tokens, t.tokens - first), heads = t.unit_heads, dim = t.dim;
    const int64_t kv_head = head / (t.heads / t.kv_heads);
    Softmax states[UNIT_QUERIES];
    std::fill_n(states, tokens * heads, Softmax{-INFINITY, 0});
    std::fill_n(values, tokens * heads * dim, 0.0f);
    // Tiles begin at the same positions for every token, so that how a prompt was cut does not change a sum.
    for (int64_t begin = t.begin(first) / TILE_TOKENS * TILE_TOKENS; begin < t.length(first + tokens - 1);
         begin += TILE_TOKENS)
        for (int64_t token = 0; token < tokens; ++token) {
            const int64_t from = std::max(begin, t.begin(first + token));
            const int64_t to = std::min(begin + TILE_TOKENS, t.length(first + token));
            if (from >= to) continue;
            const Tile tile = t.tile(first + token, kv_head, from, to - from);
            const float* q = t.q + (first + token) * t.q_stride + head * dim;
            int64_t h = 0;
            for (; h + 3 <= heads; h += 3)
                attend_tile<3>(tile, q + h * dim, states + token * heads + h, values + (token * heads + h) * dim);
            for (; h < heads; ++h)
                attend_tile<1>(tile, q + h * dim, states + token * heads + h, values + (token * heads + h) * dim);
        }
    for (int64_t n = 0; n < tokens * heads; ++n) {
        float* out = t.out + ((first + n / heads) * t.heads + head + n % heads) * dim;
        for (int64_t i = 0; i < dim; ++i) out[i] = values[n * dim + i] / states[n].sum;
    }
}

TARGET void attend(Attention& t) {
    float* values = scratch(t.unit_tokens * t.unit_heads * t.dim);
    const int64_t parts = t.heads / t.unit_heads, token_units = (t.tokens + t.unit_tokens - 1) / t.unit_tokens;
    // The last tokens of a prompt see the most: they begin.
    for (int64_t unit; (unit = t.next.fetch_add(1, std::memory_order_relaxed)) < token_units * parts;)
        attend_unit(t, (token_units - 1 - unit / parts) * t.unit_tokens, unit % parts * t.unit_heads, values);
}

#undef INLINE
}  // namespace SIMD
