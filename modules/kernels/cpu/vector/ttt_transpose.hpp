// Matrix transposes in tiles of vector_width x vector_width, in registers. Either side may be fp32 or bf16.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"
#include "kernels/cpu/vector/tile.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

typedef std::uint32_t VectorBits __attribute__((vector_size(vector_bytes)));
typedef std::uint16_t HalfVector __attribute__((vector_size(vector_bytes / 2), aligned(2), may_alias));

static inline Vector load_vector(const float* from) {
    return *reinterpret_cast<const Vector*>(from);
}
static inline Vector load_vector(const bf16* from) {
    return (Vector)(__builtin_convertvector(*reinterpret_cast<const HalfVector*>(from), VectorBits) << 16);
}
static inline void store_vector(float* to, Vector x) {
    *reinterpret_cast<Vector*>(to) = x;
}
static inline void store_vector(bf16* to, Vector x) {  // as from_float<bf16>
    const VectorBits word = (VectorBits)x, rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
    const VectorBits is_number = (VectorBits)(x == x);
    *reinterpret_cast<HalfVector*>(to) =
        __builtin_convertvector((rounded & is_number) | (0x7fffu & ~is_number), HalfVector);
}

// Exchanges the off-diagonal blocks of the 2 x 2 blocks of row pairs, `distance` apart.
template <class Exchange>
LOCKSTEP_ALWAYS_INLINE void exchange_rows(Vector (&row)[vector_width], int distance, Exchange&& exchange) {
    for (int r = 0; r < vector_width; ++r)
        if (!(r & distance)) exchange(row[r], row[r + distance]);
}

LOCKSTEP_ALWAYS_INLINE void transpose_rows(Vector (&row)[vector_width]) {
#define LOCKSTEP_EXCHANGE(distance, low, high)                                 \
    exchange_rows(row, distance, [](Vector& a, Vector& b) {                    \
        const Vector first = __builtin_shufflevector(a, b, LOCKSTEP_LIST low); \
        b = __builtin_shufflevector(a, b, LOCKSTEP_LIST high);                 \
        a = first;                                                             \
    })
#define LOCKSTEP_LIST(...) __VA_ARGS__
#if defined(__AVX512F__)
    LOCKSTEP_EXCHANGE(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
                      (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    LOCKSTEP_EXCHANGE(4, (0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27),
                      (4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31));
    LOCKSTEP_EXCHANGE(2, (0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
                      (2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
    LOCKSTEP_EXCHANGE(1, (0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30),
                      (1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31));
#elif defined(__AVX__)
    LOCKSTEP_EXCHANGE(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15));
    LOCKSTEP_EXCHANGE(2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15));
    LOCKSTEP_EXCHANGE(1, (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15));
#else
    LOCKSTEP_EXCHANGE(2, (0, 1, 4, 5), (2, 3, 6, 7));
    LOCKSTEP_EXCHANGE(1, (0, 4, 2, 6), (1, 5, 3, 7));
#endif
#undef LOCKSTEP_LIST
#undef LOCKSTEP_EXCHANGE
}

// One tile, with `rows` x `columns` valid elements; the rest of the stored vectors, `stored` wide, becomes 0.
template <class To, class From>
static inline void transpose_part(To* to, std::int64_t to_stride, const From* from, std::int64_t from_stride,
                                  std::int64_t rows, std::int64_t columns, std::int64_t stored) {
    float room[vector_width][vector_width] = {};  // [column][row]
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) room[j][i] = to_float(from[i * from_stride + j]);
    for (std::int64_t j = 0; j < columns; ++j)
        for (std::int64_t i = 0; i < stored; ++i) to[j * to_stride + i] = from_float<To>(room[j][i]);
}

// to [columns, rows] = the transpose of from [rows, columns]; elements rows … padded_rows of each row of `to` become 0.
template <class To, class From>
static inline void transpose(To* to, std::int64_t to_stride, const From* from, std::int64_t from_stride,
                             std::int64_t rows, std::int64_t columns, std::int64_t padded_rows) {
    constexpr std::int64_t w = vector_width;
    for (std::int64_t i = 0; i < padded_rows; i += w)
        for (std::int64_t j = 0; j < columns; j += w) {
            const From* source = from + i * from_stride + j;
            To* target = to + j * to_stride + i;
            if (i + w > rows || j + w > columns) {
                const std::int64_t there = rows - i < w ? rows - i : w, stored = padded_rows - i;
                transpose_part(target, to_stride, source, from_stride, there, columns - j < w ? columns - j : w,
                               stored < w ? stored : w);
                continue;
            }
            Vector row[w];
            for (int r = 0; r < w; ++r) row[r] = load_vector(source + r * from_stride);
            transpose_rows(row);
            for (int c = 0; c < w; ++c) store_vector(target + c * to_stride, row[c]);
        }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
