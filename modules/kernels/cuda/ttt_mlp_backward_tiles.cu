// TTT-MLP backward on tensor cores. A block processes its mini-batches in groups, last group first: it recomputes the
// group's states from the saved one, then goes back through them. The fp32 gradient of the state stays in registers
// meanwhile if F = 64.
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ttt_mlp_backward_tiles.hpp"
#include "kernels/cuda/ttt_mlp_go_back.hpp"

namespace lockstep::kernels::cuda {
namespace {

// A piece, from its last mini-batch to its first; `last`: whether it is a sequence's last. Leaves the gradient of the
// model that it starts from in work.dstate, d.dbias1 and d.dbias2.
template <class T, int F>
__device__ __forceinline__ void backward_piece(const TttMlpTask<T>& task, const MlpShared<F>& s,
                                               const MlpBackwardShared<F>& d, const MlpRow<F>& row,
                                               const MlpBackwardWork<F>& work, const MlpPiece& piece, int pair,
                                               bool last) {
    using Geometry = MlpGeometry<F>;
    using Weights = WeightTiles<F, Geometry::on_chip>;
    const TttMlpSizes& sizes = task.sizes;
    for (int group = piece.group_count - 1; group >= 0; --group) {
        const int begin = group * sizes.group;
        const int end = begin + sizes.group < piece.count ? begin + sizes.group : piece.count;
        remake_states(task, s, row, work, piece, pair, begin, end);
        Weights dweight1(work.dstate, work.dtiles);
        Weights dweight2(work.dstate + Geometry::weight_floats, work.dtiles + Geometry::weight_tiles * warp_width);
        if (group == piece.group_count - 1) {
            const std::int64_t matrix = static_cast<std::int64_t>(pair) * sizes.width * sizes.hidden;
            const bool given = last && task.dfinal.weight1;
            const float* const last1 = given ? task.dfinal.weight1 + matrix : nullptr;
            const float* const last2 = given ? task.dfinal.weight2 + matrix : nullptr;
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
                const MlpPlace place = mlp_place(sizes, piece, pair, number - 1);
                MlpSlot<F>(next).prefetch();
                if (row.here()) {
                    row.prefetch(task.q, place);
                    row.prefetch(task.k, place);
                    row.prefetch(task.v, place);
                    row.prefetch(task.dy, place);
                }
            }
            go_back(task, s, d, row, slot, next, dweight1, dweight2, mlp_place(sizes, piece, pair, number));
        }
        if (Geometry::on_chip) {
            dweight1.store_all(work.dstate);
            dweight2.store_all(work.dstate + Geometry::weight_floats);
        }
    }
    __syncthreads();
}

// A piece's gradient, to be read after a barrier, added to a model in the tensors' layout.
template <int F>
__device__ void hand_over(const TttModels& to, std::int64_t number, const MlpBackwardShared<F>& d, const float* dstate,
                          const TttMlpSizes& sizes) {
    const int f = sizes.width, thread = static_cast<int>(threadIdx.x);
    const std::int64_t matrix = number * f * sizes.hidden;
    copy_state<F, true>(to.weight1 + matrix, to.weight2 + matrix, dstate, sizes);
    if (thread < sizes.hidden) to.bias1[number * sizes.hidden + thread] += d.dbias1[thread];
    if (thread < f) to.bias2[number * f + thread] += d.dbias2[thread];
}

template <int F>
__device__ void clear(const TttModels& models, std::int64_t number, const TttMlpSizes& sizes) {
    const int f = sizes.width, matrix = f * sizes.hidden;
    const auto zero = [](float* from, int count) {
        for (int i = static_cast<int>(threadIdx.x); i < count; i += MlpGeometry<F>::threads) from[i] = 0;
    };
    zero(models.weight1 + number * matrix, matrix);
    zero(models.bias1 + number * sizes.hidden, sizes.hidden);
    zero(models.weight2 + number * matrix, matrix);
    zero(models.bias2 + number * f, f);
}

template <class T, int F, bool Pieces>
__global__ void __launch_bounds__(MlpGeometry<F>::threads, 1) backward(TttMlpTask<T> task) {
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
        const auto learned = [&] {  // in the pair's part; made again each time, for registers are full
            TttModels models;
            models.weight1 = task.parts + pair * sizes.part_count;
            models.bias1 = models.weight1 + f * sizes.hidden;
            models.weight2 = models.bias1 + sizes.hidden;
            models.bias2 = models.weight2 + f * sizes.hidden;
            return models;
        };
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
        if constexpr (Pieces) {
            clear<F>(learned(), 0, sizes);
            if (task.pieces.dinitial.weight1) clear<F>(task.pieces.dinitial, pair, sizes);
            for (int end = task.pieces.length; end > 0;) {
                const MlpPiece piece = mlp_piece<true>(task, task.pieces.before(pair / sizes.heads, end));
                backward_piece(task, s, d, row, work, piece, pair, end == task.pieces.length);
                hand_over(ttt_choose(piece.carried, task.pieces.dinitial, learned()), piece.carried ? pair : 0, d,
                          work.dstate, sizes);
                d.dbias1[thread] = 0;  // of the piece before, by those who have read it
                if (thread < F) d.dbias2[thread] = 0;
                end = piece.begin;
            }
        } else {
            backward_piece(task, s, d, row, work, mlp_piece<false>(task, TttPiece{}), pair, true);
            const TttModels to = learned();
            copy_state<F>(to.weight1, to.weight2, work.dstate, sizes);
            if (thread < sizes.hidden) to.bias1[thread] = d.dbias1[thread];
            if (thread < f) to.bias2[thread] = d.dbias2[thread];
        }
        float* const part = learned().bias2;
        if (thread < f) {
            float norm_weight = 0, norm_bias = 0;
            for (int i = 0; i < mlp_rows; ++i) {
                norm_weight += d.norm_weight_sums[i * F + thread];
                norm_bias += d.norm_bias_sums[i * F + thread];
            }
            part[f + thread] = norm_weight;
            part[2 * f + thread] = norm_bias;
        }
        if (thread < sizes.mini_batch) part[3 * f + thread] = d.token_scale_sums[thread];
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
           !task.pieces.joined() ? backward<T, F, true> : backward<T, F, false>, task);
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
