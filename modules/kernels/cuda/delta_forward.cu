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
    DeltaOperand<T>* saved;  // may be null, like the next
    float* final_state;
    std::int64_t length, chunks;
    int heads, key_heads, key_width, value_width;
    bool aligned, values_aligned;  // q and k; v
};

template <class T, int K>
struct ForwardShared {
    using Tiles = DeltaTiles<T, K>;
    typename Tiles::Operand queries[Tiles::keys], keys[2][Tiles::keys], inverse[Tiles::square], state[Tiles::state];
    // V, B, U, e ⊙ U
    typename Tiles::Operand values[Tiles::values], right_side[Tiles::values], solution[Tiles::values],
        decayed[Tiles::values];
    DeltaGates gates[2];
};

// Every tile is copied for the next chunk as soon as this one has read it; keys and gates, needed to the end, have two
// places.
template <class T, int K>
__global__ void __launch_bounds__(threads) delta_forward_kernel(ForwardParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int N = Tiles::slice / 8, square = delta_chunk * delta_chunk, stride = Tiles::slice_stride;
    auto& shared = *shared_memory<ForwardShared<T, K>>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_row = 16 * warp;
    const int first_column = static_cast<int>(blockIdx.y) * Tiles::slice;
    const int columns = min(p.value_width - first_column, Tiles::slice);
    const std::int64_t pair = blockIdx.x, matrix = static_cast<std::int64_t>(p.key_width) * p.value_width;

    const auto place_of = [&](std::int64_t chunk) {
        return DeltaPlace(static_cast<int>(blockIdx.x), chunk, p.length, p.heads, p.key_heads);
    };
    const auto fetch_keys = [&](Operand* to, const DeltaRows<const T>& from, const DeltaPlace& at) {
        delta_load<K>(to, Tiles::key_stride, from.first + at.token * from.stride + at.key_head * p.key_width,
                      from.stride, at.rows, p.key_width, p.aligned, thread, threads);
    };
    const auto fetch_queries_and_values = [&](const DeltaPlace& at) {
        fetch_keys(shared.queries, p.q, at);
        delta_load<Tiles::slice>(shared.values, stride,
                                 p.v.first + at.token * p.v.stride + at.head * p.value_width + first_column, p.v.stride,
                                 at.rows, columns, p.values_aligned, thread, threads);
    };
    const auto fetch_inverse = [&](std::int64_t chunk) {
        delta_load_matrix<delta_chunk, delta_chunk>(shared.inverse, Tiles::square_stride,
                                                    p.inverses + (pair * p.chunks + chunk) * square, thread, threads);
    };
    const auto fetch_gates = [&](const DeltaPlace& at) {
        const std::int64_t from = at.token * p.heads + at.head;
        return DeltaGates::fetch(p.log_decay + from, p.strength + from, p.heads, at.rows);
    };

    DeltaState<T, K> state;
    state.load(p.initial ? p.initial + pair * matrix + first_column : nullptr, p.key_width, p.value_width, columns,
               warp);
    DeltaGates::Raw raw{};
    {
        const DeltaPlace first = place_of(0);
        fetch_keys(shared.keys[0], p.k, first);
        fetch_queries_and_values(first);
        fetch_inverse(0);
        copy_async_commit();
        if (warp == 0) raw = fetch_gates(first);
    }
    for (std::int64_t chunk = 0; chunk < p.chunks; ++chunk) {
        const DeltaPlace place = place_of(chunk), next = place_of(chunk + 1);
        const bool goes_on = chunk + 1 < p.chunks;
        const Operand* const keys = shared.keys[chunk % 2];
        const DeltaGates& gates = shared.gates[chunk % 2];
        if (warp == 0) {
            shared.gates[chunk % 2].set(raw);
            if (goes_on) raw = fetch_gates(next);
        }
        state.store_tile(shared.state, stride, warp);
        if (p.saved)
            state.store_tile(p.saved + ((pair * p.chunks + chunk) * gridDim.y + blockIdx.y) * K * Tiles::slice,
                             Tiles::slice, warp);
        copy_async_wait<0>();
        __syncthreads();  // the tiles are there, and the chunk before is done
        if (goes_on) {
            fetch_keys(shared.keys[(chunk + 1) % 2], p.k, next);
            copy_async_commit();
        }

        // B = β ⊙ (V - γ ⊙ (K S))
        Left<Operand, K / 16> left;
        Sums<N> rows;
        load_left(left, keys + first_row * Tiles::key_stride, Tiles::key_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, left, shared.state, stride);
        each_sum(rows, first_row, [&](float& value, int row, int column) {
            value =
                gates.strength[row] * fmaf(-gates.before(row), value, to_float(shared.values[row * stride + column]));
        });
        store_sums_in_pairs(shared.right_side + first_row * stride, stride, rows);
        // γ ⊙ (Q S), and P = E ⊙ (Q Kᵀ)
        Sums<N> y;
        Sums<8> scores;
        load_left(left, shared.queries + first_row * Tiles::key_stride, Tiles::key_stride);
        y.clear();
        multiply<Right::rows_of_k>(y, left, shared.state, stride);
        scale_rows(y, first_row, [&](int row) { return gates.before(row); });
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, keys, Tiles::key_stride);
        each_sum(scores, first_row,
                 [&](float& score, int i, int j) { score = j <= i ? gates.between(i, j) * score : 0.0f; });
        Left<Operand, 4> square_left, weights;
        to_left(weights, scores);
        __syncthreads();  // B is complete
        if (goes_on) {
            fetch_queries_and_values(next);
            copy_async_commit();
        }

        // U = (I + A)⁻¹ B
        load_left(square_left, shared.inverse + first_row * Tiles::square_stride, Tiles::square_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, square_left, shared.right_side, stride);
        store_sums_in_pairs(shared.solution + first_row * stride, stride, rows);
        scale_rows(rows, first_row, [&](int row) { return gates.after(row); });
        store_sums_in_pairs(shared.decayed + first_row * stride, stride, rows);
        __syncthreads();
        if (goes_on) {
            fetch_inverse(chunk + 1);
            copy_async_commit();
        }

        multiply<Right::rows_of_k>(y, weights, shared.solution, stride);
        T* const to = p.y.first + place.token * p.y.stride + place.head * p.value_width + first_column;
        each_sum(y, first_row, [&](float value, int row, int column) {
            if (row < place.rows && column < columns) to[row * p.y.stride + column] = from_float<T>(value);
        });
        state.scale(gates.all());
        state.add_product(keys, shared.decayed, warp);
    }
    if (p.final_state)
        state.store(p.final_state + pair * matrix + first_column, p.key_width, p.value_width, columns, warp);
}

}  // namespace

void delta_scan(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        auto p = delta_parameters<T, ForwardParameters<T>>(arguments);
        p.q = delta_rows<const T>(arguments.q);
        p.v = delta_rows<const T>(arguments.v);
        p.y = delta_rows<T>(arguments.y);
        p.initial = arguments.initial;
        p.saved = static_cast<DeltaOperand<T>*>(arguments.saved);
        p.final_state = arguments.final_state;
        p.value_width = static_cast<int>(shape.value_width);
        p.aligned = p.aligned && delta_aligned<T>(shape.key_width, {arguments.q});
        p.values_aligned = delta_aligned<T>(shape.value_width, {arguments.v});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            static_assert(sizeof(ForwardShared<T, K>) <= delta_shared_limit);
            launch(
                {"delta_forward",
                 dim3(static_cast<unsigned>(arguments.pairs()), blocks_for(shape.value_width, DeltaTiles<T, K>::slice)),
                 threads, sizeof(ForwardShared<T, K>), arguments.stream},
                delta_forward_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
