// Cross-entropy with the vocabulary divided over ranks, in three parts, each with one block per row.
#include <cmath>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/cuda/row.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(most_row_threads)
    maxima_kernel(float* maxima, T* logits, int columns, std::int64_t stride) {
    float highest = -INFINITY;
    for_row<false>(logits + static_cast<std::int64_t>(blockIdx.x) * stride, columns,
                   [&]<int count>(const float(&values)[count], int) {
#pragma unroll
                       for (int e = 0; e < count; ++e) highest = fmaxf(highest, values[e]);
                   });
    highest = block_maximum(highest, shared_memory<float>());
    if (threadIdx.x == 0) maxima[blockIdx.x] = highest;
}

template <class T>
__global__ void __launch_bounds__(most_row_threads)
    sums_kernel(float* sums, T* logits, const float* __restrict__ maxima, const std::int32_t* __restrict__ targets,
                std::int64_t first_id, int columns, std::int64_t stride) {
    const std::int64_t row = blockIdx.x;
    T* const scores = logits + row * stride;
    const std::int32_t target = targets[row];
    float total = 0, chosen = 0;
    if (target >= 0) {
        const float highest = maxima[row];
        for_row<false>(scores, columns, [&]<int count>(const float(&values)[count], int) {
#pragma unroll
            for (int e = 0; e < count; ++e) total += exponential(values[e] - highest);
        });
        const std::int64_t place = target - first_id;
        if (place >= 0 && place < columns) chosen = to_float(scores[place]) - highest;
        total = block_sum(total, shared_memory<float>());
    }
    if (threadIdx.x != 0) return;
    sums[2 * row] = total;
    sums[2 * row + 1] = chosen;
}

template <class T>
__global__ void __launch_bounds__(most_row_threads)
    finish_kernel(float* losses, T* logits, const float* __restrict__ maxima, const float* __restrict__ sums,
                  const std::int32_t* __restrict__ targets, std::int64_t first_id, LossGradient gradient,
                  const double* loss_scale, int columns, std::int64_t stride) {
    const std::int64_t row = blockIdx.x;
    T* const scores = logits + row * stride;
    const std::int32_t target = targets[row];
    const float total = sums[2 * row];
    if (threadIdx.x == 0) losses[row] = target < 0 ? 0.0f : logf(total) - sums[2 * row + 1];
    if (gradient.scale == 0) return;
    if (target < 0) {  // ignored; the logits may be anything
        for_row<true>(scores, columns, []<int count>(float(&values)[count], int) {
#pragma unroll
            for (int e = 0; e < count; ++e) values[e] = 0;
        });
        return;
    }
    const float scale = gradient.scale * (loss_scale ? static_cast<float>(*loss_scale) : 1.0f);
    const float highest = maxima[row];
    const float factor = scale / total * (1 + 2 * gradient.z_loss * (highest + logf(total)));
    const std::int64_t from_first = target - first_id;
    const int place = from_first >= 0 && from_first < columns ? static_cast<int>(from_first) : -1;
    for_row<true>(scores, columns, [&]<int count>(float(&values)[count], int first) {
#pragma unroll
        for (int e = 0; e < count; ++e)
            values[e] = (factor * exponential(values[e] - highest) - (first + e == place ? scale : 0.0f)) *
                        gradient.slope(values[e]);
    });
}

}  // namespace

void CudaBackend::cross_entropy_maxima(Tensor maxima, Tensor logits) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(maxima.count() == rows && columns <= INT32_MAX / 2);
    dispatch(logits.type(), [&](auto element) {
        using T = decltype(element);
        launch({"cross_entropy_maxima", dim3(static_cast<unsigned>(rows)), row_threads(columns / Vector16<T>::count),
                warp_width * sizeof(float), stream()},
               maxima_kernel<T>, maxima.fp32(), strided_elements<T>(logits), static_cast<int>(columns),
               logits.stride());
    });
}

void CudaBackend::cross_entropy_sums(Tensor sums, Tensor logits, Tensor maxima, Tensor targets, std::int64_t first_id) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(sums.count() == 2 * rows && maxima.count() == rows && targets.count() == rows);
    LOCKSTEP_ASSERT(columns <= INT32_MAX / 2);
    dispatch(logits.type(), [&](auto element) {
        using T = decltype(element);
        launch({"cross_entropy_sums", dim3(static_cast<unsigned>(rows)), row_threads(columns / Vector16<T>::count),
                warp_width * sizeof(float), stream()},
               sums_kernel<T>, sums.fp32(), strided_elements<T>(logits), maxima.fp32(), targets.as<std::int32_t>(),
               first_id, static_cast<int>(columns), logits.stride());
    });
}

void CudaBackend::cross_entropy_finish(Tensor losses, Tensor logits, Tensor maxima, Tensor sums, Tensor targets,
                                       std::int64_t first_id, const LossGradient& gradient, Tensor loss_scale) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(losses.count() == rows && maxima.count() == rows && targets.count() == rows);
    LOCKSTEP_ASSERT(sums.count() == 2 * rows && columns <= INT32_MAX / 2);
    const double* const scale = loss_scale.empty() ? nullptr : loss_scale.fp64();
    dispatch(logits.type(), [&](auto element) {
        using T = decltype(element);
        const std::int64_t pieces = gradient.scale == 0 ? 1 : columns / Vector16<T>::count;
        launch({"cross_entropy_finish", dim3(static_cast<unsigned>(rows)), row_threads(pieces), 0, stream()},
               finish_kernel<T>, losses.fp32(), strided_elements<T>(logits), maxima.fp32(), sums.fp32(),
               targets.as<std::int32_t>(), first_id, gradient, scale, static_cast<int>(columns), logits.stride());
    });
}

}  // namespace lockstep::kernels::cuda
