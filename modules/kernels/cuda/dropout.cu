// Dropout. Memory-bound but for its random numbers: Philox takes about 100 instructions for 8 elements. A thread has
// the 8 columns of one call of it.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned most_threads = 256;
constexpr int at_once = 8;  // elements of a call

struct DropoutPlace {
    const std::int32_t* tokens;
    std::uint32_t layer_low, layer_high, threshold;
    float factor;
    int first_column, columns;
    std::int64_t y_stride, x_stride;
};

// Philox4x32-10 (base/random.hpp).
__device__ inline void philox(std::uint32_t (&word)[4], std::uint32_t key0, std::uint32_t key1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const std::uint32_t high0 = __umulhi(0xD2511F53u, word[0]), low0 = 0xD2511F53u * word[0];
        const std::uint32_t high1 = __umulhi(0xCD9E8D57u, word[2]), low1 = 0xCD9E8D57u * word[2];
        word[0] = high1 ^ word[1] ^ key0;
        word[1] = low1;
        word[2] = high0 ^ word[3] ^ key1;
        word[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

template <class T, bool accumulate, bool aligned>
__global__ void __launch_bounds__(most_threads) dropout_kernel(T* y, const T* x, DropoutPlace place) {
    const std::int64_t row = blockIdx.x;
    const int call = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) + place.first_column / at_once;
    const int first = call * at_once - place.first_column;  // may be before the first column, if that is not aligned
    if (first >= place.columns) return;
    std::uint32_t word[4] = {static_cast<std::uint32_t>(call), 0, place.layer_low, place.layer_high};
    philox(word, static_cast<std::uint32_t>(place.tokens[2 * row]),
           static_cast<std::uint32_t>(place.tokens[2 * row + 1]));
    T* const to = y + row * place.y_stride + first;
    const T* const from = x + row * place.x_stride + first;
    const auto left = [&](int element) {
        return ((word[element / 2] >> (element % 2 * 16)) & 0xFFFFu) < place.threshold ? 0.0f : place.factor;
    };
    if constexpr (aligned) {
        using Piece = Vector16<T>;
        constexpr int elements = Piece::count, pieces = at_once / elements;
        Piece in[pieces], out[pieces];
#pragma unroll
        for (int i = 0; i < pieces; ++i) {
            in[i] = load16(from + i * elements);
            if constexpr (accumulate) out[i] = load16(to + i * elements);
        }
#pragma unroll
        for (int i = 0; i < pieces; ++i) {
#pragma unroll
            for (int e = 0; e < elements; ++e) {
                const float value = left(i * elements + e) * to_float(in[i].at[e]);
                out[i].at[e] = from_float<T>(accumulate ? to_float(out[i].at[e]) + value : value);
            }
            store16(to + i * elements, out[i]);
        }
    } else {
#pragma unroll
        for (int e = 0; e < at_once; ++e) {
            if (first + e < 0 || first + e >= place.columns) continue;
            const float value = left(e) * to_float(from[e]);
            to[e] = from_float<T>(accumulate ? to_float(to[e]) + value : value);
        }
    }
}

template <class T>
bool aligned_strides(const Tensor& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.strided_data()) % 16 == 0 &&
           (tensor.rows() <= 1 || tensor.stride() % Vector16<T>::count == 0);
}

}  // namespace

void CudaBackend::dropout(Tensor y, Tensor x, const Dropout& dropout, Accumulate accumulate) {
    const std::int64_t rows = x.rows(), columns = x.size(-1), last = dropout.first_column + columns;
    LOCKSTEP_ASSERT(y.shape() == x.shape() && y.type() == x.type() && dropout.tokens.shape() == Shape({rows, 2}));
    LOCKSTEP_ASSERT(last <= INT32_MAX - at_once);
    const DropoutPlace place = {elements<std::int32_t>(dropout.tokens),
                                static_cast<std::uint32_t>(dropout.layer),
                                static_cast<std::uint32_t>(dropout.layer >> 32),
                                dropout.threshold(),
                                dropout.factor(),
                                static_cast<int>(dropout.first_column),
                                static_cast<int>(columns),
                                y.stride(),
                                x.stride()};
    const std::int64_t calls = (last + at_once - 1) / at_once - dropout.first_column / at_once;
    const unsigned threads = threads_for(calls, 1, most_threads);
    const dim3 grid(static_cast<unsigned>(rows), blocks_for(calls, threads));
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        const bool aligned = dropout.first_column % at_once == 0 && columns % at_once == 0 && aligned_strides<T>(x) &&
                             aligned_strides<T>(y);
        auto* kernel = accumulate == Accumulate::yes
                           ? (aligned ? dropout_kernel<T, true, true> : dropout_kernel<T, true, false>)
                           : (aligned ? dropout_kernel<T, false, true> : dropout_kernel<T, false, false>);
        launch({"dropout", grid, threads, 0, stream()}, kernel, strided_elements<T>(y), strided_elements<T>(x), place);
    });
}

}  // namespace lockstep::kernels::cuda
