// RMSNorm and LayerNorm, backward. With n the normalised x and g = w ⊙ dy:
//     dx (+)= (g - mean(g) - n mean(g ⊙ n)) / deviation,   dw += Σ dy ⊙ n,   db += Σ dy
// (RMSNorm: without mean(g)). Blocks walk over the rows in order and accumulate dw and db; a second kernel adds the
// blocks' sums, in order. The number of blocks depends only on the shape.
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/norm_sums.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int warps = norm_warps, threads = warps * warp_width;

// A team of `members` threads (a part of a warp, a warp, or the whole block) takes `at_once` rows at a time; each
// thread holds `vectors` 16-byte vectors of each, always in the same columns, whose sums stay in its registers.
template <class T, bool centred, int vectors, int members, int at_once>
__global__ void __launch_bounds__(threads)
    backward_by_team(T* dx, float* partials, const T* __restrict__ dy, const T* __restrict__ x,
                     const float* __restrict__ weight, const float* __restrict__ mean,
                     const float* __restrict__ inverse, std::int64_t rows, int width, bool accumulate) {
    static_assert(members <= warp_width || members == threads);
    constexpr int elements = Vector16<T>::count, teams = threads / members,
                  lanes = members < warp_width ? members : warp_width;
    const int lane = static_cast<int>(threadIdx.x) % warp_width, warp = static_cast<int>(threadIdx.x) / warp_width;
    const int member = static_cast<int>(threadIdx.x) % members, pieces = width / elements;
    const float width_inverse = 1.0f / static_cast<float>(width);
    float* work = shared_memory<float>();
    float dweight[vectors][elements] = {}, dbias[vectors][elements] = {};
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * teams * at_once;
    int turn = 0;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams * at_once; first < rows; first += stride) {
        // Rows and columns out of range are zeros and add nothing.
        Vector16<T> out[at_once][vectors] = {}, in[at_once][vectors] = {};
        float centre[at_once] = {}, scale[at_once] = {}, level[at_once] = {}, along[at_once] = {};
#pragma unroll
        for (int r = 0; r < at_once; ++r) {
            const std::int64_t row = first + (threadIdx.x / members) * at_once + r;
            if (row >= rows) continue;
            if constexpr (centred) centre[r] = mean[row];
            scale[r] = inverse[row];
#pragma unroll
            for (int i = 0; i < vectors; ++i) {
                const int piece = member + i * members;
                if (piece >= pieces) continue;
                in[r][i] = load16(x + row * width + piece * elements);
                out[r][i] = load16(dy + row * width + piece * elements);
            }
        }
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const int piece = member + i * members;
            if (piece >= pieces) continue;
            float w[elements];
            load_floats(w, weight + piece * elements);
#pragma unroll
            for (int r = 0; r < at_once; ++r)
#pragma unroll
                for (int e = 0; e < elements; ++e) {
                    const float gradient = to_float(out[r][i].at[e]);
                    const float normal = (to_float(in[r][i].at[e]) - centre[r]) * scale[r];
                    dweight[i][e] = fmaf(gradient, normal, dweight[i][e]);
                    along[r] = fmaf(gradient * w[e], normal, along[r]);
                    if constexpr (centred) {
                        dbias[i][e] += gradient;
                        level[r] = fmaf(gradient, w[e], level[r]);
                    }
                }
        }
