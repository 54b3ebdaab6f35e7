#include "kernels/cpu/vector/elementwise.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"

namespace lockstep::kernels::cpu {
namespace {

// totals [n] (+)= sums over blocks of x; sum(x, count) returns a block's: std::array<double, n>.
template <std::size_t n, class Sum>
void sum_blocks(Tensor totals, Tensor x, Accumulate accumulate, Sum&& sum) {
    constexpr std::int64_t block = 16384;
    LOCKSTEP_ASSERT(totals.count() == static_cast<std::int64_t>(n));
    const std::int64_t count = x.count(), blocks = (count + block - 1) / block;
    const float* in = x.fp32();
    std::vector<std::array<double, n>> partial(static_cast<std::size_t>(blocks));
    parallel_for(blocks, memory_grain / block, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t b = first; b < last; ++b)
            partial[static_cast<std::size_t>(b)] = sum(in + b * block, std::min(block, count - b * block));
    });
    for (std::size_t i = 0; i < n; ++i) {
        double total = 0;
        for (const auto& values : partial) total += values[i];
        double& out = totals.fp64()[i];
        out = total + (accumulate == Accumulate::yes ? out : 0);
    }
}

// body(at_y, at_x, count) for runs of elements that follow each other in both: rows, where one has its rows apart.
template <class Body>
void for_runs(const Tensor& y, const Tensor& x, Body&& body) {
    if (y.dense() && x.dense())
        return for_elements(y.count(), memory_grain,
                            [&](std::int64_t first, std::int64_t last) { body(first, first, last - first); });
    LOCKSTEP_ASSERT(y.shape() == x.shape());
    const std::int64_t width = y.size(-1);
    parallel_for(y.rows(), std::max<std::int64_t>(1, memory_grain / std::max<std::int64_t>(1, width)),
                 [&](std::int64_t first, std::int64_t last, int) {
                     for (std::int64_t row = first; row < last; ++row) body(row * y.stride(), row * x.stride(), width);
                 });
}

}  // namespace

void CpuBackend::fill(Tensor y, float value) {
    if (y.type() == Type::fp64) {
        std::fill_n(y.fp64(), y.count(), static_cast<double>(value));
        return;
    }
    if (y.type() == Type::int32) {
        std::fill_n(y.as<std::int32_t>(), y.count(), static_cast<std::int32_t>(value));
        return;
    }
    with_element(y, [&]<class T>(T) {
        T* out = y.strided_as<T>();
        const T element = rounded<T>(value);
        for_runs(y, y,
                 [&](std::int64_t at, std::int64_t, std::int64_t count) { std::fill_n(out + at, count, element); });
    });
}

void CpuBackend::clear(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) fill(tensor, 0);
}

void CpuBackend::copy(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == x.count());
    if (y.strided_data() == x.strided_data()) return;
    if (y.type() != x.type()) {
        const bool widens = y.type() == Type::fp32;
        const Elementwise<bf16>& convert = *vector_.of<bf16>().elementwise;
        for_runs(y, x, [&](std::int64_t at_y, std::int64_t at_x, std::int64_t count) {
            if (widens)
                convert.widen(y.strided_as<float>() + at_y, x.strided_as<bf16>() + at_x, count);
            else
                convert.round(y.strided_as<bf16>() + at_y, x.strided_as<float>() + at_x, count);
        });
        return;
    }
    const auto size = static_cast<std::int64_t>(type_bytes(y.type()));
    for_runs(y, x, [&](std::int64_t at_y, std::int64_t at_x, std::int64_t count) {
        std::memcpy(static_cast<char*>(y.strided_data()) + at_y * size,
                    static_cast<const char*>(x.strided_data()) + at_x * size, static_cast<std::size_t>(count * size));
    });
}

