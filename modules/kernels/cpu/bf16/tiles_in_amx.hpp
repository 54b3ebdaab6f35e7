// Products of tiles in AMX's registers (Intel 64 and IA-32 Architectures SDM, volume 1, chapter 18).
#pragma once

#include "kernels/cpu/bf16/tiles.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

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
