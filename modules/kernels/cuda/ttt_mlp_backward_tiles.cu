// TTT-MLP backward on tensor cores. A block processes its mini-batches in groups, last group first: it recomputes the
// group's states from the saved one, then goes back through them. The fp32 gradient of the state stays in registers
// meanwhile if F = 64.
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_backward_tiles.hpp"
#include "kernels/cuda/ttt_mlp_go_back.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T, int F>
__global__ void __launch_bounds__(MlpGeometry<F>::threads, 1) backward(TttMlpTask<T> task) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    MlpShared<F> s;
    MlpBackwardShared<F> d;
    float* const behind = s.place(shared_memory<float>());
    d.place(behind, s.stepped_keys, s.stepped_rows);
    const MlpBackwardWork<F> work(task.work + blockIdx.x * task.work_count);
    const MlpRow<F> row(sizes);

    for (int pair = static_cast<int>(blockIdx.x); pair < sizes.pair_count; pair += static_cast<int>(gridDim.x)) {
        const int head = pair % sizes.heads;
        __syncthreads();  // the pair before is done with shared memory
        if (thread < mlp_rows) d.token_scale_sums[thread] = 0;
        if (row.here()) {
            const RowValues<F> zero{};
            row.store(d.norm_weight_sums, zero);
            row.store(d.norm_bias_sums, zero);
        }
        if (thread < F) {
            s.norm_weight[thread] = thread < f ? task.norm_weight[head * f + thread] : 0.0f;
            s.norm_bias[thread] = thread < f ? task.norm_bias[head * f + thread] : 0.0f;
            d.dbias2[thread] = thread < f && task.dfinal.bias2 ? task.dfinal.bias2[pair * f + thread] : 0.0f;
        }
        d.dbias1[thread] =
            thread < sizes.hidden && task.dfinal.bias1 ? task.dfinal.bias1[pair * sizes.hidden + thread] : 0.0f;
        for (int group = sizes.group_count - 1; group >= 0; --group) {
            const int begin = group * sizes.group;
            const int end = begin + sizes.group < sizes.count ? begin + sizes.group : sizes.count;
            remake_states(task, s, row, work, pair, begin, end);
            Weights dweight1(work.dstate, work.dtiles);
            Weights dweight2(work.dstate + Geometry::weight_floats, work.dtiles + Geometry::weight_tiles * warp_width);
            if (group == sizes.group_count - 1) {
                const std::int64_t matrix = static_cast<std::int64_t>(pair) * f * sizes.hidden;
                const float* const last1 = task.dfinal.weight1 ? task.dfinal.weight1 + matrix : nullptr;
                const float* const last2 = task.dfinal.weight1 ? task.dfinal.weight2 + matrix : nullptr;
                place_state<F>(work.dstate, Geometry::on_chip ? nullptr : work.dtiles, last1, last2, sizes);
            }
            if (Geometry::on_chip) {
                dweight1.load_all(work.dstate);
                dweight2.load_all(work.dstate + Geometry::weight_floats);
            }
            MlpSlotWeights<F>(d.weights).copy(MlpSlot<F>(work.slots + (end - 1 - begin) * MlpSlot<F>::floats));
            for (int number = end - 1; number >= begin; --number) {
                const MlpSlot<F> slot(work.slots + (number - begin) * MlpSlot<F>::floats);
                float* const next = number > begin ? work.slots + (number - 1 - begin) * MlpSlot<F>::floats : nullptr;
                if (next) {
                    const MlpPlace place = mlp_place(sizes, pair, number - 1);
                    MlpSlot<F>(next).prefetch();
                    if (row.here()) {
                        row.prefetch(task.q, place);
                        row.prefetch(task.k, place);
                        row.prefetch(task.v, place);
                        row.prefetch(task.dy, place);
                    }
                }
                go_back(task, s, d, row, slot, next, dweight1, dweight2, mlp_place(sizes, pair, number));
            }
            if (Geometry::on_chip) {
                dweight1.store_all(work.dstate);
                dweight2.store_all(work.dstate + Geometry::weight_floats);
            }
            if (group > 0) continue;
            __syncthreads();
            float* part = task.parts + pair * sizes.part_count;
            copy_state<F>(part, part + (f + 1) * sizes.hidden, work.dstate, sizes);
            part += f * sizes.hidden;
            if (thread < sizes.hidden) part[thread] = d.dbias1[thread];
            part += sizes.hidden;
            part += f * sizes.hidden;
            if (thread < f) {
                float norm_weight = 0, norm_bias = 0;
                for (int i = 0; i < mlp_rows; ++i) {
                    norm_weight += d.norm_weight_sums[i * F + thread];
                    norm_bias += d.norm_bias_sums[i * F + thread];
                }
                part[thread] = d.dbias2[thread];
                part[f + thread] = norm_weight;
                part[2 * f + thread] = norm_bias;
            }
            if (thread < sizes.mini_batch) part[3 * f + thread] = d.token_scale_sums[thread];
        }
    }
}

template <int F>
std::int64_t work_floats(const TttMlpSizes& sizes) {
    // The slots hold a whole state before they are filled.
    const std::int64_t slots = static_cast<std::int64_t>(sizes.group) * MlpSlot<F>::floats;
    return MlpBackwardWork<F>::fixed_floats + std::max<std::int64_t>(slots, 2 * MlpGeometry<F>::weight_floats);
}

template <class T, int F>
void run(const TttArguments& arguments, float* parts, float* work) {
    TttMlpTask<T> task = ttt_mlp_task<T>(arguments);
    task.parts = parts;
    task.work = work;
    task.work_count = work_floats<F>(task.sizes);
    constexpr std::size_t least_bytes = (MlpShared<F>::floats + MlpBackwardShared<F>::floats) * sizeof(float),
                          most_bytes = least_bytes + MlpSlotWeights<F>::floats * sizeof(float);
    static_assert(least_bytes <= 163 * 1024 && most_bytes <= 227 * 1024, "more than a block of an A100, an H100 has");
    const std::size_t shared_bytes = arguments.shared_memory >= most_bytes ? most_bytes : least_bytes;
    launch({"ttt_mlp_backward", dim3(static_cast<unsigned>(ttt_mlp_blocks(arguments))), MlpGeometry<F>::threads,
            shared_bytes, arguments.stream},
           backward<T, F>, task);
}

}  // namespace

std::int64_t ttt_mlp_backward_tiles_work(const TttMlpSizes& sizes, int tile_width) {
    return tile_width == 64 ? work_floats<64>(sizes) : work_floats<96>(sizes);
}

void ttt_mlp_backward_tiles(const TttArguments& arguments, Type type, float* parts, float* work) {
    const bool narrow = ttt_mlp_tile_width(arguments, type) == 64;
    if (type == Type::bf16)
        return narrow ? run<bf16, 64>(arguments, parts, work) : run<bf16, 96>(arguments, parts, work);
    return narrow ? run<fp16, 64>(arguments, parts, work) : run<fp16, 96>(arguments, parts, work);
}

}  // namespace lockstep::kernels::cuda
