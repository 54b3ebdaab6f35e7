// Products of small matrices that lie in cache, with the accumulators in registers: 6 rows × 2 vectors at a time, which
// fills the 16 registers of AVX2. oneDNN's cost per call is too high for tiles of this size.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

#if defined(__AVX512F__)
static constexpr std::int64_t vector_bytes = 64;
#elif defined(__AVX__)
static constexpr std::int64_t vector_bytes = 32;
#else
static constexpr std::int64_t vector_bytes = 16;
#endif
static constexpr std::int64_t vector_width = vector_bytes / 4;
static constexpr std::int64_t tile_rows = 6;

typedef float Vector __attribute__((vector_size(vector_bytes), aligned(4), may_alias));

// Where the element (row, column) of a matrix lies: data[row · row_stride + column · column_stride].
struct TileOperand {
    const float* data;
    std::int64_t row_stride, column_stride;
};

template <int rows, int vectors>
static inline void tile_step(float* c, std::int64_t c_stride, const float* a, std::int64_t a_row, std::int64_t a_column,
                             const float* b, std::int64_t b_stride, std::int64_t k, bool accumulate) {
    Vector sum[rows][vectors];
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) sum[i][j] = Vector{};
    for (std::int64_t p = 0; p < k; ++p) {
        Vector right[vectors];
        for (int j = 0; j < vectors; ++j)
            right[j] = *reinterpret_cast<const Vector*>(b + p * b_stride + j * vector_width);
        for (int i = 0; i < rows; ++i) {
            const float left = a[i * a_row + p * a_column];
            for (int j = 0; j < vectors; ++j) sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < vectors; ++j) {
            Vector* out = reinterpret_cast<Vector*>(c + i * c_stride + j * vector_width);
            *out = accumulate ? *out + sum[i][j] : sum[i][j];
        }
}

template <int rows>
static inline void tile_row_band(float* c, std::int64_t c_stride, const float* a, std::int64_t a_row,
                                 std::int64_t a_column, const float* b, std::int64_t b_stride, std::int64_t n,
                                 std::int64_t k, bool accumulate) {
    std::int64_t j = 0;
    for (; j + 2 * vector_width <= n; j += 2 * vector_width)
        tile_step<rows, 2>(c + j, c_stride, a, a_row, a_column, b + j, b_stride, k, accumulate);
    for (; j + vector_width <= n; j += vector_width)
        tile_step<rows, 1>(c + j, c_stride, a, a_row, a_column, b + j, b_stride, k, accumulate);
    for (; j < n; ++j)
        for (int i = 0; i < rows; ++i) {
            float sum = 0;
            for (std::int64_t p = 0; p < k; ++p) sum += a[i * a_row + p * a_column] * b[p * b_stride + j];
            c[i * c_stride + j] = accumulate ? c[i * c_stride + j] + sum : sum;
        }
}

// c [m, n] (rows c_stride apart) = or += a [m, k] · b [k, n] (rows b_stride apart). `a` may be a transpose: its strides
// are free. The order of the sum over k is fixed. Whole vectors in n are best: pad where it is cheap.
static inline void tile_product(float* c, std::int64_t c_stride, TileOperand a, const float* b, std::int64_t b_stride,
                                std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
    std::int64_t i = 0;
    for (; i + tile_rows <= m; i += tile_rows)
        tile_row_band<tile_rows>(c + i * c_stride, c_stride, a.data + i * a.row_stride, a.row_stride, a.column_stride,
                                 b, b_stride, n, k, accumulate);
    float* rest = c + i * c_stride;
    const float* left = a.data + i * a.row_stride;
    switch (m - i) {
        case 5:
            tile_row_band<5>(rest, c_stride, left, a.row_stride, a.column_stride, b, b_stride, n, k, accumulate);
            break;
        case 4:
            tile_row_band<4>(rest, c_stride, left, a.row_stride, a.column_stride, b, b_stride, n, k, accumulate);
            break;
        case 3:
            tile_row_band<3>(rest, c_stride, left, a.row_stride, a.column_stride, b, b_stride, n, k, accumulate);
            break;
        case 2:
            tile_row_band<2>(rest, c_stride, left, a.row_stride, a.column_stride, b, b_stride, n, k, accumulate);
            break;
        case 1:
            tile_row_band<1>(rest, c_stride, left, a.row_stride, a.column_stride, b, b_stride, n, k, accumulate);
            break;
        default:
            break;
    }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
