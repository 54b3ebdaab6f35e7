#include <immintrin.h>

#include "kernels/cpu/amx/amx.hpp"

namespace lockstep::kernels::cpu {

namespace {

constexpr std::int64_t side = Amx::side, depth = Amx::depth, tile = Amx::tile, sums_of_tile = side * side;

std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
}

// --- packing ----------------------------------------------------------------------------------------------------

// A tile as 16 registers of 16 words; a word is the terms 2p and 2p + 1 of one row or column.
struct Words {
    __m512i of[side];
};

// One of two panels, and its place in the sum.
struct Place {
    std::int64_t panel, term;
};

// Word p of register i: of row, or column, i.
inline Words words_by_row(const Amx::Panels& panels, const Place& at) {
    const std::int64_t terms = least(depth, panels.terms - at.term), first = at.panel * side;
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << terms) - 1);
    Words words;
    for (std::int64_t i = 0; i < side; ++i)
        words.of[i] = first + i < panels.count
                          ? _mm512_maskz_loadu_epi16(mask, panels.data + (first + i) * panels.stride + at.term)
                          : _mm512_setzero_si512();
    return words;
}

// Word i of register p: of row, or column, i.
inline Words words_by_pair(const Amx::Panels& panels, const Place& at) {
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

inline Words transposed(const Words& x) {
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

inline void store_tile(bf16* packed, const Words& words) {
    for (std::int64_t i = 0; i < side; ++i) _mm512_store_si512(packed + i * depth, words.of[i]);
}

// words(place) for all tiles of both panels.
template <class Function>
inline void pack(bf16* packed, const Amx::Panels& panels, const Function& words) {
    const std::int64_t tiles = (panels.terms + depth - 1) / depth;
    for (std::int64_t t = 0; t < tiles; ++t)
        for (std::int64_t panel = 0; panel < 2; ++panel)
            store_tile(packed + (panel * tiles + t) * tile, words(Place{panel, t * depth}));
}

void pack_left(bf16* packed, const Amx::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_pair(panels, at)); });
    else
        pack(packed, panels, [&](const Place& at) { return words_by_row(panels, at); });
}

void pack_right(bf16* packed, const Amx::Panels& panels) {
    if (panels.rows_are_terms)
        pack(packed, panels, [&](const Place& at) { return words_by_pair(panels, at); });
    else
        pack(packed, panels, [&](const Place& at) { return transposed(words_by_row(panels, at)); });
}

// --- products ---------------------------------------------------------------------------------------------------

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
        _tile_loadconfig(&shapes);
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;
};

inline __m512 load(const void* values, bool are_bf16, std::int64_t at, __mmask16 mask) {
    if (!are_bf16) return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(values) + at);
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, static_cast<const bf16*>(values) + at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

// Two by two tiles of the result, from (row, column) on.
struct Corner {
    std::int64_t row, column;
};

// The lines of the result, wanted soon.
inline void prefetch(const Amx::Result& result, const Corner& at) {
    const std::int64_t width = result.c_is_bf16 ? 2 : 4, lines = result.c_is_bf16 ? 1 : 2;
    const char* const from = static_cast<const char*>(result.c) + (at.row * result.stride + at.column) * width;
    const std::int64_t rows = least(2 * side, result.rows - at.row);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t line = 0; line < lines; ++line)
            __builtin_prefetch(from + row * result.stride * width + line * 64, 1);
}

