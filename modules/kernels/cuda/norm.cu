// RMSNorm and LayerNorm, forward: one pass over memory, including the residual. Rows that are 16-byte aligned and at
// most 2048 wide take a warp each, narrow ones a part of it, and stay in registers; others take a block each and stay
// in shared memory. The variance is computed around the mean from the kept row, so a large mean costs no precision.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int block_warps = 4;  // of forward_by_warp
constexpr unsigned most_threads = 512;

template <class T>
__device__ inline float sum_with_residual(T& value, T residual) {  // the sum as stored
    value = from_float<T>(to_float(value) + to_float(residual));
    return to_float(value);
}

// A row takes `lanes` lanes; `vectors`: 16-byte accesses of each.
template <class T, bool centred, int vectors, int lanes>
__global__ void __launch_bounds__(block_warps* warp_width)
    forward_by_warp(T* y, float* mean, float* inverse, T* x, const T* __restrict__ residual,
                    const float* __restrict__ weight, const float* __restrict__ bias, float epsilon, std::int64_t rows,
                    int width) {
    constexpr int elements = Vector16<T>::count;
    const int lane = static_cast<int>(threadIdx.x) % lanes;
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * (block_warps * warp_width / lanes) + threadIdx.x / lanes;
    // A row that is not there has no pieces; its lanes take part in the sums all the same.
    const int pieces = row < rows ? width / elements : 0;
    x += row * width;
    y += row * width;
    Vector16<T> kept[vectors];
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
        const int piece = lane + i * lanes;
        if (piece < pieces) kept[i] = load16(x + piece * elements);
    }
    if (residual) {
        residual += row * width;
        Vector16<T> added[vectors];
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int piece = lane + i * lanes;
            if (piece < pieces) added[i] = load16(residual + piece * elements);
        }
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int piece = lane + i * lanes;
            if (piece >= pieces) continue;
#pragma unroll
            for (int e = 0; e < elements; ++e) sum_with_residual(kept[i].at[e], added[i].at[e]);
            store16(x + piece * elements, kept[i]);
        }
    }

    const float width_inverse = 1.0f / static_cast<float>(width);
    float centre = 0;
    if constexpr (centred) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < vectors; ++i)
            if (lane + i * lanes < pieces) {
#pragma unroll
                for (int e = 0; e < elements; ++e) sum += to_float(kept[i].at[e]);
            }
        centre = lanes_sum<lanes>(sum) * width_inverse;
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < vectors; ++i)
        if (lane + i * lanes < pieces) {
#pragma unroll
            for (int e = 0; e < elements; ++e) {
                const float distance = to_float(kept[i].at[e]) - centre;
                squares = fmaf(distance, distance, squares);
            }
        }
    const float scale = 1.0f / sqrtf(lanes_sum<lanes>(squares) * width_inverse + epsilon);
    if (lane == 0 && row < rows) {
        if constexpr (centred) mean[row] = centre;
        inverse[row] = scale;
    }

#pragma unroll
    for (int i = 0; i < vectors; ++i) {
        const int piece = lane + i * lanes;
        if (piece >= pieces) continue;
        float w[elements], b[elements] = {};
        load_floats(w, weight + piece * elements);
        if constexpr (centred) load_floats(b, bias + piece * elements);
#pragma unroll
        for (int e = 0; e < elements; ++e)
            kept[i].at[e] = from_float<T>(fmaf(w[e], (to_float(kept[i].at[e]) - centre) * scale, b[e]));
        store16(y + piece * elements, kept[i]);
    }
}

// `elements` neighbours are read together: 16 bytes' worth, or 1 if rows are not aligned. Every thread keeps what it
// reads. A row too wide for shared memory (`keep` is false) is read again from x.
template <class T, bool centred, int elements>
__global__ void __launch_bounds__(most_threads)
    forward_by_block(T* y, float* mean, float* inverse, T* x, const T* __restrict__ residual,
                     const float* __restrict__ weight, const float* __restrict__ bias, float epsilon,
                     std::int64_t width, bool keep) {
    using Piece = Pack<T, elements>;
    float* work = shared_memory<float>();
    const std::int64_t row = blockIdx.x, pieces = width / elements;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    x += row * width;
    y += row * width;
    T* kept = keep ? reinterpret_cast<T*>(work + warp_width) : x;
    float sum = 0;
    for (std::int64_t piece = thread; piece < pieces; piece += threads) {
        Piece in = load_pack<elements>(x + piece * elements);
        if (residual) {
            const Piece added = load_pack<elements>(residual + row * width + piece * elements);
#pragma unroll
            for (int e = 0; e < elements; ++e) sum_with_residual(in.at[e], added.at[e]);
            store_pack(x + piece * elements, in);
        }
        if (keep) store_pack(kept + piece * elements, in);
#pragma unroll
        for (int e = 0; e < elements; ++e) sum += to_float(in.at[e]);
    }

    const float width_inverse = 1.0f / static_cast<float>(width);
    const float centre = centred ? block_sum(sum, work) * width_inverse : 0.0f;
    float squares = 0;
    for (std::int64_t piece = thread; piece < pieces; piece += threads) {
        const Piece in = load_pack<elements>(kept + piece * elements);
#pragma unroll
        for (int e = 0; e < elements; ++e) {
            const float distance = to_float(in.at[e]) - centre;
            squares = fmaf(distance, distance, squares);
        }
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, work) * width_inverse + epsilon);
    if (thread == 0) {
        if (centred) mean[row] = centre;
        inverse[row] = scale;
    }

    for (std::int64_t piece = thread; piece < pieces; piece += threads) {
        float w[elements], b[elements] = {};
        load_floats(w, weight + piece * elements);
        if constexpr (centred) load_floats(b, bias + piece * elements);
        Piece in = load_pack<elements>(kept + piece * elements);
#pragma unroll
        for (int e = 0; e < elements; ++e)
            in.at[e] = from_float<T>(fmaf(w[e], (to_float(in.at[e]) - centre) * scale, b[e]));
        store_pack(y + piece * elements, in);
    }
}

