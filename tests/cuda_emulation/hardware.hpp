// The operations of kernels/cuda/hardware.hpp on the CPU, with the fragment layouts of the PTX ISA. Included at its
// end.
#pragma once

#include <cmath>

#include "cuda_emulation/block.hpp"
#include "cuda_emulation/tensor_core.hpp"
#include "kernels/cuda/element.hpp"

namespace lockstep::kernels::cuda {

template <class T>
T* shared_memory() {
    return static_cast<T*>(emulation::shared_begin());
}

inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
    emulation::Product argument{d, a, b};
    emulation::warp_collective(emulation::mma_bf16, 0xffffffffu, &argument);
}
inline void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], fp16) {
    emulation::Product argument{d, a, b};
    emulation::warp_collective(emulation::mma_fp16, 0xffffffffu, &argument);
}

inline void load_matrix_x4(unsigned (&r)[4], const void* row, int bytes = 0) {
    emulation::MatrixRow argument{static_cast<const char*>(row) + bytes, r};
    emulation::warp_collective(emulation::ldmatrix_x4, 0xffffffffu, &argument);
}
inline void load_matrix_x4_transposed(unsigned (&r)[4], const void* row, int bytes = 0) {
    emulation::MatrixRow argument{static_cast<const char*>(row) + bytes, r};
    emulation::warp_collective(emulation::ldmatrix_x4_transposed, 0xffffffffu, &argument);
}
template <int bytes>
void load_matrix_x4(unsigned (&r)[4], const void* row) {
    load_matrix_x4(r, row, bytes);
}
template <int bytes>
void load_matrix_x4_transposed(unsigned (&r)[4], const void* row) {
    load_matrix_x4_transposed(r, row, bytes);
}
template <int bytes>
void load_matrix_x2_transposed(unsigned (&r)[2], const void* row) {
    emulation::MatrixRow argument{static_cast<const char*>(row) + bytes, r};
    emulation::warp_collective(emulation::ldmatrix_x2_transposed, 0xffffffffu, &argument);
}
inline unsigned move_matrix_transposed(unsigned r) {
    emulation::MovedMatrix argument{r, 0};
    emulation::warp_collective(emulation::movmatrix_transposed, 0xffffffffu, &argument);
    return argument.result;
}

inline void copy_async_16(void* to, const void* from, bool valid = true) {
    emulation::issue_copy(to, from, valid);
}
inline void barrier_of_warps() {
    __syncthreads();
}
inline void copy_async_commit() {
    emulation::commit_copies();
}
template <int pending>
void copy_async_wait() {
    emulation::await_copies(pending);
}

inline void prefetch_l2(const void*) {}
inline float fast_exp2(float x) {
    return std::exp2(x);
}

inline float fast_reciprocal(float x) {
    return 1.0f / x;
}

}  // namespace lockstep::kernels::cuda