// `whole`: no column is missing.
template <bool whole>
inline void store_rows(const Amx::Result& result, const Corner& at, const float* sums) {
    const std::int64_t rows = least(2 * side, result.rows - at.row), columns = result.columns - at.column;
    __mmask16 mask[2] = {0xffff, 0xffff};
    if (!whole)
        for (std::int64_t half = 0; half < 2; ++half) {
            const std::int64_t count = least(side, columns - half * side);
            mask[half] = static_cast<__mmask16>(count <= 0 ? 0 : (std::uint32_t{1} << count) - 1);
        }
    __m512 bias[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (result.bias)
        for (std::int64_t half = 0; half < 2; ++half)
            bias[half] = load(result.bias, result.bias_is_bf16, at.column + half * side, mask[half]);
    for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t element = (at.row + i) * result.stride + at.column;
        __m512 value[2];
        for (std::int64_t half = 0; half < 2; ++half) {
            value[half] = _mm512_load_ps(sums + (i / side * 2 + half) * sums_of_tile + i % side * side);
            if (result.bias) value[half] = _mm512_add_ps(value[half], bias[half]);
            if (result.accumulate)
                value[half] =
                    _mm512_add_ps(value[half], load(result.c, result.c_is_bf16, element + half * side, mask[half]));
        }
        if (result.c_is_bf16) {
            bf16* const to = static_cast<bf16*>(result.c) + element;
            const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(value[1], value[0]));
            if (!whole)
                _mm512_mask_storeu_epi16(to, mask[0] | static_cast<__mmask32>(mask[1]) << 16, both);
            else if (result.around_caches)
                _mm512_stream_si512(reinterpret_cast<__m512i*>(to), both);
            else
                _mm512_storeu_si512(to, both);
        } else {
            float* const to = static_cast<float*>(result.c) + element;
            for (std::int64_t half = 0; half < 2; ++half)
                if (!whole)
                    _mm512_mask_storeu_ps(to + half * side, mask[half], value[half]);
                else if (result.around_caches)
                    _mm512_stream_ps(to + half * side, value[half]);
                else
                    _mm512_storeu_ps(to + half * side, value[half]);
        }
    }
}

inline void store(const Amx::Result& result, const Corner& at, const float* sums) {
    if (result.columns - at.column >= 2 * side)
        store_rows<true>(result, at, sums);
    else
        store_rows<false>(result, at, sums);
}

void multiply(const Amx::Block& block) {
    const Tiles configured;
    alignas(64) float complete[4 * sums_of_tile];
    const std::int64_t panel = block.tiles * tile;
    for (std::int64_t column = 0; column < block.column_panels; column += 2)
        for (std::int64_t row = 0; row < block.row_panels; row += 2) {
            // Tiles 0 and 1 of sums, below them 2 and 3.
            float* const top = block.sums + (row * block.sums_stride + column) * sums_of_tile;
            float* const bottom = top + block.sums_stride * sums_of_tile;
            const Corner corner{row * side, column * side};
            if (block.last && !block.result.around_caches) prefetch(block.result, corner);
            if (block.first) {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            } else {
                _tile_loadd(0, top, 64);
                _tile_loadd(1, top + sums_of_tile, 64);
                _tile_loadd(2, bottom, 64);
                _tile_loadd(3, bottom + sums_of_tile, 64);
            }
            const bf16 *left = block.left + row * panel, *right = block.right + column * panel;
            for (std::int64_t t = 0; t < block.tiles; ++t, left += tile, right += tile) {
                _tile_loadd(4, left, 64);
                _tile_loadd(6, right, 64);
                _tile_loadd(7, right + panel, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, left + panel, 64);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            if (block.last) {
                _tile_stored(0, complete, 64);
                _tile_stored(1, complete + sums_of_tile, 64);
                _tile_stored(2, complete + 2 * sums_of_tile, 64);
                _tile_stored(3, complete + 3 * sums_of_tile, 64);
                store(block.result, corner, complete);
            } else {
                _tile_stored(0, top, 64);
                _tile_stored(1, top + sums_of_tile, 64);
                _tile_stored(2, bottom, 64);
                _tile_stored(3, bottom + sums_of_tile, 64);
            }
        }
    if (block.last && block.result.around_caches) _mm_sfence();
}

}  // namespace

constinit const Amx amx_functions = {pack_left, pack_right, multiply};

}  // namespace lockstep::kernels::cpu
