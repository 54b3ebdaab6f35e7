// LayerNorm with columns divided over ranks, in the parts between which the ranks exchange sums. Parts without sums
// over rows take a warp per row; a second pass over the row hits the caches. The sums for dw and db are as in
// norm_backward.cu.
#include <cmath>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/norm_sums.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int warps = norm_warps, threads = warps * warp_width;

// What kernels read of the norm: a row's statistics and a column's weight.
struct Rows {
    const float *mean, *inverse, *weight;
    std::int64_t rows, width;
};

__device__ inline std::int64_t row_of_warp() {
    return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_width;
}

// Calls use(column) for the first column of each pack of this lane.
template <int elements, class Use>
__device__ inline void for_columns(std::int64_t width, Use&& use) {
    const int lane = static_cast<int>(threadIdx.x) % warp_width;
#pragma unroll 4
    for (std::int64_t column = lane * elements; column < width; column += warp_width * elements) use(column);
}

template <class T, int elements>
__global__ void __launch_bounds__(threads)
    moments_kernel(float* moments, const T* __restrict__ x, std::int64_t rows, std::int64_t width) {
    const std::int64_t row = row_of_warp();
    if (row >= rows) return;
    x += row * width;
    float sum = 0, squares = 0;
    for_columns<elements>(width, [&](std::int64_t column) {
        const Pack<T, elements> in = load_pack<elements>(x + column);
#pragma unroll
        for (int e = 0; e < elements; ++e) sum += to_float(in.at[e]);
    });
    const float centre = warp_sum(sum) / static_cast<float>(width);
    for_columns<elements>(width, [&](std::int64_t column) {
        const Pack<T, elements> in = load_pack<elements>(x + column);
#pragma unroll
        for (int e = 0; e < elements; ++e) {
            const float distance = to_float(in.at[e]) - centre;
            squares = fmaf(distance, distance, squares);
        }
    });
    squares = warp_sum(squares);
    if (threadIdx.x % warp_width != 0) return;
    moments[2 * row] = centre;
    moments[2 * row + 1] = squares;
}

// One thread per row. The parts have equal widths: the mean is the mean of their means, and the sum of squares around
// it is that around their own means plus width (their mean - mean)² each.
__global__ void __launch_bounds__(threads)
    statistics_kernel(float* mean, float* inverse, const float* __restrict__ moments, std::int64_t rows,
                      std::int64_t parts, double width, double epsilon) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (row >= rows) return;
    double sum = 0, squares = 0;
    for (std::int64_t p = 0; p < parts; ++p) sum += static_cast<double>(moments[2 * (p * rows + row)]);
    const double whole = sum / static_cast<double>(parts);
    for (std::int64_t p = 0; p < parts; ++p) {
        const double distance = static_cast<double>(moments[2 * (p * rows + row)]) - whole;
        squares += static_cast<double>(moments[2 * (p * rows + row) + 1]) + width * distance * distance;
    }
    mean[row] = static_cast<float>(whole);
    inverse[row] = static_cast<float>(1 / sqrt(squares / (width * static_cast<double>(parts)) + epsilon));
}

template <class T, int elements>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* __restrict__ y, const T* __restrict__ x, const float* __restrict__ bias, Rows at) {
    const std::int64_t row = row_of_warp();
    if (row >= at.rows) return;
    x += row * at.width;
    y += row * at.width;
    const float centre = at.mean[row], scale = at.inverse[row];
    for_columns<elements>(at.width, [&](std::int64_t column) {
        Pack<T, elements> in = load_pack<elements>(x + column);
        float w[elements], b[elements];
        load_floats(w, at.weight + column);
        load_floats(b, bias + column);
#pragma unroll
        for (int e = 0; e < elements; ++e)
            in.at[e] = from_float<T>(fmaf(w[e], (to_float(in.at[e]) - centre) * scale, b[e]));
        store_pack(y + column, in);
    });
}

template <class T, int elements>
__global__ void __launch_bounds__(threads) backward_kernel(T* dx, const T* dy, const T* __restrict__ x,
                                                           const float* __restrict__ sums, float all_width, Rows at) {
    const std::int64_t row = row_of_warp();
    if (row >= at.rows) return;
    const std::int64_t start = row * at.width;
    const float centre = at.mean[row], scale = at.inverse[row];
    const float level = sums[2 * row] / all_width, along = sums[2 * row + 1] / all_width;
    for_columns<elements>(at.width, [&](std::int64_t column) {
        const Pack<T, elements> in = load_pack<elements>(x + start + column);
        Pack<T, elements> out = load_pack<elements>(dy + start + column);
        float w[elements];
        load_floats(w, at.weight + column);
#pragma unroll
        for (int e = 0; e < elements; ++e) {
            const float normal = (to_float(in.at[e]) - centre) * scale;
            out.at[e] = from_float<T>(scale * (fmaf(to_float(out.at[e]), w[e], -normal * along) - level));
        }
        store_pack(dx + start + column, out);
    });
}

