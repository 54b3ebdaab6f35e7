// The last step of every TTT backward: adds the parts of sequences and heads, in a fixed order.
#include <algorithm>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/cuda/ttt.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned threads = 256;
constexpr std::int64_t most_rows = 65535;  // maximum of a grid

struct Targets {
    static constexpr int count = 6, of_model = 4;  // those of the model come first
    float* to[count];                              // [H, size], or [B, H, size]
    std::int64_t begin[count + 1];                 // of its share of a part
};

// One thread per element of a head's part, from `first` on: Σ over sequences.
__global__ void __launch_bounds__(threads)
    ttt_add_parts_kernel(Targets targets, std::int64_t first, const float* parts, std::int64_t part_count,
                         std::int64_t batch, std::int64_t heads) {
    const std::int64_t i = first + static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x, head = blockIdx.y;
    if (i >= targets.begin[Targets::count]) return;
    float sum = 0;
    const float* part = parts + head * part_count + i;
    for (std::int64_t sequence = 0; sequence < batch; ++sequence) sum += part[sequence * heads * part_count];
    for (int t = 0; t < Targets::count; ++t)
        if (i >= targets.begin[t] && i < targets.begin[t + 1])
            targets.to[t][head * (targets.begin[t + 1] - targets.begin[t]) + i - targets.begin[t]] += sum;
}

// One thread per element of a pair's model.
__global__ void __launch_bounds__(threads)
    ttt_hand_back_kernel(Targets targets, const float* parts, std::int64_t part_count, std::int64_t pairs) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (i >= targets.begin[Targets::of_model]) return;
    for (std::int64_t pair = blockIdx.y; pair < pairs; pair += gridDim.y)
        for (int t = 0; t < Targets::of_model; ++t)
            if (i >= targets.begin[t] && i < targets.begin[t + 1])
                targets.to[t][pair * (targets.begin[t + 1] - targets.begin[t]) + i - targets.begin[t]] =
                    parts[pair * part_count + i];
}

// One block per token of the mini-batch: Σ over sequences and heads.
__global__ void __launch_bounds__(threads)
    ttt_add_token_scale_kernel(float* dtoken_scale, const float* parts, std::int64_t part_count, std::int64_t pairs) {
    float sum = 0;
    for (std::int64_t pair = threadIdx.x; pair < pairs; pair += threads) sum += parts[pair * part_count + blockIdx.x];
    sum = block_sum(sum, shared_memory<float>());
    if (threadIdx.x == 0) dtoken_scale[blockIdx.x] += sum;
}

}  // namespace

void ttt_add_parts(const TttArguments& arguments, const float* parts) {
    const TttShape& shape = arguments.shape;
    const TttPart part(shape);
    const TttInner& d = arguments.dinner;
    const TttCarry& carry = arguments.dinitial;
    const bool carried = !arguments.starts_learned();
    Targets targets{};
    const Tensor* const tensors[] = {carried ? &carry.weight1 : &d.weight1,
                                     carried ? &carry.bias1 : &d.bias1,
                                     carried ? &carry.weight2 : &d.weight2,
                                     carried ? &carry.bias2 : &d.bias2,
                                     &d.norm_weight,
                                     &d.norm_bias};
    const std::int64_t begins[] = {part.weight1,     part.bias1,     part.weight2,    part.bias2,
                                   part.norm_weight, part.norm_bias, part.token_scale};
    for (int t = 0; t < Targets::count; ++t) {
        targets.begin[t] = begins[t];
        targets.to[t] = begins[t + 1] > begins[t] ? tensors[t]->fp32() : nullptr;
    }
    targets.begin[Targets::count] = part.token_scale;
    const std::int64_t first = carried ? part.norm_weight : 0;
    launch({"ttt_add_parts", dim3(blocks_for(part.token_scale - first, threads), static_cast<unsigned>(shape.heads)),
            threads, 0, arguments.stream},
           ttt_add_parts_kernel, targets, first, parts, part.count, shape.batch, shape.heads);
    if (carried)
        launch({"ttt_hand_back",
                dim3(blocks_for(part.norm_weight, threads),
                     static_cast<unsigned>(std::min<std::int64_t>(arguments.pairs(), most_rows))),
                threads, 0, arguments.stream},
               ttt_hand_back_kernel, targets, parts, part.count, arguments.pairs());
    launch({"ttt_add_token_scale", dim3(static_cast<unsigned>(shape.mini_batch)), threads, 32 * sizeof(float),
            arguments.stream},
           ttt_add_token_scale_kernel, arguments.dtoken_scale, parts + part.token_scale, part.count, arguments.pairs());
}

}  // namespace lockstep::kernels::cuda