struct Forward {
    Tensor y, mean, inverse, x, residual, weight, bias;
    float epsilon;
    std::int64_t rows, width;
    std::size_t shared_limit;
    cudaStream_t stream;
};

template <class T, bool centred, int groups, int lanes = warp_width>
void launch_by_warp(const Forward& f) {
    launch({centred ? "layer_norm_forward" : "rms_norm_forward",
            dim3(blocks_for(f.rows, block_warps * warp_width / lanes)), block_warps * warp_width, 0, f.stream},
           forward_by_warp<T, centred, groups * vectors_of_group<T>, lanes>, elements<T>(f.y), elements<float>(f.mean),
           elements<float>(f.inverse), elements<T>(f.x), elements<T>(f.residual), elements<float>(f.weight),
           elements<float>(f.bias), f.epsilon, f.rows, static_cast<int>(f.width));
}

template <class T, bool centred, int count>
void launch_by_block(const Forward& f) {
    const std::size_t work = warp_width * sizeof(float), row = static_cast<std::size_t>(f.width) * sizeof(T);
    const bool keep = work + row <= f.shared_limit;
    const unsigned threads = threads_for(f.width / count, 4, most_threads);
    launch({centred ? "layer_norm_forward_wide" : "rms_norm_forward_wide", dim3(static_cast<unsigned>(f.rows)), threads,
            work + (keep ? row : 0), f.stream},
           forward_by_block<T, centred, count>, elements<T>(f.y), elements<float>(f.mean), elements<float>(f.inverse),
           elements<T>(f.x), elements<T>(f.residual), elements<float>(f.weight), elements<float>(f.bias), f.epsilon,
           f.width, keep);
}

template <class T, bool centred>
void forward(const Forward& f) {
    const bool aligned = aligned_rows<T>(f.width, {f.y, f.x, f.residual, f.weight, f.bias});
    if (!aligned) return launch_by_block<T, centred, 1>(f);
    if constexpr (!centred) {
        if (f.width <= row_of_8_lanes) return launch_by_warp<T, false, 1, 8>(f);
        if (f.width <= row_of_16_lanes) return launch_by_warp<T, false, 1, 16>(f);
    }
    const std::int64_t groups = (f.width + group_width - 1) / group_width;
    if (groups <= 1) return launch_by_warp<T, centred, 1>(f);
    if (groups <= 2) return launch_by_warp<T, centred, 2>(f);
    if (groups <= 3) return launch_by_warp<T, centred, 3>(f);
    if (groups <= 4) return launch_by_warp<T, centred, 4>(f);
    if (groups <= 6) return launch_by_warp<T, centred, 6>(f);
    if (groups <= 8) return launch_by_warp<T, centred, 8>(f);
    launch_by_block<T, centred, Vector16<T>::count>(f);
}

}  // namespace

void CudaBackend::rms_norm_forward(Tensor y, Tensor inverse_rms, Tensor x, Tensor residual, Tensor weight,
                                   float epsilon) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(y.count() == x.count() && weight.count() == width && inverse_rms.count() == rows);
    LOCKSTEP_ASSERT(y.type() == x.type() && weight.type() == Type::fp32 && inverse_rms.type() == Type::fp32);
    LOCKSTEP_ASSERT(residual.empty() || (residual.count() == x.count() && residual.type() == x.type()));
    const Forward arguments{y,
                            {},
                            inverse_rms,
                            x,
                            residual,
                            weight,
                            {},
                            epsilon,
                            rows,
                            width,
                            context_->properties().sharedMemPerBlockOptin,
                            stream()};
    dispatch(x.type(), [&](auto element) { forward<decltype(element), false>(arguments); });
}

void CudaBackend::layer_norm_forward(Tensor y, Tensor mean, Tensor inverse_deviation, Tensor x, Tensor residual,
                                     Tensor weight, Tensor bias, float epsilon) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(y.count() == x.count() && weight.count() == width && bias.count() == width);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    LOCKSTEP_ASSERT(y.type() == x.type() && weight.type() == Type::fp32 && bias.type() == Type::fp32);
    LOCKSTEP_ASSERT(mean.type() == Type::fp32 && inverse_deviation.type() == Type::fp32);
    LOCKSTEP_ASSERT(residual.empty() || (residual.count() == x.count() && residual.type() == x.type()));
    const Forward arguments{y,
                            mean,
                            inverse_deviation,
                            x,
                            residual,
                            weight,
                            bias,
                            epsilon,
                            rows,
                            width,
                            context_->properties().sharedMemPerBlockOptin,
                            stream()};
    dispatch(x.type(), [&](auto element) { forward<decltype(element), true>(arguments); });
}

}  // namespace lockstep::kernels::cuda
