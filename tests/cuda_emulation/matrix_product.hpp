// What cublasLtMatmul computes, once everything has been checked.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::emulation {

struct Matrix {
    cudaDataType_t type = CUDA_R_32F;
    std::int64_t rows = 0, columns = 0;
    std::int64_t row_step = 1, column_step = 1;  // elements between neighbours in a column, in a row
    std::int64_t batch_step = 0;
};

struct MatrixProduct {
    Matrix a, b, c, d;  // a and b as op(A), op(B)
    const void* a_data = nullptr;
    const void* b_data = nullptr;
    const void* c_data = nullptr;
    void* d_data = nullptr;
    float alpha = 1, beta = 0;
    std::int64_t batch = 1;
    std::size_t parts = 1;  // into which every sum is divided
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;  // of d's type; written by the gradient epilogues
    void* aux = nullptr;   // of d's type
    std::int64_t aux_step = 0;
};

std::size_t element_bytes(cudaDataType_t type);
void multiply(const MatrixProduct& product);

}  // namespace lockstep::emulation
