// Rotary positions, in place. One warp per row, packs of pairs per lane; memory-bound, since the tables of sines and
// cosines are small.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

// n contiguous elements, by accesses of up to 16 bytes if `aligned`.
template <bool aligned, class T, int n>
__device__ inline void load_values(T (&to)[n], const T* from) {
    constexpr int pack = !aligned ? 1 : n < pack_width<T>() ? n : pack_width<T>();
#pragma unroll
    for (int i = 0; i < n; i += pack) {
        const Pack<T, pack> values = load_pack<pack>(from + i);
#pragma unroll
        for (int e = 0; e < pack; ++e) to[i + e] = values.at[e];
    }
}
template <bool aligned, class T, int n>
__device__ inline void store_values(T* to, const T (&from)[n]) {
    constexpr int pack = !aligned ? 1 : n < pack_width<T>() ? n : pack_width<T>();
#pragma unroll
    for (int i = 0; i < n; i += pack) {
        Pack<T, pack> values;
#pragma unroll
        for (int e = 0; e < pack; ++e) values.at[e] = from[i + e];
        store_pack(to + i, values);
    }
}

// An item is `pairs` pairs: from two packs `half` apart, or one pack of twice as many elements.
template <class T, bool halves, int pairs, bool aligned>
__global__ void __launch_bounds__(threads)
    rotate_kernel(T* __restrict__ x, const float* __restrict__ cosine, const float* __restrict__ sine,
                  std::int64_t rows, std::int64_t width, std::int64_t stride, int half, std::int64_t length,
                  std::int64_t first_position, std::int64_t period, float direction) {
    constexpr int in_flight = halves ? 2 : 4;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / warp_width) + threadIdx.x / warp_width;
    const int lane = static_cast<int>(threadIdx.x) % warp_width;
    if (row >= rows) return;
    const std::int64_t angle = (first_position + row % length) % period * half;
    T* const values = x + row * stride;
    const int per_head = half / pairs, items = static_cast<int>(width / (2 * pairs));
    for (int first = lane; first < items; first += in_flight * warp_width) {
        T packs[in_flight][2 * pairs];
        float cosines[in_flight][pairs], sines[in_flight][pairs];
        int places[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            const int item = first + k * warp_width;
            if (item >= items) break;
            const int head = item / per_head, pair = item % per_head * pairs;
            places[k] = head * 2 * half + (halves ? pair : 2 * pair);
            if constexpr (halves) {
                T low[pairs], high[pairs];
                load_values<aligned>(low, values + places[k]);
                load_values<aligned>(high, values + places[k] + half);
#pragma unroll
                for (int i = 0; i < pairs; ++i) {
                    packs[k][2 * i] = low[i];
                    packs[k][2 * i + 1] = high[i];
                }
            } else {
                load_values<aligned>(packs[k], values + places[k]);
            }
            load_values<aligned>(cosines[k], cosine + angle + pair);
            load_values<aligned>(sines[k], sine + angle + pair);
        }
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (first + k * warp_width >= items) break;
#pragma unroll
            for (int i = 0; i < pairs; ++i) {
                const float a = to_float(packs[k][2 * i]), b = to_float(packs[k][2 * i + 1]);
                const float c = cosines[k][i], s = direction * sines[k][i];
                packs[k][2 * i] = from_float<T>(a * c - b * s);
                packs[k][2 * i + 1] = from_float<T>(b * c + a * s);
            }
            if constexpr (halves) {
                T low[pairs], high[pairs];
#pragma unroll
                for (int i = 0; i < pairs; ++i) {
                    low[i] = packs[k][2 * i];
                    high[i] = packs[k][2 * i + 1];
                }
                store_values<aligned>(values + places[k], low);
                store_values<aligned>(values + places[k] + half, high);
            } else {
                store_values<aligned>(values + places[k], packs[k]);
            }
        }
    }
}

}  // namespace

void CudaBackend::rotate(Tensor x, Tensor cosine, Tensor sine, std::int64_t length, std::int64_t first_position,
                         RotaryPairs pairs, bool inverse) {
    const std::int64_t half = cosine.size(-1), period = cosine.rows(), width = x.size(-1);
    LOCKSTEP_ASSERT(sine.count() == cosine.count() && period > 0 && half > 0 && width % (2 * half) == 0);
    LOCKSTEP_ASSERT(length > 0 && first_position >= 0);
    const float* const cosines = cosine.fp32();
    const float* const sines = sine.fp32();
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        constexpr int in_halves = pack_width<T>(), interleaved = in_halves / 2;
        const auto run = [&](auto kernel) {
            launch({"rotate", dim3(blocks_for(x.rows(), threads / warp_width)), threads, 0, stream()}, kernel,
                   strided_elements<T>(x), cosines, sines, x.rows(), width, x.stride(), static_cast<int>(half), length,
                   first_position, period, inverse ? -1.0f : 1.0f);
        };
        const bool tables = aligned_for(4, half, cosines, sines);
        if (pairs == RotaryPairs::halves) {
            if (tables && x.stride() % in_halves == 0 && aligned_for(in_halves, half, strided_elements<T>(x)))
                run(rotate_kernel<T, true, in_halves, true>);
            else
                run(rotate_kernel<T, true, 1, false>);
        } else {
            if (tables && half % interleaved == 0 && x.stride() % in_halves == 0 &&
                aligned_for(in_halves, 2 * half, strided_elements<T>(x)))
                run(rotate_kernel<T, false, interleaved, true>);
            else
                run(rotate_kernel<T, false, 1, false>);
        }
    });
}

}  // namespace lockstep::kernels::cuda
