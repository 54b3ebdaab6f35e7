// mma.m16n8k16, ldmatrix and movmatrix, carried out for a whole warp.
#pragma once

#include "cuda_emulation/warp.hpp"

namespace lockstep::emulation {

struct Product {  // of one lane: 4 sums, 4 registers of A, 2 of B
    float* d;
    const unsigned* a;
    const unsigned* b;
};
struct MatrixRow {
    const void* row;
    unsigned* registers;
};
struct MovedMatrix {
    unsigned value, result;
};

void carry_out_mma_bf16(unsigned mask, void* const* arguments);
void carry_out_mma_fp16(unsigned mask, void* const* arguments);
void carry_out_ldmatrix_x4(unsigned mask, void* const* arguments);
void carry_out_ldmatrix_x4_transposed(unsigned mask, void* const* arguments);
void carry_out_ldmatrix_x2_transposed(unsigned mask, void* const* arguments);
void carry_out_movmatrix_transposed(unsigned mask, void* const* arguments);

inline constexpr WarpOperation mma_bf16{"mma_16x8x16 (bf16)", carry_out_mma_bf16};
inline constexpr WarpOperation mma_fp16{"mma_16x8x16 (fp16)", carry_out_mma_fp16};
inline constexpr WarpOperation ldmatrix_x4{"load_matrix_x4", carry_out_ldmatrix_x4};
inline constexpr WarpOperation ldmatrix_x4_transposed{"load_matrix_x4_transposed", carry_out_ldmatrix_x4_transposed};
inline constexpr WarpOperation ldmatrix_x2_transposed{"load_matrix_x2_transposed", carry_out_ldmatrix_x2_transposed};
inline constexpr WarpOperation movmatrix_transposed{"move_matrix_transposed", carry_out_movmatrix_transposed};

}  // namespace lockstep::emulation