void CpuBackend::add(Tensor y, Tensor x) {
    LOCKSTEP_ASSERT(y.count() == x.count());
    if (y.type() == Type::fp32 && x.type() == Type::bf16)
        return for_runs(y, x, [&](std::int64_t at_y, std::int64_t at_x, std::int64_t count) {
            vector_.of<bf16>().elementwise->add_to(y.strided_as<float>() + at_y, x.strided_as<bf16>() + at_x, count);
        });
    LOCKSTEP_ASSERT(y.type() == x.type());
    with_element(y, [&]<class T>(T) {
        T* out = y.strided_as<T>();
        const T* in = x.strided_as<T>();
        for_runs(y, x, [&](std::int64_t at_y, std::int64_t at_x, std::int64_t count) {
            vector_.of<T>().elementwise->add(out + at_y, in + at_x, count);
        });
    });
}

void CpuBackend::scale(Tensor y, float factor) {
    float* out = y.fp32();
    for_elements(y.count(), memory_grain, [&](std::int64_t first, std::int64_t last) {
        vector_.flat->scale(out + first, factor, last - first);
    });
}

void CpuBackend::sum(Tensor total, Tensor x, Accumulate accumulate) {
    sum_blocks<1>(total, x, accumulate, [&](const float* in, std::int64_t count) {
        return std::array<double, 1>{vector_.flat->sum(in, count)};
    });
}

void CpuBackend::sum_of_squares(Tensor totals, Tensor x, Accumulate accumulate) {
    sum_blocks<2>(totals, x, accumulate, [&](const float* in, std::int64_t count) {
        std::array<double, 2> sums{};
        vector_.flat->sum_of_squares(sums.data(), in, count);
        return sums;
    });
}

void CpuBackend::block_sums_of_squares(Tensor totals, Tensor x, std::int64_t block) {
    const std::int64_t count = x.count(), blocks = (count + block - 1) / block;
    LOCKSTEP_ASSERT(totals.count() == 2 * blocks);
    const float* in = x.fp32();
    double* out = totals.fp64();
    parallel_for(blocks, std::max<std::int64_t>(1, memory_grain / block),
                 [&](std::int64_t first, std::int64_t last, int) {
                     for (std::int64_t b = first; b < last; ++b)
                         vector_.flat->sum_of_squares(out + 2 * b, in + b * block, std::min(block, count - b * block));
                 });
}

void CpuBackend::sum_rows(Tensor total, Tensor rows) {
    const std::int64_t n = total.count();
    LOCKSTEP_ASSERT(rows.count() % n == 0);
    double* out = total.fp64();
    std::fill_n(out, n, 0.0);
    for (const double* row = rows.fp64(); row != rows.fp64() + rows.count(); row += n)
        for (std::int64_t i = 0; i < n; ++i) out[i] += row[i];
}

void CpuBackend::add_bias(Tensor y, Tensor bias) {
    const std::int64_t width = bias.count();
    LOCKSTEP_ASSERT(y.size(-1) == width);
    with_element(y, [&]<class T>(T) {
        T* out = y.strided_as<T>();
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        parallel_for(y.rows(), row_grain(width), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r)
                if (bias.type() == Type::fp32)
                    vector.add_fp32(out + r * y.stride(), bias.fp32(), width);
                else
                    vector.add(out + r * y.stride(), bias.as<T>(), width);
        });
    });
}

void CpuBackend::bias_backward(Tensor dbias, Tensor dy) {
    const std::int64_t width = dbias.count(), rows = dy.rows();
    LOCKSTEP_ASSERT(dy.size(-1) == width);
    float* partials = scratch_->shared(row_sums_scratch_floats(rows, width));
    with_element(dy, [&]<class T>(T) {
        const T* gradient = dy.strided_as<T>();
        sum_over_rows(rows, partials, {{dbias.fp32(), width}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          for (std::int64_t r = first; r < last; ++r)
                              vector_.of<T>().elementwise->add_to(partial, gradient + r * dy.stride(), width);
                      });
    });
}

}  // namespace lockstep::kernels::cpu
