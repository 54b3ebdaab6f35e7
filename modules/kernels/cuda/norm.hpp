// Row access shared by the norms' forward (norm.cu) and backward (norm_backward.cu).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "device/tensor.hpp"
#include "kernels/cuda/element.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {

// Columns, of which each lane of a warp holds 8. Kernels are compiled for rows of a few numbers of groups.
constexpr std::int64_t group_width = 256;
template <class T>
constexpr int vectors_of_group = 8 / Vector16<T>::count;  // 16-byte accesses per lane

// Rows as narrow as a head of attention: as many lanes as leave each its 8 columns take a row together, and a warp
// takes several rows.
constexpr std::int64_t row_of_8_lanes = 64, row_of_16_lanes = 128;

// `count` floats: 4 or 8, 16-byte aligned, or 1.
template <int count>
__device__ inline void load_floats(float (&values)[count], const float* from) {
    if constexpr (count == 1) {
        values[0] = *from;
    } else {
#pragma unroll
        for (int i = 0; i < count; i += 4) {
            const Vector16<float> vector = load16(from + i);
#pragma unroll
            for (int e = 0; e < 4; ++e) values[i + e] = vector.at[e];
        }
    }
}
template <int count>
__device__ inline void store_floats(float* to, const float (&values)[count]) {
#pragma unroll
    for (int i = 0; i < count; i += 4)
        store16(to + i, Vector16<float>{{values[i], values[i + 1], values[i + 2], values[i + 3]}});
}

// Whether rows of `width` elements of T allow 16-byte accesses in all non-empty tensors.
template <class T>
bool aligned_rows(std::int64_t width, std::initializer_list<Tensor> tensors) {
    return width % Vector16<T>::count == 0 && std::all_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
               return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
           });
}

// Threads of a block, in whole warps, for `count` items at about `each` per thread.
inline unsigned threads_for(std::int64_t count, std::int64_t each, unsigned most) {
    const std::int64_t warps = (count + each * warp_width - 1) / (each * warp_width);
    return static_cast<unsigned>(std::clamp<std::int64_t>(warps * warp_width, warp_width, most));
}

}  // namespace lockstep::kernels::cuda
