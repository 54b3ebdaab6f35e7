// Packs tiles of bf16 (tile_functions.hpp says how) for products in registers.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/bf16/tile_functions.hpp"
#include "kernels/cpu/vector/math.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static constexpr std::int64_t side = TileFunctions::side, depth = TileFunctions::depth, tile = TileFunctions::tile,
                              sums_of_tile = side * side;
static_assert(depth == 2 * side);  // a word of a packed tile is two terms

// A tile as 16 registers of 16 words; a word is the terms 2p and 2p + 1 of one row or column.
struct Words {
    __m512i of[side];
};

// One of two panels, and its place in the sum.
struct Place {
    std::int64_t panel, term;
};

// Word p of register i: of row, or column, i.
static inline Words words_by_row(const TileFunctions::Panels& panels, const Place& at) {
    const std::int64_t terms = least(depth, panels.terms - at.term), first = at.panel * side;
    const auto mask = static_cast<__mmask32>(terms <= 0 ? 0 : (std::uint64_t{1} << terms) - 1);
    Words words;
    for (std::int64_t i = 0; i < side; ++i)
        words.of[i] = first + i < panels.count
                          ? _mm512_maskz_loadu_epi16(mask, panels.data + (first + i) * panels.stride + at.term)
                          : _mm512_setzero_si512();
    return words;
}

// Word i of register p: of row, or column, i.
static inline Words words_by_pair(const TileFunctions::Panels& panels, const Place& at) {
    const std::int64_t first = at.panel * side, count = panels.count - first;
    const auto mask = static_cast<__mmask16>(count <= 0 ? 0 : (std::uint32_t{1} << least(side, count)) - 1);
    const auto term = [&](std::int64_t number) {
        if (number >= panels.terms) return _mm512_setzero_si512();
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, panels.data + number * panels.stride + first));
    };
    Words words;
    for (std::int64_t p = 0; p < side; ++p) {
        const __m512i even = term(at.term + 2 * p), odd = term(at.term + 2 * p + 1);
        words.of[p] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
    return words;
}

static inline Words transposed(const Words& x) {
    Words a, b;
    for (std::int64_t i = 0; i < side; i += 2) {
        a.of[i] = _mm512_unpacklo_epi32(x.of[i], x.of[i + 1]);
        a.of[i + 1] = _mm512_unpackhi_epi32(x.of[i], x.of[i + 1]);
    }
    for (std::int64_t i = 0; i < side; i += 4)
        for (std::int64_t j = 0; j < 2; ++j) {
            b.of[i + 2 * j] = _mm512_unpacklo_epi64(a.of[i + j], a.of[i + j + 2]);
            b.of[i + 2 * j + 1] = _mm512_unpackhi_epi64(a.of[i + j], a.of[i + j + 2]);
        }
    // Now register i + j has, in its 128-bit lane l, word 4 l + j of rows i to i + 3 (i a multiple of 4).
    for (std::int64_t j = 0; j < 4; ++j) {
        a.of[j] = _mm512_shuffle_i32x4(b.of[j], b.of[4 + j], 0x88);
        a.of[4 + j] = _mm512_shuffle_i32x4(b.of[j], b.of[4 + j], 0xdd);
        a.of[8 + j] = _mm512_shuffle_i32x4(b.of[8 + j], b.of[12 + j], 0x88);
        a.of[12 + j] = _mm512_shuffle_i32x4(b.of[8 + j], b.of[12 + j], 0xdd);
    }
    for (std::int64_t j = 0; j < 4; ++j) {
        b.of[j] = _mm512_shuffle_i32x4(a.of[j], a.of[8 + j], 0x88);
        b.of[8 + j] = _mm512_shuffle_i32x4(a.of[j], a.of[8 + j], 0xdd);
        b.of[4 + j] = _mm512_shuffle_i32x4(a.of[4 + j], a.of[12 + j], 0x88);
        b.of[12 + j] = _mm512_shuffle_i32x4(a.of[4 + j], a.of[12 + j], 0xdd);
    }
    return b;
}

static inline void store_tile(bf16* packed, const Words& words) {
    for (std::int64_t i = 0; i < side; ++i) _mm512_store_si512(packed + i * depth, words.of[i]);
}

// words(place) for all tiles of both panels.
template <class Function>
static inline void pack(bf16* packed, const TileFunctions::Panels& panels, const Function& words) {
    for (std::int64_t t = 0; t < panels.tiles; ++t)
        for (std::int64_t panel = 0; panel < 2; ++panel)
            store_tile(packed + (panel * panels.tiles + t) * tile, words(Place{panel, t * depth}));
}

static inline void pack_left(bf16* packed, const TileFunctions::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_pair(panels, at)); });
    else
        pack(packed, panels, [&](const Place& at) { return words_by_row(panels, at); });
}

static inline void pack_right(bf16* packed, const TileFunctions::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return words_by_pair(panels, at); });
    else
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_row(panels, at)); });
}

// c [rows, columns], rows `stride` floats apart, = or += left · right, of whole pairs of panels. tiles_in_amx.hpp and
// tiles_in_avx512.hpp each define multiply_tiles(product), and Tiles, of which a thread holds one meanwhile.
struct TileProduct {
    float* c;
    std::int64_t stride;
    const bf16 *left, *right;
    std::int64_t row_panels, column_panels, tiles;
    bool add;
};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
