// TTT-MLP backward: the choice of kernels, and the sums over sequences.
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int reduce_threads = 256;

struct TttMlpGradients {
    float *weight1, *bias1, *weight2, *bias2, *norm_weight, *norm_bias, *token_scale;
};

// Adds the parts of all sequences, in their order, to the gradients of the learned tensors: a thread to an element of
// a head's part.
__global__ void __launch_bounds__(reduce_threads)
    ttt_mlp_reduce(TttMlpGradients to, const float* parts, TttMlpSizes sizes) {
    const std::int64_t count = sizes.part_count() - sizes.mini_batch, head = blockIdx.y;
    const std::int64_t matrix = static_cast<std::int64_t>(sizes.width) * sizes.hidden;
    std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * reduce_threads + threadIdx.x;
    if (at >= count) return;
    float sum = 0;
    for (std::int64_t sequence = 0; sequence < sizes.batch; ++sequence)
        sum += parts[(sequence * sizes.heads + head) * sizes.part_count() + at];
    float* const tensors[] = {to.weight1, to.bias1, to.weight2, to.bias2, to.norm_weight, to.norm_bias};
    const std::int64_t counts[] = {matrix, sizes.hidden, matrix, sizes.width, sizes.width, sizes.width};
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        if (at >= 0 && at < counts[i]) tensors[i][head * counts[i] + at] += sum;
        at -= counts[i];
    }
}

// dτ: shared by all heads and sequences. A warp to an element.
__global__ void __launch_bounds__(reduce_threads)
    ttt_mlp_reduce_token_scale(float* token_scale, const float* parts, TttMlpSizes sizes) {
    const int token =
        static_cast<int>(blockIdx.x) * (reduce_threads / warp_width) + static_cast<int>(threadIdx.x) / warp_width;
    const int lane = static_cast<int>(threadIdx.x) % warp_width;
    if (token >= sizes.mini_batch) return;
    float sum = 0;
    for (std::int64_t pair = lane; pair < sizes.pairs(); pair += warp_width)
        sum += parts[(pair + 1) * sizes.part_count() - sizes.mini_batch + token];
    sum = warp_sum(sum);
    if (lane == 0) token_scale[token] += sum;
}

}  // namespace

void ttt_mlp_backward(const TttArguments& arguments, Type type) {
    const TttMlpSizes sizes = ttt_mlp_sizes(arguments.shape);
    const int tile_width = ttt_mlp_tile_width(sizes, type);
    const std::int64_t part_floats = (sizes.pairs() * sizes.part_count() + 63) / 64 * 64;
    const std::int64_t block_floats =
        tile_width ? ttt_mlp_backward_tiles_work(tile_width) : ttt_mlp_general_work(sizes, true);
    auto* const parts = static_cast<float*>(arguments.scratch(
        static_cast<std::size_t>(part_floats + ttt_mlp_blocks(arguments) * block_floats) * sizeof(float)));
    float* const work = parts + part_floats;
    if (tile_width)
        ttt_mlp_backward_tiles(arguments, type, parts, work);
    else
        ttt_mlp_backward_general(arguments, type, parts, work);

    const auto of = [](const Tensor& tensor) { return elements<float>(tensor); };
    const TttInner& dinner = arguments.dinner;
    const TttMlpGradients to{of(dinner.weight1),     of(dinner.bias1),     of(dinner.weight2),    of(dinner.bias2),
                             of(dinner.norm_weight), of(dinner.norm_bias), arguments.dtoken_scale};
    launch({"ttt_mlp_reduce",
            dim3(blocks_for(sizes.part_count() - sizes.mini_batch, reduce_threads), static_cast<unsigned>(sizes.heads)),
            reduce_threads, 0, arguments.stream},
           ttt_mlp_reduce, to, parts, sizes);
    launch({"ttt_mlp_reduce_token_scale", dim3(blocks_for(sizes.mini_batch, reduce_threads / warp_width)),
            reduce_threads, 0, arguments.stream},
           ttt_mlp_reduce_token_scale, arguments.dtoken_scale, parts, sizes);
}

}  // namespace lockstep::kernels::cuda
