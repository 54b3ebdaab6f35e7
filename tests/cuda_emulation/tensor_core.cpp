#include "cuda_emulation/tensor_core.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "cuda_emulation/block.hpp"
#include "kernels/cuda/element.hpp"

namespace lockstep::emulation {

namespace {

using kernels::cuda::bf16;
using kernels::cuda::fp16;
using kernels::cuda::unpack_high;
using kernels::cuda::unpack_low;

constexpr int lanes = 32;

template <class T>
void put_pair(float* to, unsigned pair, int step) {
    to[0] = unpack_low<T>(pair);
    to[step] = unpack_high<T>(pair);
}

// The products are exact in fp32; sums run over k in ascending order.
template <class T>
void multiply(void* const* arguments) {
    float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < lanes; ++lane) {
        const auto& own = *static_cast<const Product*>(arguments[lane]);
        const int g = lane / 4, t = lane % 4;
        put_pair<T>(&a[g][2 * t], own.a[0], 1);
        put_pair<T>(&a[g + 8][2 * t], own.a[1], 1);
        put_pair<T>(&a[g][2 * t + 8], own.a[2], 1);
        put_pair<T>(&a[g + 8][2 * t + 8], own.a[3], 1);
        put_pair<T>(&b[2 * t][g], own.b[0], 8);
        put_pair<T>(&b[2 * t + 8][g], own.b[1], 8);
        d[g][2 * t] = own.d[0];
        d[g][2 * t + 1] = own.d[1];
        d[g + 8][2 * t] = own.d[2];
        d[g + 8][2 * t + 1] = own.d[3];
    }
    for (int row = 0; row < 16; ++row)
        for (int k = 0; k < 16; ++k)
            for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    for (int lane = 0; lane < lanes; ++lane) {
        const auto& own = *static_cast<const Product*>(arguments[lane]);
        const int g = lane / 4, t = lane % 4;
        own.d[0] = d[g][2 * t];
        own.d[1] = d[g][2 * t + 1];
        own.d[2] = d[g + 8][2 * t];
        own.d[3] = d[g + 8][2 * t + 1];
    }
}

using Matrix = std::uint16_t[8][8];

// This lane's register of a matrix: elements (g, 2t) and (g, 2t+1), or those of its transpose.
unsigned fragment(const Matrix& matrix, int lane, bool transposed) {
    const int g = lane / 4, t = lane % 4;
    const unsigned low = transposed ? matrix[2 * t][g] : matrix[g][2 * t];
    const unsigned high = transposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
    return low | high << 16;
}

void load(void* const* arguments, int matrices, bool transposed) {
    for (int i = 0; i < matrices; ++i) {
        Matrix matrix;
        for (int r = 0; r < 8; ++r) {
            const void* row = static_cast<const MatrixRow*>(arguments[8 * i + r])->row;
            const auto address = reinterpret_cast<std::uintptr_t>(row);
            if (!in_shared_memory(row, 16))
                fail(fmt::format("the row that lane {} names to load_matrix is not in the block's shared memory",
                                 8 * i + r));
            if (address % 16 != 0)
                fail(
                    fmt::format("the row that lane {} names to load_matrix is not 16-byte aligned: it starts {} bytes "
                                "into the shared memory",
                                8 * i + r, address - reinterpret_cast<std::uintptr_t>(shared_begin())));
            std::memcpy(matrix[r], row, 16);
        }
        for (int lane = 0; lane < lanes; ++lane)
            static_cast<const MatrixRow*>(arguments[lane])->registers[i] = fragment(matrix, lane, transposed);
    }
}

}  // namespace

void carry_out_mma_bf16(unsigned, void* const* arguments) {
    multiply<bf16>(arguments);
}
void carry_out_mma_fp16(unsigned, void* const* arguments) {
    multiply<fp16>(arguments);
}
void carry_out_ldmatrix_x4(unsigned, void* const* arguments) {
    load(arguments, 4, false);
}
void carry_out_ldmatrix_x4_transposed(unsigned, void* const* arguments) {
    load(arguments, 4, true);
}
void carry_out_ldmatrix_x2_transposed(unsigned, void* const* arguments) {
    load(arguments, 2, true);
}

void carry_out_movmatrix_transposed(unsigned, void* const* arguments) {
    Matrix matrix;
    for (int lane = 0; lane < lanes; ++lane) {
        const unsigned value = static_cast<const MovedMatrix*>(arguments[lane])->value;
        matrix[lane / 4][2 * (lane % 4)] = static_cast<std::uint16_t>(value & 0xffffu);
        matrix[lane / 4][2 * (lane % 4) + 1] = static_cast<std::uint16_t>(value >> 16);
    }
    for (int lane = 0; lane < lanes; ++lane)
        static_cast<MovedMatrix*>(arguments[lane])->result = fragment(matrix, lane, true);
}

}  // namespace lockstep::emulation
