// Hardware operations beneath the tile operations of tile.hpp, one function each. With nvcc they are PTX; in tests,
// tests/cuda_emulation/hardware.hpp implements them on the CPU, fragment layouts included (PTX ISA, "Matrix fragments
// for mma.m16n8k16", "ldmatrix", "movmatrix", "cp.async").
//
// All but the copies are warp-wide: every lane of the warp must call. With lane l, g = l / 4 and t = l % 4:
//   mma A (16×16, 16 bit)  a0 (g, 2t..2t+1)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)
//   mma B (16×8, 16 bit)   b0 (2t..2t+1, g)  b1 (2t+8.., g)
//   mma C, D (16×8, fp32)  d0 (g, 2t)  d1 (g, 2t+1)  d2 (g+8, 2t)  d3 (g+8, 2t+1)
//   ldmatrix: lane 8i + r gives the address of 16-byte row r of the 8×8 matrix i; register i of lane l holds (g,
//   2t..2t+1) of matrix i, transposed: (2t..2t+1, g).
#pragma once

#include "kernels/cuda/element.hpp"
#include "kernels/cuda/platform.hpp"

#if !defined(LOCKSTEP_CUDA_EMULATION)
namespace lockstep::kernels::cuda {

// The block's dynamic shared memory, 128-byte aligned.
template <class T>
__device__ __forceinline__ T* shared_memory() {
    extern __shared__ __align__(128) unsigned char lockstep_shared_bytes[];
    return reinterpret_cast<T*>(lockstep_shared_bytes);
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// d += a b, products exact, sums in fp32.
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], fp16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Rows of 8 16-bit elements in shared memory, 16-byte aligned, `bytes` behind `row`: a constant costs no address of its
// own.
__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], const void* row, int bytes = 0) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row) + static_cast<unsigned>(bytes))
                 : "memory");
}
__device__ __forceinline__ void load_matrix_x4_transposed(unsigned (&r)[4], const void* row, int bytes = 0) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row) + static_cast<unsigned>(bytes))
                 : "memory");
}
// The same with a constant in the instruction: many rows behind one take one register for their addresses.
template <int bytes>
__device__ __forceinline__ void load_matrix_x4(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4+%5];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)), "n"(bytes)
                 : "memory");
}
template <int bytes>
__device__ __forceinline__ void load_matrix_x4_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4+%5];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)), "n"(bytes)
                 : "memory");
}
template <int bytes>
__device__ __forceinline__ void load_matrix_x2_transposed(unsigned (&r)[2], const void* row) {  // of lanes 0..15
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2+%3];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row)), "n"(bytes)
                 : "memory");
}
// Transposes one 8×8 matrix of 16-bit elements, one register per lane.
__device__ __forceinline__ unsigned move_matrix_transposed(unsigned r) {
    unsigned out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(out) : "r"(r));
    return out;
}

// A barrier of the block that its warps may reach at different places of the code; all pass as many. CUDA C++ wants all
// threads at the same __syncthreads(), PTX does not.
__device__ __forceinline__ void barrier_of_warps() {
    asm volatile("bar.sync 0;" ::: "memory");
}

// Asynchronous copy of 16 bytes from global to shared memory; zeros unless `valid` (`from` is not read then). Readable
// after copy_async_wait and a barrier.
__device__ __forceinline__ void copy_async_16(void* to, const void* from, bool valid = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_async_commit() {  // ends a group of copies
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void
copy_async_wait() {  // until at most `pending` of this thread's newest groups are not done
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

// Brings the 128 bytes around `at` in global memory into the L2 cache; a hint.
__device__ __forceinline__ void prefetch_l2(const void* at) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(at));
}

__device__ __forceinline__ float fast_exp2(float x) {  // 2 ulp; exp2(-inf) = 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float fast_reciprocal(float x) {  // 1 ulp; 1 / inf = 0
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace lockstep::kernels::cuda
#else
#include "cuda_emulation/hardware.hpp"
#endif