// A team of `team_warps` warps (1, or the whole block) per row; each thread holds `vectors` 16-byte vectors of it,
// always in the same columns, whose sums stay in its registers.
template <class T, int vectors, int team_warps>
__global__ void __launch_bounds__(threads)
    sums_by_team(float* sums, float* partials, const T* __restrict__ dy, const T* __restrict__ x, Rows at) {
    static_assert(team_warps == 1 || team_warps == warps);
    constexpr int elements = Vector16<T>::count, members = team_warps * warp_width, teams = warps / team_warps;
    const int member = static_cast<int>(threadIdx.x) % members, width = static_cast<int>(at.width);
    float* work = shared_memory<float>();
    float dweight[vectors][elements] = {}, dbias[vectors][elements] = {};
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * teams;
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * teams + threadIdx.x / members; row < at.rows;
         row += stride) {
        Vector16<T> out[vectors], in[vectors];
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int column = (member + i * members) * elements;
            if (column >= width) continue;
            in[i] = load16(x + row * width + column);
            out[i] = load16(dy + row * width + column);
        }
        const float centre = at.mean[row], scale = at.inverse[row];
        float level = 0, along = 0;
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int column = (member + i * members) * elements;
            if (column >= width) continue;
            float w[elements];
            load_floats(w, at.weight + column);
#pragma unroll
            for (int e = 0; e < elements; ++e) {
                const float gradient = to_float(out[i].at[e]), normal = (to_float(in[i].at[e]) - centre) * scale;
                dweight[i][e] = fmaf(gradient, normal, dweight[i][e]);
                dbias[i][e] += gradient;
                level = fmaf(gradient, w[e], level);
                along = fmaf(gradient * w[e], normal, along);
            }
        }
        if constexpr (team_warps > 1) {
            level = block_sum(level, work);
            along = block_sum(along, work);
        } else {
            level = warp_sum(level);
            along = warp_sum(along);
        }
        if (member == 0) {
            sums[2 * row] = level;
            sums[2 * row + 1] = along;
        }
    }
    store_norm_sums<true, members>(partials, dweight, dbias, width, work);
}

// Rows that are not 16-byte aligned, or too wide for registers: one block per row, the block's sums in memory.
template <class T>
__global__ void __launch_bounds__(threads)
    sums_by_block(float* sums, float* partials, const T* __restrict__ dy, const T* __restrict__ x, Rows at) {
    float* work = shared_memory<float>();
    float* dweight = partials + static_cast<std::int64_t>(blockIdx.x) * 2 * at.width;
    float* dbias = dweight + at.width;
    for (std::int64_t c = threadIdx.x; c < at.width; c += blockDim.x) dweight[c] = dbias[c] = 0;
    for (std::int64_t row = blockIdx.x; row < at.rows; row += gridDim.x) {
        const std::int64_t start = row * at.width;
        const float centre = at.mean[row], scale = at.inverse[row];
        float level = 0, along = 0;
        for (std::int64_t c = threadIdx.x; c < at.width; c += blockDim.x) {
            const float gradient = to_float(dy[start + c]), normal = (to_float(x[start + c]) - centre) * scale;
            dweight[c] = fmaf(gradient, normal, dweight[c]);
            dbias[c] += gradient;
            level = fmaf(gradient, at.weight[c], level);
            along = fmaf(gradient * at.weight[c], normal, along);
        }
        level = block_sum(level, work);
        along = block_sum(along, work);
        if (threadIdx.x == 0) {
            sums[2 * row] = level;
            sums[2 * row + 1] = along;
        }
    }
}

struct Sums {
    Tensor sums, dy, x;
    Rows at;
    float* partials;  // [most_norm_blocks, 2 · width]
    cudaStream_t stream;
};

template <class T, int groups, int team_warps>
std::int64_t launch_by_team(const Sums& s) {  // returns the number of blocks
    constexpr std::int64_t teams = warps / team_warps;
    const std::int64_t blocks = std::min(most_norm_blocks, (s.at.rows + teams - 1) / teams);
    launch({"split_norm_backward_sums", dim3(static_cast<unsigned>(blocks)), threads, norm_sums_work<T> * sizeof(float),
            s.stream},
           sums_by_team<T, groups * vectors_of_group<T>, team_warps>, s.sums.fp32(), s.partials, elements<T>(s.dy),
           elements<T>(s.x), s.at);
    return blocks;
}

template <class T>
std::int64_t launch_sums(const Sums& s, const Tensor& weight) {
    if (aligned_rows<T>(s.at.width, {s.dy, s.x, weight})) {
        const std::int64_t groups = (s.at.width + group_width - 1) / group_width;
        if (groups <= 1) return launch_by_team<T, 1, 1>(s);
        if (groups <= 2) return launch_by_team<T, 2, 1>(s);
        if (groups <= 4) return launch_by_team<T, 4, 1>(s);
        if (groups <= 1 * warps) return launch_by_team<T, 1, warps>(s);
        if (groups <= 2 * warps) return launch_by_team<T, 2, warps>(s);
        if (groups <= 4 * warps) return launch_by_team<T, 4, warps>(s);
    }
    const std::int64_t blocks = std::min(most_norm_blocks, s.at.rows);
    launch({"split_norm_backward_sums_wide", dim3(static_cast<unsigned>(blocks)), threads_for(s.at.width, 1, threads),
            warp_width * sizeof(float), s.stream},
           sums_by_block<T>, s.sums.fp32(), s.partials, elements<T>(s.dy), elements<T>(s.x), s.at);
    return blocks;
}

