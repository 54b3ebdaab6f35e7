// Depthwise causal convolution. A thread owns a pack of columns and walks along a run of tokens, keeping a sliding
// window of inputs in registers, so that every row is read once (plus a few where runs meet).
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/documents.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr int in_flight = 4;
constexpr int forward_run = 16,
              backward_run = 32;  // tokens; longer ones read less twice, shorter ones fill more threads

// Kernels are compiled for `most` taps; fewer have leading zero weights.
template <int most, int width>
__device__ inline void load_weights(float (&weights)[most][width], const float* weight, std::int64_t column, int taps) {
#pragma unroll
    for (int j = 0; j < most; ++j)
#pragma unroll
        for (int e = 0; e < width; ++e)
            weights[j][e] = j >= most - taps ? weight[(column + e) * taps + j - (most - taps)] : 0.0f;
}

template <class T, int width>
__device__ inline void widen(float (&to)[width], const Pack<T, width>& from) {
#pragma unroll
    for (int e = 0; e < width; ++e) to[e] = to_float(from.at[e]);
}

// Clears the values before `begin`; the last one is that of token t.
template <int most, int width>
__device__ inline void forget(float (&window)[most][width], int t, int begin) {
#pragma unroll
    for (int j = 0; j + 1 < most; ++j)
        if (t - (most - 1) + j < begin)
#pragma unroll
            for (int e = 0; e < width; ++e) window[j][e] = 0;
}

// Shift out the oldest.
template <int most, int width>
__device__ inline void shift(float (&window)[most][width]) {
#pragma unroll
    for (int j = 0; j + 1 < most; ++j)
#pragma unroll
        for (int e = 0; e < width; ++e) window[j][e] = window[j + 1][e];
}

template <class T, int most, int width, bool separate>
__global__ void __launch_bounds__(threads)
    convolution_forward_kernel(T* __restrict__ y, const T* __restrict__ x, const float* __restrict__ weight,
                               const float* __restrict__ bias, const T* __restrict__ history, int taps,
                               std::int64_t row_width, std::int64_t stride, int length, std::int64_t items,
                               DocumentPlaces documents) {
    const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (item >= items) return;
    const std::int64_t packs = row_width / width, runs = (length + forward_run - 1) / forward_run;
    const std::int64_t column = item % packs * width, sequence = item / packs / runs;
    const int begin = static_cast<int>(item / packs % runs) * forward_run;
    const int end = begin + forward_run < length ? begin + forward_run : length;
    const T* const from = x + sequence * length * stride + column;
    T* const to = y + sequence * length * row_width + column;
    const T* const before = history ? history + sequence * (taps - 1) * row_width + column : nullptr;

    float weights[most][width], add[width], window[most][width];  // window[j] is x[t - (most - 1) + j]
    load_weights(weights, weight, column, taps);
#pragma unroll
    for (int e = 0; e < width; ++e) add[e] = bias[column + e];
#pragma unroll
    for (int j = 0; j + 1 < most; ++j) {
        const int source = begin - (most - 1) + j;
        Pack<T, width> value{};
        if (source >= 0)
            value = load_pack<width>(from + source * stride);
        else if (before && source + taps - 1 >= 0)
            value = load_pack<width>(before + (source + taps - 1) * row_width);
        widen(window[j], value);
    }
    for (int first = begin; first < end; first += in_flight) {
        Pack<T, width> values[in_flight];
#pragma unroll
        for (int k = 0; k < in_flight; ++k)
            if (first + k < end) values[k] = load_pack<width>(from + (first + k) * stride);
#pragma unroll
        for (int k = 0; k < in_flight; ++k) {
            if (first + k >= end) break;
            widen(window[most - 1], values[k]);
            if constexpr (separate) forget(window, first + k, documents.begin(sequence, first + k));
            float out[width];
#pragma unroll
            for (int e = 0; e < width; ++e) {
                float sum = add[e];
#pragma unroll
                for (int j = 0; j < most; ++j) sum += weights[j][e] * window[j][e];
                out[e] = sum;
            }
            store_floats(to + (first + k) * row_width, out);
            shift(window);
        }
    }
}

