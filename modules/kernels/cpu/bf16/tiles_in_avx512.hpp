// Products of tiles in vector registers, by AVX512-BF16's products of pairs.
#pragma once

#include "kernels/cpu/bf16/tiles.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

// Unlike AMX's, these need no set-up.
struct Tiles {};

// Eight rows by two right panels at a time: 16 independent sums, half of the registers, for which each load of a right
// panel's 16 words is used eight times.
static inline void multiply_tiles(const TileProduct& product) {
    constexpr std::int64_t height = 8;
    const std::int64_t panel = product.tiles * tile;
    for (std::int64_t row = 0; row < product.row_panels * side; row += height)
        for (std::int64_t column = 0; column < product.column_panels; column += 2) {
            float* const c = product.c + row * product.stride + column * side;
            __m512 sums[height][2];
            for (std::int64_t i = 0; i < height; ++i)
                for (std::int64_t j = 0; j < 2; ++j)
                    sums[i][j] = product.add ? _mm512_loadu_ps(c + i * product.stride + j * side) : _mm512_setzero_ps();
            const bf16* left = product.left + row / side * panel + row % side * depth;
            const bf16* right = product.right + column * panel;
            for (std::int64_t t = 0; t < product.tiles; ++t, left += tile, right += tile)
                for (std::int64_t pair = 0; pair < side; ++pair) {
                    const auto right_0 = (__m512bh)_mm512_load_si512(right + pair * depth),
                               right_1 = (__m512bh)_mm512_load_si512(right + panel + pair * depth);
#pragma GCC unroll 8
                    for (std::int64_t i = 0; i < height; ++i) {
                        std::int32_t word;
                        __builtin_memcpy(&word, left + i * depth + 2 * pair, sizeof word);
                        const auto both = (__m512bh)_mm512_set1_epi32(word);
                        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], both, right_0);
                        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], both, right_1);
                    }
                }
            for (std::int64_t i = 0; i < height; ++i)
                for (std::int64_t j = 0; j < 2; ++j) _mm512_storeu_ps(c + i * product.stride + j * side, sums[i][j]);
        }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
