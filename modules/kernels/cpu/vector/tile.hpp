// Products of small matrices in cache, accumulated in registers: as many as fit AVX2's 16 or AVX-512's 32. oneDNN's
// cost per call is too high for tiles of this size.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// Rows of accumulators, of two vectors each, or one if the row is narrower. At least 8 independent sums are needed to
// keep two units of 4 cycles' latency busy.
#if defined(__AVX512F__)
static constexpr std::int64_t vector_bytes = 64;
static constexpr int tile_rows = 8, narrow_tile_rows = 16;
#elif defined(__AVX__)
static constexpr std::int64_t vector_bytes = 32;
static constexpr int tile_rows = 6, narrow_tile_rows = 6;
#else
static constexpr std::int64_t vector_bytes = 16;
static constexpr int tile_rows = 6, narrow_tile_rows = 6;
#endif
static constexpr std::int64_t vector_width = vector_bytes / 4;

typedef float Vector __attribute__((vector_size(vector_bytes), aligned(4), may_alias));

// Element (row, column) of a matrix: data[row · row_stride + column · column_stride].
struct TileOperand {
    const float* data;
    std::int64_t row_stride, column_stride;
};

// One term of a sum of products: a [m, k] · b [k, n], rows of b `b_stride` apart.
struct TileTerm {
    TileOperand a;
    const float* b;
    std::int64_t b_stride, k;
};

// Where a sum of products is stored and what it is added to: a matrix (`data` itself, or another), or one number per
// row, or, if both are null, nothing.
struct TileOutput {
    float* data;
    std::int64_t stride;
    const float* base;
    std::int64_t base_stride;
    const float* row_base;
};

#define LOCKSTEP_ALWAYS_INLINE static inline __attribute__((always_inline))

template <int rows, int vectors>
LOCKSTEP_ALWAYS_INLINE void tile_add(Vector (&sum)[rows][vectors], const TileTerm& term, std::int64_t i,
                                     std::int64_t j) {
    const float *a = term.a.data + i * term.a.row_stride, *b = term.b + j;
    for (std::int64_t p = 0; p < term.k; ++p) {
        Vector right[vectors];
        for (int v = 0; v < vectors; ++v)
            right[v] = *reinterpret_cast<const Vector*>(b + p * term.b_stride + v * vector_width);
        for (int r = 0; r < rows; ++r) {
            const float left = a[r * term.a.row_stride + p * term.a.column_stride];
            for (int v = 0; v < vectors; ++v) sum[r][v] += left * right[v];
        }
    }
}

template <int rows, int vectors, class... Terms>
LOCKSTEP_ALWAYS_INLINE void tile_block(const TileOutput& c, std::int64_t i, std::int64_t j, const Terms&... terms) {
    Vector sum[rows][vectors];
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) sum[r][v] = Vector{};
    (tile_add<rows, vectors>(sum, terms, i, j), ...);
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < vectors; ++v) {
            const std::int64_t column = j + v * vector_width;
            if (c.base)
                sum[r][v] += *reinterpret_cast<const Vector*>(c.base + (i + r) * c.base_stride + column);
            else if (c.row_base)
                sum[r][v] += c.row_base[i + r];
            *reinterpret_cast<Vector*>(c.data + (i + r) * c.stride + column) = sum[r][v];
        }
}

template <int rows, class... Terms>
LOCKSTEP_ALWAYS_INLINE void tile_band(const TileOutput& c, std::int64_t i, std::int64_t n, const Terms&... terms) {
    std::int64_t j = 0;
    for (; j + 2 * vector_width <= n; j += 2 * vector_width) tile_block<rows, 2>(c, i, j, terms...);
    for (; j + vector_width <= n; j += vector_width) tile_block<rows, 1>(c, i, j, terms...);
}

// c [m, n] = base + the sum of the products, in their order and that of k. n is a multiple of vector_width. For sizes
// and strides known at compile time: everything is inlined.
template <class... Terms>
LOCKSTEP_ALWAYS_INLINE void tile_sum(const TileOutput& c, std::int64_t m, std::int64_t n, const Terms&... terms) {
    std::int64_t i = 0;
    if (n < 2 * vector_width)
        for (; i + narrow_tile_rows <= m; i += narrow_tile_rows) tile_band<narrow_tile_rows>(c, i, n, terms...);
    for (; i + tile_rows <= m; i += tile_rows) tile_band<tile_rows>(c, i, n, terms...);
    for (; i + 4 <= m; i += 4) tile_band<4>(c, i, n, terms...);
    for (; i + 2 <= m; i += 2) tile_band<2>(c, i, n, terms...);
    if (i < m) tile_band<1>(c, i, n, terms...);
}

// c [m, n] (rows c_stride apart) = or += a [m, k] · b [k, n] (rows b_stride apart). `a` may be a transpose: its strides
// are arbitrary. The order of summation over k is fixed. n should be whole vectors: pad where that is cheap.
static inline __attribute__((noinline)) void tile_product(float* c, std::int64_t c_stride, TileOperand a,
                                                          const float* b, std::int64_t b_stride, std::int64_t m,
                                                          std::int64_t n, std::int64_t k, bool accumulate) {
    const std::int64_t whole = n / vector_width * vector_width;
    tile_sum({c, c_stride, accumulate ? c : nullptr, c_stride, nullptr}, m, whole, TileTerm{a, b, b_stride, k});
    for (std::int64_t i = 0; i < m && whole < n; ++i)
        for (std::int64_t j = whole; j < n; ++j) {
            float sum = 0;
            for (std::int64_t p = 0; p < k; ++p)
                sum += a.data[i * a.row_stride + p * a.column_stride] * b[p * b_stride + j];
            c[i * c_stride + j] = accumulate ? c[i * c_stride + j] + sum : sum;
        }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
