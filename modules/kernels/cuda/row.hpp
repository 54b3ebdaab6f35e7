// A row of a matrix by one block. Rows need no alignment: each element before and after the 16-byte vectors, at most 14
// of 16 bits, takes a thread.
#pragma once

#include <cstdint>

#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"

namespace lockstep::kernels::cuda {

constexpr unsigned most_row_threads = 512;
constexpr int row_vectors_at_once = 4;  // 16-byte vectors in flight per thread

// Calls use(values, first) for this thread's elements of a row: values of the columns first, first + 1, … (16 bytes'
// worth, or 1), which are written back, rounded, if `write`.
template <bool write, class T, class Use>
__device__ inline void for_row(T* row, int columns, Use&& use) {
    using Piece = Vector16<T>;
    constexpr int elements = Piece::count;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int skew = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    const int to_aligned = (elements - skew) % elements, head = to_aligned < columns ? to_aligned : columns;
    const int pieces = (columns - head) / elements, tail = columns - head - pieces * elements;
    for (int first = thread; first < pieces; first += row_vectors_at_once * threads) {
        Piece in[row_vectors_at_once];
#pragma unroll
        for (int i = 0; i < row_vectors_at_once; ++i)
            if (first + i * threads < pieces) in[i] = load16(row + head + (first + i * threads) * elements);
#pragma unroll
        for (int i = 0; i < row_vectors_at_once; ++i) {
            const int piece = first + i * threads;
            if (piece >= pieces) continue;
            float values[elements];
#pragma unroll
            for (int e = 0; e < elements; ++e) values[e] = to_float(in[i].at[e]);
            use(values, head + piece * elements);
            if constexpr (write) {
#pragma unroll
                for (int e = 0; e < elements; ++e) in[i].at[e] = from_float<T>(values[e]);
                store16(row + head + piece * elements, in[i]);
            }
        }
    }
    const int edge = thread < head ? thread : thread < head + tail ? columns - head - tail + thread : -1;
    if (edge < 0) return;
    float value[1] = {to_float(row[edge])};
    use(value, edge);
    if constexpr (write) row[edge] = from_float<T>(value[0]);
}

inline unsigned row_threads(std::int64_t pieces) {
    return threads_for(pieces, row_vectors_at_once, most_row_threads);
}

}  // namespace lockstep::kernels::cuda
