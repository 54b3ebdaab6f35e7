#include "kernels/cpu/bf16/tiles_in_amx.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

constexpr std::int64_t sums_of_tile = side * side;

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
inline void prefetch(const TileFunctions::Result& result, const Corner& at) {
    const std::int64_t width = result.c_is_bf16 ? 2 : 4, lines = result.c_is_bf16 ? 1 : 2;
    const char* const from = static_cast<const char*>(result.c) + (at.row * result.stride + at.column) * width;
    const std::int64_t rows = least(2 * side, result.rows - at.row);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t line = 0; line < lines; ++line)
            __builtin_prefetch(from + row * result.stride * width + line * 64, 1);
}

// `whole`: no column is missing.
template <bool whole>
inline void store_rows(const TileFunctions::Result& result, const Corner& at, const float* sums) {
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

inline void store(const TileFunctions::Result& result, const Corner& at, const float* sums) {
    if (result.columns - at.column >= 2 * side)
        store_rows<true>(result, at, sums);
    else
        store_rows<false>(result, at, sums);
}

void multiply(const TileFunctions::Block& block) {
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
                stores_are_done();
                _tile_loadd(0, top, 64);
                _tile_loadd(1, top + sums_of_tile, 64);
                _tile_loadd(2, bottom, 64);
                _tile_loadd(3, bottom + sums_of_tile, 64);
            }
            add_products(block.left + row * panel, block.right + column * panel, block.tiles);
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

constinit const TileFunctions tile_functions = {pack_left, pack_right, multiply};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