// Writes a row of partial sums per block row: for each column the gradients of `most` weights and of the bias.
template <class T, int most, int width, bool accumulate, bool separate>
__global__ void __launch_bounds__(column_threads, most == 4 ? 2 : 1)
    convolution_backward_kernel(T* __restrict__ dx, float* __restrict__ partials, const T* __restrict__ dy,
                                const T* __restrict__ x, const float* __restrict__ weight, int taps,
                                std::int64_t row_width, std::int64_t dx_stride, std::int64_t x_stride, int length,
                                std::int64_t segments, int lanes, DocumentPlaces documents) {
    constexpr int each = most + 1;
    const int lane = static_cast<int>(threadIdx.x) % lanes, row_lane = static_cast<int>(threadIdx.x) / lanes;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * lanes * width;
    const std::int64_t column = first_column + lane * width;
    const std::int64_t row_lanes = column_threads / lanes;
    const int runs = (length + backward_run - 1) / backward_run;
    float sums[width * each] = {};
    if (column < row_width) {
        float weights[most][width];
        load_weights(weights, weight, column, taps);
        for (std::int64_t segment = static_cast<std::int64_t>(blockIdx.y) * row_lanes + row_lane; segment < segments;
             segment += row_lanes * gridDim.y) {
            const std::int64_t sequence = segment / runs, sequence_row = sequence * length;
            const T* const gradients_at = dy + sequence_row * row_width + column;
            const T* const inputs_at = x + sequence_row * x_stride + column;
            T* const out_at = dx + sequence_row * dx_stride + column;
            const int begin = static_cast<int>(segment % runs) * backward_run;
            const int end = begin + backward_run < length ? begin + backward_run : length;
            float inputs[most][width], gradients[most][width];  // [j]: of token t - (most - 1) + j
#pragma unroll
            for (int j = 0; j + 1 < most; ++j) {
                const int source = begin - (most - 1) + j;
                Pack<T, width> value{};
                if (source >= 0) value = load_pack<width>(inputs_at + source * x_stride);
                widen(inputs[j], value);
#pragma unroll
                for (int e = 0; e < width; ++e) gradients[j][e] = 0;
            }
            // Beyond the run only the gradients are read, for dx of its last tokens.
            for (int first = begin; first < end + most - 1; first += in_flight) {
                Pack<T, width> new_inputs[in_flight] = {}, new_gradients[in_flight] = {};
#pragma unroll
                for (int k = 0; k < in_flight; ++k) {
                    const int t = first + k;
                    if (t < end) new_inputs[k] = load_pack<width>(inputs_at + t * x_stride);
                    if (t < end + most - 1 && t < length)
                        new_gradients[k] = load_pack<width>(gradients_at + t * row_width);
                }
#pragma unroll
                for (int k = 0; k < in_flight; ++k) {
                    const int t = first + k;
                    if (t >= end + most - 1) break;
                    widen(inputs[most - 1], new_inputs[k]);
                    widen(gradients[most - 1], new_gradients[k]);
                    if (t < end) {
                        if constexpr (separate) forget(inputs, t, documents.begin(sequence, t));
#pragma unroll
                        for (int e = 0; e < width; ++e) {
#pragma unroll
                            for (int j = 0; j < most; ++j) sums[e * each + j] += gradients[most - 1][e] * inputs[j][e];
                            sums[e * each + most] += gradients[most - 1][e];
                        }
                    }
                    if (t - (most - 1) >= begin) {
                        T* const to = out_at + (t - (most - 1)) * dx_stride;
                        float out[width] = {};
                        if constexpr (accumulate) widen(out, load_pack<width>(to));
                        // Tokens of the same document, this one the first of them.
                        const int reached =
                            separate ? documents.end(sequence, t - (most - 1)) - (t - (most - 1)) : most;
#pragma unroll
                        for (int e = 0; e < width; ++e)
#pragma unroll
                            for (int j = 0; j < most; ++j)
                                if (!separate || most - 1 - j < reached)
                                    out[e] += weights[j][e] * gradients[most - 1 - j][e];
                        store_floats(to, out);
                    }
                    shift(inputs);
                    shift(gradients);
                }
            }
        }
    }
    store_column_sums(partials + (static_cast<std::int64_t>(blockIdx.y) * row_width + first_column) * each,
                      (row_width - first_column) * each, sums, lanes, shared_memory<float>());
}

struct GradientPlace {
    float *dweight, *dbias;
    int taps, most;
    __device__ float* operator()(std::int64_t i) const {
        const std::int64_t column = i / (most + 1);
        const int tap = static_cast<int>(i % (most + 1)), place = tap - (most - taps);
        if (tap == most) return dbias + column;
        return place >= 0 ? dweight + column * taps + place : nullptr;
    }
};

// Calls function(most, pack) with compile-time constants: taps, rounded up, and columns per thread.
template <int pack, class Function>
void for_taps(std::int64_t taps, bool aligned, Function&& function) {
    using Four = std::integral_constant<int, 4>;
    using Eight = std::integral_constant<int, 8>;
    using Packed = std::integral_constant<int, pack>;
    using HalfPacked = std::integral_constant<int, pack / 2>;  // a full pack would take most registers
    using Single = std::integral_constant<int, 1>;
    LOCKSTEP_ASSERT(taps >= 1 && taps <= Eight::value);
    if (taps <= Four::value) return aligned ? function(Four(), Packed()) : function(Four(), Single());
    return aligned ? function(Eight(), HalfPacked()) : function(Eight(), Single());
}

}  // namespace

