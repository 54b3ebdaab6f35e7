#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::cap_logits(Tensor logits, float cap) {
    const std::int64_t columns = logits.size(-1);
    LOCKSTEP_ASSERT(cap > 0);
    with_element(logits, [&]<class T>(T) {
        T* const scores = logits.strided_as<T>();
        parallel_for(logits.rows(), row_grain(columns), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r)
                vector_.of<T>().elementwise->cap(scores + r * logits.stride(), cap, columns);
        });
    });
}

}  // namespace lockstep::kernels::cpu