#pragma unroll
        for (int r = 0; r < at_once; ++r) {
            along[r] = lanes_sum<lanes>(along[r]);
            if constexpr (centred) level[r] = lanes_sum<lanes>(level[r]);
        }
        if constexpr (members > warp_width) {
            // Two alternating halves need one barrier: nobody rewrites a half before all have passed the next barrier.
            float* sums = work + turn * (2 * at_once * warps);
            turn ^= 1;
            if (lane == 0)
#pragma unroll
                for (int r = 0; r < at_once; ++r) {
                    sums[(2 * r) * warps + warp] = along[r];
                    sums[(2 * r + 1) * warps + warp] = level[r];
                }
            __syncthreads();
#pragma unroll
            for (int r = 0; r < at_once; ++r) {
                along[r] = level[r] = 0;
#pragma unroll
                for (int other = 0; other < warps; ++other) {
                    along[r] += sums[(2 * r) * warps + other];
                    level[r] += sums[(2 * r + 1) * warps + other];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < at_once; ++r) {
            const std::int64_t row = first + (threadIdx.x / members) * at_once + r;
            if (row >= rows) continue;
#pragma unroll
            for (int i = 0; i < vectors; ++i) {
                const int piece = member + i * members;
                if (piece >= pieces) continue;
                float w[elements];
                load_floats(w, weight + piece * elements);
                Vector16<T> sum = {};
                if (accumulate) sum = load16(dx + row * width + piece * elements);
#pragma unroll
                for (int e = 0; e < elements; ++e) {
                    const float normal = (to_float(in[r][i].at[e]) - centre[r]) * scale[r];
                    float change = fmaf(to_float(out[r][i].at[e]), w[e], -normal * (along[r] * width_inverse));
                    if constexpr (centred) change -= level[r] * width_inverse;
                    sum.at[e] = from_float<T>(fmaf(scale[r], change, to_float(sum.at[e])));
                }
                store16(dx + row * width + piece * elements, sum);
            }
        }
    }

    store_norm_sums<centred, members>(partials, dweight, dbias, width, work);
}

// Rows that are not 16-byte aligned, or too wide for registers: one block per row, the block's sums in memory.
template <class T, bool centred>
__global__ void __launch_bounds__(threads)
    backward_by_block(T* dx, float* partials, const T* __restrict__ dy, const T* __restrict__ x,
                      const float* __restrict__ weight, const float* __restrict__ mean,
                      const float* __restrict__ inverse, std::int64_t rows, std::int64_t width, bool accumulate) {
    float* work = shared_memory<float>();
    float* dweight = partials + static_cast<std::int64_t>(blockIdx.x) * (centred ? 2 : 1) * width;
    float* dbias = dweight + width;
    const float width_inverse = 1.0f / static_cast<float>(width);
    for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        dweight[c] = 0;
        if (centred) dbias[c] = 0;
    }
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const std::int64_t start = row * width;
        const float centre = centred ? mean[row] : 0.0f, scale = inverse[row];
        float level = 0, along = 0;
        for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
            const float gradient = to_float(dy[start + c]), normal = (to_float(x[start + c]) - centre) * scale;
            dweight[c] = fmaf(gradient, normal, dweight[c]);
            if (centred) dbias[c] += gradient;
            level = fmaf(gradient, weight[c], level);
            along = fmaf(gradient * weight[c], normal, along);
        }
        along = block_sum(along, work) * width_inverse;
        level = centred ? block_sum(level, work) * width_inverse : 0.0f;
        for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
            const float normal = (to_float(x[start + c]) - centre) * scale;
            const float change = fmaf(to_float(dy[start + c]), weight[c], -normal * along) - level;
            dx[start + c] = from_float<T>(fmaf(scale, change, accumulate ? to_float(dx[start + c]) : 0.0f));
        }
    }
}

struct Backward {
    Tensor dx, dweight, dbias, dy, x, weight, mean, inverse;
    std::int64_t rows, width;
    bool accumulate;
    float* partials;  // [most_norm_blocks, sums · width]
    cudaStream_t stream;
};

template <class T, bool centred, int groups, int members, int at_once>
std::int64_t launch_by_team(const Backward& b) {  // returns the number of blocks
    constexpr int vectors = groups * vectors_of_group<T>;
    constexpr std::int64_t block_rows = threads / members * at_once;
    const std::int64_t blocks = std::min(most_norm_blocks, (b.rows + block_rows - 1) / block_rows);
    const std::size_t work = members > warp_width ? 2 * 2 * at_once * warps : warps * warp_width * Vector16<T>::count;
    launch({centred ? "layer_norm_backward" : "rms_norm_backward", dim3(static_cast<unsigned>(blocks)), threads,
            work * sizeof(float), b.stream},
           backward_by_team<T, centred, vectors, members, at_once>, elements<T>(b.dx), b.partials, elements<T>(b.dy),
           elements<T>(b.x), elements<float>(b.weight), elements<float>(b.mean), elements<float>(b.inverse), b.rows,
           static_cast<int>(b.width), b.accumulate);
    return blocks;
}