void CudaBackend::convolution_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor history,
                                      std::int64_t length, const Documents& documents) {
    const std::int64_t width = x.size(-1), rows = x.rows(), taps = weight.size(-1);
    LOCKSTEP_ASSERT(y.type() == x.type() && y.count() == x.count() && y.strided_data() != x.strided_data());
    LOCKSTEP_ASSERT(weight.count() == width * taps && bias.count() == width);
    LOCKSTEP_ASSERT(length > 0 && length < (std::int64_t{1} << 30) && rows % length == 0);
    LOCKSTEP_ASSERT(documents.cover(rows / length, length));
    LOCKSTEP_ASSERT(history.empty() ||
                    (history.type() == x.type() && history.count() == rows / length * (taps - 1) * width));
    const std::int64_t segments = rows / length * ((length + forward_run - 1) / forward_run);
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        constexpr int pack = pack_width<T>();
        const bool aligned = x.stride() % pack == 0 &&
                             aligned_for(pack, width, elements<T>(y), strided_elements<T>(x), elements<T>(history));
        for_taps<pack>(taps, aligned, [&](auto most, auto columns) {
            const std::int64_t items = segments * (width / columns.value);
            constexpr int taps_at_most = decltype(most)::value, width_of_pack = decltype(columns)::value;
            launch({"convolution_forward", dim3(blocks_for(items, threads)), threads, 0, stream()},
                   documents.joined() ? convolution_forward_kernel<T, taps_at_most, width_of_pack, false>
                                      : convolution_forward_kernel<T, taps_at_most, width_of_pack, true>,
                   elements<T>(y), strided_elements<T>(x), weight.fp32(), bias.fp32(), elements<T>(history),
                   static_cast<int>(taps), width, x.stride(), static_cast<int>(length), items,
                   DocumentPlaces(documents));
        });
    });
}

void CudaBackend::convolution_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                       std::int64_t length, const Documents& documents, Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows(), taps = weight.size(-1);
    LOCKSTEP_ASSERT(dx.type() == x.type() && dy.type() == x.type() && dx.count() == x.count() &&
                    dy.count() == x.count() && dx.strided_data() != dy.data() && dx.strided_data() != x.strided_data());
    LOCKSTEP_ASSERT(weight.count() == width * taps && dweight.count() == width * taps && dbias.count() == width);
    LOCKSTEP_ASSERT(length > 0 && length < (std::int64_t{1} << 30) && rows % length == 0);
    LOCKSTEP_ASSERT(documents.cover(rows / length, length));
    const std::int64_t segments = rows / length * ((length + backward_run - 1) / backward_run);
    dispatch(x.type(), [&](auto element) {
        using T = decltype(element);
        constexpr int pack = 4;  // twice as many would take most registers
        const bool aligned = x.stride() % pack == 0 && dx.stride() % pack == 0 &&
                             aligned_for(pack, width, strided_elements<T>(dx), elements<T>(dy), strided_elements<T>(x));
        for_taps<pack>(taps, aligned, [&](auto most, auto columns) {
            constexpr int values = columns.value * (most.value + 1);
            const auto kernel_for = [](bool adds, bool separate) {
                constexpr int taps_at_most = decltype(most)::value, width_of_pack = decltype(columns)::value;
                if (separate)
                    return adds ? convolution_backward_kernel<T, taps_at_most, width_of_pack, true, true>
                                : convolution_backward_kernel<T, taps_at_most, width_of_pack, false, true>;
                return adds ? convolution_backward_kernel<T, taps_at_most, width_of_pack, true, false>
                            : convolution_backward_kernel<T, taps_at_most, width_of_pack, false, false>;
            };
            const ColumnGrid grid = column_grid(segments, width / columns.value, 1);
            const std::int64_t sums = width * (most.value + 1);
            float* const partials = scratch_of<float>(grid.row_blocks * sums);
            launch({"convolution_backward", dim3(grid.column_blocks, grid.row_blocks), column_threads,
                    static_cast<std::size_t>(column_threads * values) * sizeof(float), stream()},
                   kernel_for(accumulate == Accumulate::yes, !documents.joined()), strided_elements<T>(dx), partials,
                   elements<T>(dy), strided_elements<T>(x), weight.fp32(), static_cast<int>(taps), width, dx.stride(),
                   x.stride(), static_cast<int>(length), segments, grid.lanes, DocumentPlaces(documents));
            add_partials("convolution_backward", stream(),
                         GradientPlace{dweight.fp32(), dbias.fp32(), static_cast<int>(taps), most.value}, partials,
                         grid.row_blocks, sums);
        });
    });
}

}  // namespace lockstep::kernels::cuda
