// Hardware operations that take a place in shared memory in 32 bits, with a constant distance that is part of the
// instruction, and products whose sums begin with other registers; beside those of hardware.hpp. In tests,
// tests/cuda_emulation/shared_place.hpp implements them on the CPU.
#pragma once

#include "kernels/cuda/hardware.hpp"

#if !defined(LOCKSTEP_CUDA_EMULATION)
namespace lockstep::kernels::cuda {

// d = a b + c.
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                            const float (&c)[4], bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                            const float (&c)[4], fp16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// A place in shared memory, 32 bits wide. Constant distances from it are part of the instruction.
using SharedPlace = unsigned;
__device__ __forceinline__ SharedPlace shared_place(const void* pointer) {
    return shared_address(pointer);
}

// Rows of 8 16-bit elements in shared memory, 16-byte aligned; `bytes` beyond `row`.
template <int bytes>
__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], SharedPlace row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4+%5];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row), "n"(bytes)
                 : "memory");
}
template <int bytes>
__device__ __forceinline__ void load_matrix_x4_transposed(unsigned (&r)[4], SharedPlace row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4+%5];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row), "n"(bytes)
                 : "memory");
}

// The same to `bytes` beyond `to`, of what is valid or as `valid` says.
template <int bytes>
__device__ __forceinline__ void copy_async_16(SharedPlace to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0+%2], [%1], 16;\n" : : "r"(to), "l"(from), "n"(bytes) : "memory");
}
template <int bytes>
__device__ __forceinline__ void copy_async_16(SharedPlace to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0+%3], [%1], 16, %2;\n"
                 :
                 : "r"(to), "l"(from), "r"(valid ? 16 : 0), "n"(bytes)
                 : "memory");
}

}  // namespace lockstep::kernels::cuda
#else
#include "cuda_emulation/shared_place.hpp"
#endif
