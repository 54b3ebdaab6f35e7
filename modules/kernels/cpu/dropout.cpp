#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::dropout(Tensor y, Tensor x, const Dropout& dropout, Accumulate accumulate) {
    const std::int64_t rows = x.rows(), columns = x.size(-1);
    LOCKSTEP_ASSERT(y.shape() == x.shape() && y.type() == x.type() && dropout.tokens.shape() == Shape({rows, 2}));
    const auto* tokens = dropout.tokens.as<std::int32_t>();
    const DropoutRow all = {
        {},
        {static_cast<std::uint32_t>(dropout.layer), static_cast<std::uint32_t>(dropout.layer >> 32)},
        dropout.threshold(),
        dropout.factor(),
        dropout.first_column,
        accumulate == Accumulate::yes};
    with_element(x, [&]<class T>(T) {
        T* const out = y.strided_as<T>();
        const T* const in = x.strided_as<T>();
        parallel_for(rows, row_grain(columns), [&](std::int64_t first, std::int64_t last, int) {
            DropoutRow row = all;
            for (std::int64_t r = first; r < last; ++r) {
                row.token[0] = static_cast<std::uint32_t>(tokens[2 * r]);
                row.token[1] = static_cast<std::uint32_t>(tokens[2 * r + 1]);
                vector_.of<T>().elementwise->dropout(out + r * y.stride(), in + r * x.stride(), row, columns);
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
