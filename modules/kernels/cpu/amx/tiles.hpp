// What kernels on AMX tiles share: packing (amx.hpp says how) and the shapes of tiles.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/amx/amx.hpp"
#include "kernels/cpu/vector/math.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

static constexpr std::int64_t side = Amx::side, depth = Amx::depth, tile = Amx::tile, sums_of_tile = side * side;
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
static inline Words words_by_row(const Amx::Panels& panels, const Place& at) {
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
static inline Words words_by_pair(const Amx::Panels& panels, const Place& at) {
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
static inline void pack(bf16* packed, const Amx::Panels& panels, const Function& words) {
    for (std::int64_t t = 0; t < panels.tiles; ++t)
        for (std::int64_t panel = 0; panel < 2; ++panel)
            store_tile(packed + (panel * panels.tiles + t) * tile, words(Place{panel, t * depth}));
}

static inline void pack_left(bf16* packed, const Amx::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_pair(panels, at)); });
    else
        pack(packed, panels, [&](const Place& at) { return words_by_row(panels, at); });
}

static inline void pack_right(bf16* packed, const Amx::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return words_by_pair(panels, at); });
    else
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_row(panels, at)); });
}

// g++'s loads of tiles and of their shapes do not say that they read memory: what was stored before must not move
// behind.
static inline __attribute__((always_inline)) void stores_are_done() {
    asm volatile("" ::: "memory");
}

struct alignas(64) TileShapes {
    std::uint8_t palette, start, reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
};

// All eight tiles whole: 16 rows of 64 bytes.
class Tiles {
  public:
    Tiles() {
        TileShapes shapes = {};
        shapes.palette = 1;
        for (int i = 0; i < 8; ++i) {
            shapes.row_bytes[i] = 64;
            shapes.rows[i] = 16;
        }
        stores_are_done();
        _tile_loadconfig(&shapes);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;
};

// Tiles 0 and 1, below them 2 and 3, += the products of two left and two right panels of `tiles` tiles each.
static inline __attribute__((always_inline)) void add_products(const bf16* left, const bf16* right,
                                                               std::int64_t tiles) {
    const std::int64_t panel = tiles * tile;
    stores_are_done();
    for (std::int64_t t = 0; t < tiles; ++t, left += tile, right += tile) {
        _tile_loadd(4, left, 64);
        _tile_loadd(6, right, 64);
        _tile_loadd(7, right + panel, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, left + panel, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

// c [rows, columns], rows `stride` floats apart, = or += left · right, of whole pairs of panels.
struct TileProduct {
    float* c;
    std::int64_t stride;
    const bf16 *left, *right;
    std::int64_t row_panels, column_panels, tiles;
    bool add;
};
static inline void multiply_tiles(const TileProduct& product) {
    const std::int64_t panel = product.tiles * tile, bytes = product.stride * 4;
    for (std::int64_t row = 0; row < product.row_panels; row += 2)
        for (std::int64_t column = 0; column < product.column_panels; column += 2) {
            float* const top = product.c + row * side * product.stride + column * side;
            float* const bottom = top + side * product.stride;
            if (product.add) {
                stores_are_done();
                _tile_loadd(0, top, bytes);
                _tile_loadd(1, top + side, bytes);
                _tile_loadd(2, bottom, bytes);
                _tile_loadd(3, bottom + side, bytes);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            add_products(product.left + row * panel, product.right + column * panel, product.tiles);
            _tile_stored(0, top, bytes);
            _tile_stored(1, top + side, bytes);
            _tile_stored(2, bottom, bytes);
            _tile_stored(3, bottom + side, bytes);
        }
}

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
