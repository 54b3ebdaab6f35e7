// How operations divide their work: at fixed places, so that results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "device/parallel.hpp"

namespace lockstep::kernels::cpu {

// body(first, last) over flat elements, cut at multiples of 1024, so that an element is always at the same place of its
// vector. `grain`: fewest elements worth a thread.
template <class Body>
void for_elements(std::int64_t count, std::int64_t grain, Body&& body) {
    constexpr std::int64_t block = 1024;
    parallel_for(
        (count + block - 1) / block, (grain + block - 1) / block,
        [&](std::int64_t first, std::int64_t last, int) { body(first * block, std::min(last * block, count)); });
}
constexpr std::int64_t memory_grain = 32768;     // memory-bound loops
constexpr std::int64_t arithmetic_grain = 4096;  // loops with exponentials

// Fewest rows worth a thread, for rows of `width` elements.
inline std::int64_t row_grain(std::int64_t width) {
    return std::max<std::int64_t>(1, 8192 / std::max<std::int64_t>(1, width));
}

// Sums over rows, such as gradients of biases: at most 128 blocks of rows have partial sums, which are added in order.
inline std::int64_t rows_per_block(std::int64_t rows) {
    return std::max<std::int64_t>(32, (rows + 127) / 128);
}
inline std::int64_t row_blocks(std::int64_t rows) {
    return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
}

struct ColumnSums {
    float* out;  // += the sums; may be null
    std::int64_t width;
};

// body(first_row, last_row, partial) adds to its zeroed `partial`, which holds the columns of all `sums` side by side;
// `partials` has room for row_blocks(rows) of them.
template <class Body>
void sum_over_rows(std::int64_t rows, float* partials, std::initializer_list<ColumnSums> sums, Body&& body) {
    std::int64_t width = 0;
    for (const auto& sum : sums) width += sum.width;
    const std::int64_t block = rows_per_block(rows), blocks = row_blocks(rows);
    parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t b = first; b < last; ++b) {
            float* partial = partials + b * width;
            std::fill_n(partial, width, 0.0f);
            body(b * block, std::min(rows, (b + 1) * block), partial);
        }
    });
    std::int64_t offset = 0;
    for (const auto& sum : sums) {
        if (sum.out)
            parallel_for(sum.width, row_grain(blocks), [&](std::int64_t first, std::int64_t last, int) {
                for (std::int64_t b = 0; b < blocks; ++b) {
                    const float* partial = partials + b * width + offset;
                    for (std::int64_t c = first; c < last; ++c) sum.out[c] += partial[c];
                }
            });
        offset += sum.width;
    }
}

}  // namespace lockstep::kernels::cpu
