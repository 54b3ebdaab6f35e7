#include <algorithm>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {

void CpuBackend::embedding_forward(Tensor y, Tensor ids, Tensor table, std::int64_t first_id, Tensor position,
                                   std::int64_t length, std::int64_t first_position) {
    const std::int64_t width = table.size(-1), vocabulary = table.rows(), rows = ids.count();
    LOCKSTEP_ASSERT(y.count() == rows * width && length > 0 && first_position >= 0);
    LOCKSTEP_ASSERT(position.empty() || (position.size(-1) == width && first_position + length <= position.rows()));
    const std::int32_t* id = ids.as<std::int32_t>();
    with_element(y, [&]<class T>(T) {
        T* out = y.as<T>();
        const T *vectors = table.as<T>(), *places = position.empty() ? nullptr : position.as<T>();
        parallel_for(rows, row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                const std::int64_t line = id[r] - first_id;
                if (line >= 0 && line < vocabulary)
                    std::copy_n(vectors + line * width, width, out + r * width);
                else
                    std::fill_n(out + r * width, width, T{});
                if (places)
                    vector_.of<T>().elementwise->add(out + r * width, places + (first_position + r % length) * width,
                                                     width);
            }
        });
    });
}

void CpuBackend::embedding_backward(Tensor dtable, Tensor dposition, Tensor ids, Tensor dy, std::int64_t first_id,
                                    std::int64_t length) {
    const std::int64_t width = dtable.size(-1), vocabulary = dtable.rows(), rows = ids.count();
    LOCKSTEP_ASSERT(dy.count() == rows * width && length > 0);
    LOCKSTEP_ASSERT(dposition.empty() || (dposition.size(-1) == width && length <= dposition.rows()));
    float *vectors = dtable.fp32(), *places = dposition.empty() ? nullptr : dposition.fp32();
    const std::int32_t* id = ids.as<std::int32_t>();
    // A token may occur repeatedly: each thread owns a slice of columns and visits the rows in order.
    constexpr std::int64_t slice = 16;
    with_element(dy, [&]<class T>(T) {
        const T* gradient = dy.as<T>();
        const auto add = vector_.of<T>().elementwise->add_to;
        parallel_for((width + slice - 1) / slice, 1, [&](std::int64_t first, std::int64_t last, int) {
            const std::int64_t from = first * slice, count = std::min(last * slice, width) - from;
            for (std::int64_t r = 0; r < rows; ++r) {
                const std::int64_t line = id[r] - first_id;
                const T* row = gradient + r * width + from;
                if (line >= 0 && line < vocabulary) add(vectors + line * width + from, row, count);
                if (places) add(places + r % length * width + from, row, count);
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
