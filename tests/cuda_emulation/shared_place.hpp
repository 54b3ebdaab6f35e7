// The operations of kernels/cuda/shared_place.hpp on the CPU. Included at its end.
#pragma once

#include "cuda_emulation/hardware.hpp"

namespace lockstep::kernels::cuda {

template <class T>
void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4], T element) {
    for (int i = 0; i < 4; ++i) d[i] = c[i];
    mma_16x8x16(d, a, b, element);
}

using SharedPlace = const unsigned char*;
inline SharedPlace shared_place(const void* pointer) {
    return static_cast<SharedPlace>(pointer);
}

template <int bytes>
void load_matrix_x4(unsigned (&r)[4], SharedPlace row) {
    load_matrix_x4(r, static_cast<const void*>(row + bytes));
}
template <int bytes>
void load_matrix_x4_transposed(unsigned (&r)[4], SharedPlace row) {
    load_matrix_x4_transposed(r, static_cast<const void*>(row + bytes));
}
template <int bytes>
void copy_async_16(SharedPlace to, const void* from, bool valid = true) {
    emulation::issue_copy(const_cast<unsigned char*>(to) + bytes, from, valid);
}

}  // namespace lockstep::kernels::cuda
