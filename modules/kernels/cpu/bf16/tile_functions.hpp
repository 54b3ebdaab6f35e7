// Products of bf16 matrices in tiles: 16 × 16 fp32 sums are increased by the product of a left tile [16 rows, 32 terms]
// and a right tile [32 terms, 16 columns]. The right tile's terms lie in pairs: 2p and 2p + 1 of a column side by side.
//
// Operands are packed first: as panels of 16 rows, or columns, a panel being its tiles one after another along the sum.
// Rows, columns and terms that are missing in the last tile are zeros. As in vector/, these are plain functions over
// pointers, compiled for their own instruction set.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/element.hpp"

namespace lockstep::kernels::cpu {

template <class T>
struct Attention;

struct TileFunctions {
    static constexpr std::int64_t side = 16;            // rows or columns of a panel
    static constexpr std::int64_t depth = 32;           // terms of a tile
    static constexpr std::int64_t tile = side * depth;  // elements of a packed tile

    // Two panels of up to 16 rows, or columns, each, with `terms` of the sum, in `tiles` tiles. `rows_are_terms`:
    // element (i, term) is data[term * stride + i], otherwise data[i * stride + term]. The second is packed behind the
    // first.
    struct Panels {
        const bf16* data;
        std::int64_t stride;
        bool rows_are_terms;
        std::int64_t count, terms, tiles;
    };
    void (*pack_left)(bf16* packed, const Panels& panels);
    void (*pack_right)(bf16* packed, const Panels& panels);

    // Where sums go: c [rows, columns] = or += the sums, plus a bias over the columns.
    struct Result {
        void* c;
        std::int64_t stride;
        bool c_is_bf16, accumulate;
        const void* bias;  // may be null
        bool bias_is_bf16;
        std::int64_t rows, columns;
        bool around_caches;  // c is better written past the caches; it begins at, and `stride` is, whole 64 bytes
    };
    // Products of `row_panels` and `column_panels`, both even, of `tiles` tiles each. Sums that later calls complete
    // are kept in `sums`: tiles of 16 rows of 16, rows of tiles `sums_stride` tiles apart.
    struct Block {
        const bf16 *left, *right;
        std::int64_t row_panels, column_panels, tiles;
        float* sums;
        std::int64_t sums_stride;
        bool first, last;  // begins the sums; completes them
        Result result;     // of the last call
    };
    void (*multiply)(const Block& block);
};

// On x86 only, for processors with AMX and with AVX512-BF16.
namespace amx {
extern const TileFunctions tile_functions;
extern const Attention<bf16> attention_bf16;
}  // namespace amx
namespace avx512_bf16 {
extern const Attention<bf16> attention_bf16;
}  // namespace avx512_bf16

}  // namespace lockstep::kernels::cpu
