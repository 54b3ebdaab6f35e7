#include "optim/orthogonalize.hpp"

#include <algorithm>

namespace lockstep::optim {

using kernels::Accumulate;
using kernels::Transpose;

Orthogonalizer::Orthogonalizer(Arena& arena, Type type, std::int64_t most, std::int64_t side)
    : result_(arena.allocate(type, {most})),
      product_(arena.allocate(type, {most})),
      gram_(arena.allocate(type, {side * side})),
      polynomial_(arena.allocate(type, {side * side})),
      totals_(arena.allocate(Type::fp64, {2})) {}

Tensor Orthogonalizer::operator()(kernels::Backend& backend, Tensor x, std::int64_t iterations) const {
    constexpr float of_x = 3.4445f, of_a = -4.7750f, of_square = 2.0315f;
    const std::int64_t rows = x.size(0), columns = x.size(1), side = std::min(rows, columns);
    const bool wide = rows <= columns;
    const Tensor result = result_.slice(0, x.count()).reshaped({rows, columns}),
                 product = product_.slice(0, x.count()).reshaped({rows, columns}),
                 a = gram_.slice(0, side * side).reshaped({side, side}),
                 polynomial = polynomial_.slice(0, side * side).reshaped({side, side});
    backend.sum_of_squares(totals_, x, Accumulate::no);
    backend.normalize(result, x, totals_);
    for (std::int64_t i = 0; i < iterations; ++i) {
        backend.product(a, result, wide ? Transpose::no : Transpose::yes, result, wide ? Transpose::yes : Transpose::no,
                        Accumulate::no);
        backend.product(polynomial, a, Transpose::no, a, Transpose::no, Accumulate::no);
        backend.blend(polynomial, a, of_square, of_a);
        if (wide)
            backend.product(product, polynomial, Transpose::no, result, Transpose::no, Accumulate::no);
        else
            backend.product(product, result, Transpose::no, polynomial, Transpose::no, Accumulate::no);
        backend.blend(result, product, of_x, 1);
    }
    return result;
}

}  // namespace lockstep::optim