Rows rows_of(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& inverse_deviation) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(weight.count() == width && mean.count() == rows && inverse_deviation.count() == rows);
    return {mean.fp32(), inverse_deviation.fp32(), weight.fp32(), rows, width};
}

// Calls run(T(), elements): elements per access for rows of `width` in all tensors.
template <class Run>
void dispatch_rows(Type type, std::int64_t width, std::initializer_list<Tensor> tensors, Run&& run) {
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        constexpr int count = Vector16<T>::count;
        if (aligned_rows<T>(width, tensors))
            run(element, std::integral_constant<int, count>());
        else
            run(element, std::integral_constant<int, 1>());
    });
}

}  // namespace

void CudaBackend::split_norm_moments(Tensor moments, Tensor x) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(moments.count() == 2 * rows);
    dispatch_rows(x.type(), width, {x}, [&](auto element, auto count) {
        using T = decltype(element);
        launch({"split_norm_moments", dim3(blocks_for(rows, warps)), threads, 0, stream()},
               moments_kernel<T, decltype(count)::value>, moments.fp32(), elements<T>(x), rows, width);
    });
}

void CudaBackend::split_norm_statistics(Tensor mean, Tensor inverse_deviation, Tensor moments, std::int64_t width,
                                        float epsilon) {
    const std::int64_t rows = mean.count(), parts = moments.size(0);
    LOCKSTEP_ASSERT(inverse_deviation.count() == rows && moments.count() == 2 * parts * rows && parts > 0 && width > 0);
    launch({"split_norm_statistics", dim3(blocks_for(rows, threads)), threads, 0, stream()}, statistics_kernel,
           mean.fp32(), inverse_deviation.fp32(), moments.fp32(), rows, parts, static_cast<double>(width),
           static_cast<double>(epsilon));
}

void CudaBackend::split_norm_forward(Tensor y, Tensor x, Tensor mean, Tensor inverse_deviation, Tensor weight,
                                     Tensor bias) {
    const Rows at = rows_of(x, weight, mean, inverse_deviation);
    LOCKSTEP_ASSERT(y.count() == x.count() && y.type() == x.type() && bias.count() == at.width);
    dispatch_rows(x.type(), at.width, {y, x, weight, bias}, [&](auto element, auto count) {
        using T = decltype(element);
        launch({"split_norm_forward", dim3(blocks_for(at.rows, warps)), threads, 0, stream()},
               forward_kernel<T, decltype(count)::value>, elements<T>(y), elements<T>(x), bias.fp32(), at);
    });
}

void CudaBackend::split_norm_backward_sums(Tensor sums, Tensor dweight, Tensor dbias, Tensor dy, Tensor x,
                                           Tensor weight, Tensor mean, Tensor inverse_deviation) {
    const Rows at = rows_of(x, weight, mean, inverse_deviation);
    LOCKSTEP_ASSERT(sums.count() == 2 * at.rows && sums.type() == Type::fp32);
    LOCKSTEP_ASSERT(dy.count() == x.count() && dy.type() == x.type());
    LOCKSTEP_ASSERT(dweight.count() == at.width && dbias.count() == at.width);
    const Sums arguments{sums, dy, x, at, scratch_of<float>(most_norm_blocks * 2 * at.width), stream()};
    dispatch(x.type(), [&](auto element) {
        const std::int64_t blocks = launch_sums<decltype(element)>(arguments, weight);
        add_partials("split_norm_backward_sums", stream(), NormGradientPlace{dweight.fp32(), dbias.fp32(), at.width},
                     arguments.partials, blocks, 2 * at.width);
    });
}

void CudaBackend::split_norm_backward(Tensor dx, Tensor dy, Tensor x, Tensor weight, Tensor mean,
                                      Tensor inverse_deviation, Tensor sums, std::int64_t all_width) {
    const Rows at = rows_of(x, weight, mean, inverse_deviation);
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count());
    LOCKSTEP_ASSERT(dx.type() == x.type() && dy.type() == x.type());
    LOCKSTEP_ASSERT(sums.count() == 2 * at.rows && all_width >= at.width);
    dispatch_rows(x.type(), at.width, {dx, dy, x, weight}, [&](auto element, auto count) {
        using T = decltype(element);
        launch({"split_norm_backward", dim3(blocks_for(at.rows, warps)), threads, 0, stream()},
               backward_kernel<T, decltype(count)::value>, elements<T>(dx), elements<T>(dy), elements<T>(x),
               sums.fp32(), static_cast<float>(all_width), at);
    });
}

}  // namespace lockstep::kernels::cuda
