// Matrix products of bf16 operands in AMX tiles. Sums are added in a fixed order, whatever the number of threads.
#pragma once

#include "device/tensor.hpp"
#include "kernels/cpu/bf16/tile_functions.hpp"

namespace lockstep::kernels::cpu {

// c [m, n] = or += op(a) op(b) + bias; all sizes positive. Strides are from row to row, as stored.
struct Bf16Product {
    std::int64_t m, n, k;
    const bf16* a;
    std::int64_t stride_a;
    bool transpose_a;  // a is stored as [k, m]
    const bf16* b;
    std::int64_t stride_b;
    bool transpose_b;         // b is stored as [n, k]
    TileFunctions::Result c;  // where it is; the rest is filled in
};

// Floats that a product of these sizes needs, 64-byte aligned: its packed operands and sums, of a part at a time.
std::int64_t bf16_product_floats(std::int64_t m, std::int64_t n, std::int64_t k);

void bf16_multiply(const TileFunctions& functions, const Bf16Product& product, float* scratch);

}  // namespace lockstep::kernels::cpu
