// Gated DeltaNet forward: a block takes a (sequence, head) pair and some columns of its values, chunk after chunk, with
// the state in registers.
#include "kernels/cuda/delta_tile.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 128;

template <class T>
struct ForwardParameters {
    DeltaRows<const T> q, k, v;
    DeltaRows<T> y;
    const float *log_decay, *strength, *initial;
    const DeltaOperand<T>* inverses;
    float *saved, *final_state;  // may be null
    std::int64_t length, chunks;
    int heads, key_heads, key_width, value_width;
    bool aligned, values_aligned;  // q and k; v
};

template <class T, int K>
struct ForwardShared {
    using Tiles = DeltaTiles<T, K>;
    typename Tiles::Operand queries[Tiles::keys], keys[Tiles::keys], inverse[Tiles::square], state[Tiles::state];
    // V, B, U, e ⊙ U
    typename Tiles::Operand values[Tiles::values], right_side[Tiles::values], solution[Tiles::values],
        decayed[Tiles::values];
    DeltaGates gates;
};

template <class T, int K>
__global__ void __launch_bounds__(threads) delta_forward_kernel(ForwardParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int N = Tiles::slice / 8, square = delta_chunk * delta_chunk;
    auto& shared = *shared_memory<ForwardShared<T, K>>();
    const DeltaGates& gates = shared.gates;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_row = 16 * warp;
    const int first_column = static_cast<int>(blockIdx.y) * Tiles::slice;
    const int columns = min(p.value_width - first_column, Tiles::slice);
    const std::int64_t pair = blockIdx.x, matrix = static_cast<std::int64_t>(p.key_width) * p.value_width;

    DeltaState<T, K> state;
    state.load(p.initial ? p.initial + pair * matrix + first_column : nullptr, p.key_width, p.value_width, columns,
               warp);
    for (std::int64_t chunk = 0; chunk < p.chunks; ++chunk) {
        const DeltaPlace place(pair, chunk, p.length, p.heads, p.key_heads);
        const auto key_at = [&](const auto& rows) {
            return rows.first + place.token * rows.stride + place.key_head * p.key_width;
        };
        const auto value_at = [&](const auto& rows, int row, int column) {
            return rows.first + (place.token + row) * rows.stride + place.head * p.value_width + first_column + column;
        };
        __syncthreads();  // the chunk before is done with the tiles
        delta_load<K>(shared.queries, Tiles::key_stride, key_at(p.q), p.q.stride, place.rows, p.key_width, p.aligned,
                      thread, threads);
        delta_load<K>(shared.keys, Tiles::key_stride, key_at(p.k), p.k.stride, place.rows, p.key_width, p.aligned,
                      thread, threads);
        delta_load<Tiles::slice>(shared.values, Tiles::slice_stride, value_at(p.v, 0, 0), p.v.stride, place.rows,
                                 columns, p.values_aligned, thread, threads);
        delta_load<delta_chunk>(shared.inverse, Tiles::square_stride, p.inverses + (pair * p.chunks + chunk) * square,
                                delta_chunk, delta_chunk, delta_chunk, true, thread, threads);
        copy_async_commit();
        const std::int64_t gates_at = place.token * p.heads + place.head;
        shared.gates.load(p.log_decay + gates_at, p.strength + gates_at, p.heads, place.rows);
        state.store_tile(shared.state, warp);
        if (p.saved)
            state.store(p.saved + (pair * p.chunks + chunk) * matrix + first_column, p.key_width, p.value_width,
                        columns, warp);
        copy_async_wait<0>();
        __syncthreads();

        // B = β ⊙ (V - γ ⊙ (K S))
        Left<Operand, K / 16> left;
        Sums<N> rows;
        load_left(left, shared.keys + first_row * Tiles::key_stride, Tiles::key_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, left, shared.state, Tiles::slice_stride);
        each_sum(rows, first_row, [&](float& value, int row, int column) {
            const float target = to_float(shared.values[row * Tiles::slice_stride + column]);
            value = gates.strength[row] * fmaf(-gates.before(row), value, target);
        });
        store_sums_in_pairs(shared.right_side + first_row * Tiles::slice_stride, Tiles::slice_stride, rows);
        // γ ⊙ (Q S), and P = E ⊙ (Q Kᵀ)
        Sums<N> y;
        Sums<8> scores;
        load_left(left, shared.queries + first_row * Tiles::key_stride, Tiles::key_stride);
        y.clear();
        multiply<Right::rows_of_k>(y, left, shared.state, Tiles::slice_stride);
        scale_rows(y, first_row, [&](int row) { return gates.before(row); });
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, shared.keys, Tiles::key_stride);
        each_sum(scores, first_row,
                 [&](float& score, int i, int j) { score = j <= i ? gates.between(i, j) * score : 0.0f; });
        Left<Operand, 4> square_left, weights;
        to_left(weights, scores);
        __syncthreads();  // B is complete

        // U = (I + A)⁻¹ B
        load_left(square_left, shared.inverse + first_row * Tiles::square_stride, Tiles::square_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, square_left, shared.right_side, Tiles::slice_stride);
        store_sums_in_pairs(shared.solution + first_row * Tiles::slice_stride, Tiles::slice_stride, rows);
        scale_rows(rows, first_row, [&](int row) { return gates.after(row); });
        store_sums_in_pairs(shared.decayed + first_row * Tiles::slice_stride, Tiles::slice_stride, rows);
        __syncthreads();

        multiply<Right::rows_of_k>(y, weights, shared.solution, Tiles::slice_stride);
        each_sum(y, first_row, [&](float value, int row, int column) {
            if (row < place.rows && column < columns) *value_at(p.y, row, column) = from_float<T>(value);
        });
        state.scale(gates.all());
        state.add_product(shared.keys, shared.decayed, warp);
    }
    if (p.final_state)
        state.store(p.final_state + pair * matrix + first_column, p.key_width, p.value_width, columns, warp);
}

}  // namespace

void delta_scan(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        ForwardParameters<T> p{};
        p.q = delta_rows<const T>(arguments.q);
        p.k = delta_rows<const T>(arguments.k);
        p.v = delta_rows<const T>(arguments.v);
        p.y = delta_rows<T>(arguments.y);
        p.log_decay = arguments.log_decay;
        p.strength = arguments.strength;
        p.initial = arguments.initial;
        p.inverses = static_cast<const DeltaOperand<T>*>(arguments.inverses);
        p.saved = arguments.saved;
        p.final_state = arguments.final_state;
        p.length = shape.length;
        p.chunks = arguments.chunks();
        p.heads = static_cast<int>(shape.heads);
        p.key_heads = static_cast<int>(shape.key_heads);
        p.key_width = static_cast<int>(shape.key_width);
        p.value_width = static_cast<int>(shape.value_width);
        p.aligned = delta_aligned<T>(shape.key_width, {arguments.q, arguments.k});
        p.values_aligned = delta_aligned<T>(shape.value_width, {arguments.v});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            launch(
                {"delta_forward",
                 dim3(static_cast<unsigned>(arguments.pairs()), blocks_for(shape.value_width, DeltaTiles<T, K>::slice)),
                 threads, sizeof(ForwardShared<T, K>), arguments.stream},
                delta_forward_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
