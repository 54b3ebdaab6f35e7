// The nearest matrix with orthogonal rows or columns, roughly, by a Newton–Schulz iteration (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon): with X scaled to a Frobenius norm of 1, some times
//     A = X Xᵀ,  X = 3.4445 X + (-4.7750 A + 2.0315 A²) X,
// with Xᵀ X on the other side if X is taller than wide. After 5 of them the singular values that were not
// tiny are near 1, not at 1, which is enough.
#pragma once

#include <cstdint>

#include "device/memory.hpp"
#include "kernels/backend.hpp"

namespace lockstep::optim {

// Scratch for matrices of up to `most` elements whose shorter side is at most `side`, in the type of the products.
class Orthogonalizer {
  public:
    Orthogonalizer() = default;
    Orthogonalizer(Arena& arena, Type type, std::int64_t most, std::int64_t side);
    // Of x, fp32 [m, n], in the type of the products and in scratch: valid until the next call.
    Tensor operator()(kernels::Backend& backend, Tensor x, std::int64_t iterations) const;

  private:
    Tensor result_, product_, gram_, polynomial_, totals_;
};

}  // namespace lockstep::optim
