// The CPU's operations, in one file of this folder per family. T is fp32 or bf16; threads by device/parallel.hpp; inner
// loops in vector/.
#pragma once

#include <memory>

#include "kernels/backend.hpp"
#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu {

class CpuBackend : public Backend {
  public:
    CpuBackend();
    ~CpuBackend() override;
#define LOCKSTEP_OPERATION(result, name, ...) result name __VA_ARGS__ override;
#include "kernels/operations.inc"

  private:
    // c (+)= op(a) op(b) + bias, which may be empty.
    void multiply(Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, bool accumulate, Tensor bias);

    class Scratch;   // per-thread memory, grown on demand and reused (scratch.hpp)
    class Products;  // cached matrix-product primitives, by shape (product.cpp)
    const VectorFunctions& vector_;
    std::unique_ptr<Scratch> scratch_;
    std::unique_ptr<Products> products_;
};

}  // namespace lockstep::kernels::cpu