template <class T, bool centred>
std::int64_t launch_rows(const Backward& b) {
    if (aligned_rows<T>(b.width, {b.dx, b.dy, b.x, b.weight})) {
        const std::int64_t groups = (b.width + group_width - 1) / group_width;
        if constexpr (!centred) {
            if (b.width <= row_of_8_lanes) return launch_by_team<T, false, 1, 8, 2>(b);
            if (b.width <= row_of_16_lanes) return launch_by_team<T, false, 1, 16, 2>(b);
        }
        if (groups <= 1) return launch_by_team<T, centred, 1, warp_width, 2>(b);
        if (groups <= 2) return launch_by_team<T, centred, 2, warp_width, 2>(b);
        if (groups <= 3) return launch_by_team<T, centred, 3, warp_width, 1>(b);
        if (groups <= 4) return launch_by_team<T, centred, 4, warp_width, 1>(b);
        if (groups <= 1 * warps) return launch_by_team<T, centred, 1, threads, 2>(b);
        if (groups <= 2 * warps) return launch_by_team<T, centred, 2, threads, 2>(b);
        if (groups <= 4 * warps) return launch_by_team<T, centred, 4, threads, 1>(b);
    }
    const std::int64_t blocks = std::min(most_norm_blocks, b.rows);
    launch({centred ? "layer_norm_backward_wide" : "rms_norm_backward_wide", dim3(static_cast<unsigned>(blocks)),
            threads_for(b.width, 1, threads), warp_width * sizeof(float), b.stream},
           backward_by_block<T, centred>, elements<T>(b.dx), b.partials, elements<T>(b.dy), elements<T>(b.x),
           elements<float>(b.weight), elements<float>(b.mean), elements<float>(b.inverse), b.rows, b.width,
           b.accumulate);
    return blocks;
}

template <bool centred>
void backward(const Backward& b) {
    const std::int64_t columns = (centred ? 2 : 1) * b.width;
    dispatch(b.x.type(), [&](auto element) {
        const std::int64_t blocks = launch_rows<decltype(element), centred>(b);
        add_partials("norm_backward_sums", b.stream,
                     NormGradientPlace{elements<float>(b.dweight), elements<float>(b.dbias), b.width}, b.partials,
                     blocks, columns);
    });
}

}  // namespace

void CudaBackend::rms_norm_backward(Tensor dx, Tensor dweight, Tensor dy, Tensor x, Tensor weight, Tensor inverse_rms,
                                    Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && inverse_rms.count() == rows);
    LOCKSTEP_ASSERT(dx.type() == x.type() && dy.type() == x.type() && inverse_rms.type() == Type::fp32);
    LOCKSTEP_ASSERT(weight.count() == width && dweight.count() == width);
    LOCKSTEP_ASSERT(weight.type() == Type::fp32 && dweight.type() == Type::fp32);
    backward<false>({dx,
                     dweight,
                     {},
                     dy,
                     x,
                     weight,
                     {},
                     inverse_rms,
                     rows,
                     width,
                     accumulate == Accumulate::yes,
                     scratch_of<float>(most_norm_blocks * width),
                     stream()});
}

void CudaBackend::layer_norm_backward(Tensor dx, Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Tensor weight,
                                      Tensor mean, Tensor inverse_deviation, Accumulate accumulate) {
    const std::int64_t width = x.size(-1), rows = x.rows();
    LOCKSTEP_ASSERT(dx.count() == x.count() && dy.count() == x.count() && weight.count() == width);
    LOCKSTEP_ASSERT(dx.type() == x.type() && dy.type() == x.type() && weight.type() == Type::fp32);
    LOCKSTEP_ASSERT(dweight.count() == width && dbias.count() == width);
    LOCKSTEP_ASSERT(dweight.type() == Type::fp32 && dbias.type() == Type::fp32);
    LOCKSTEP_ASSERT(mean.count() == rows && inverse_deviation.count() == rows);
    LOCKSTEP_ASSERT(mean.type() == Type::fp32 && inverse_deviation.type() == Type::fp32);
    backward<true>({dx, dweight, dbias, dy, x, weight, mean, inverse_deviation, rows, width,
                    accumulate == Accumulate::yes, scratch_of<float>(most_norm_blocks * 2 * width), stream()});
}

}  // namespace lockstep::kernels::cuda
