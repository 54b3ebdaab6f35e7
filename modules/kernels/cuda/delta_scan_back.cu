// Gated DeltaNet backward, first half: the gradient of the state behind every chunk, from the last chunk to the first.
// A block takes a (sequence, head) pair and some columns of its values, with that gradient in registers.
#include "kernels/cuda/delta_tile.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 128;

template <class T>
struct ScanBackParameters {
    DeltaRows<const T> q, k, dy;
    const float *log_decay, *strength, *dfinal;
    const DeltaOperand<T>* inverses;
    DeltaOperand<T>* dstates;
    float* dinitial;  // may be null
    std::int64_t length, chunks;
    int heads, key_heads, key_width, value_width;
    bool aligned, values_aligned;  // q and k; dy
};

template <class T, int K>
struct ScanBackShared {
    using Tiles = DeltaTiles<T, K>;
    // Two places for queries as well, where an A100 has the room.
    static constexpr int query_places = sizeof(typename Tiles::Operand) * K > 256 ? 1 : 2;
    typename Tiles::Operand queries[query_places][Tiles::keys], keys[2][Tiles::keys];
    typename Tiles::Operand inverse[Tiles::square], dstate[Tiles::state];
    // dO, γ ⊙ dO, dU, -γ ⊙ dR
    typename Tiles::Operand dy[Tiles::values], decayed_dy[Tiles::values], dsolution[Tiles::values],
        dresidual[Tiles::values];
    DeltaGates gates[2];
};

// Tiles are copied ahead as in the forward pass; queries too are needed to the end.
template <class T, int K>
__global__ void __launch_bounds__(threads) delta_scan_back_kernel(ScanBackParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int N = Tiles::slice / 8, square = delta_chunk * delta_chunk, stride = Tiles::slice_stride;
    using Shared = ScanBackShared<T, K>;
    constexpr bool one_place = Shared::query_places == 1;
    auto& shared = *shared_memory<Shared>();
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
    const auto fetch_dy = [&](const DeltaPlace& at) {
        delta_load<Tiles::slice>(shared.dy, stride,
                                 p.dy.first + at.token * p.dy.stride + at.head * p.value_width + first_column,
                                 p.dy.stride, at.rows, columns, p.values_aligned, thread, threads);
    };
    const auto fetch_inverse = [&](std::int64_t chunk) {
        delta_load_matrix<delta_chunk, delta_chunk>(shared.inverse, Tiles::square_stride,
                                                    p.inverses + (pair * p.chunks + chunk) * square, thread, threads);
    };
    const auto fetch_gates = [&](const DeltaPlace& at) {
        const std::int64_t from = at.token * p.heads + at.head;
        return DeltaGates::fetch(p.log_decay + from, p.strength + from, p.heads, at.rows);
    };

    DeltaState<T, K> dstate;
    dstate.load(p.dfinal ? p.dfinal + pair * matrix + first_column : nullptr, p.key_width, p.value_width, columns,
                warp);
    const std::int64_t last = p.dinitial ? 0 : 1;  // the first chunk only serves the gradient of the initial state
    DeltaGates::Raw raw{};
    if (p.chunks > last) {
        const DeltaPlace first = place_of(p.chunks - 1);
        fetch_keys(shared.keys[(p.chunks - 1) % 2], p.k, first);
        fetch_keys(shared.queries[one_place ? 0 : (p.chunks - 1) % 2], p.q, first);
        fetch_dy(first);
        fetch_inverse(p.chunks - 1);
        copy_async_commit();
        if (warp == 0) raw = fetch_gates(first);
    }
    const auto store = [&](std::int64_t chunk) {
        dstate.store_tile(p.dstates + ((pair * p.chunks + chunk) * gridDim.y + blockIdx.y) * K * Tiles::slice,
                          Tiles::slice, warp);
    };
    for (std::int64_t chunk = p.chunks - 1; chunk >= last; --chunk) {
        const bool goes_on = chunk > last;
        const DeltaPlace next = place_of(goes_on ? chunk - 1 : chunk);
        const Operand *const keys = shared.keys[chunk % 2], *const queries = shared.queries[one_place ? 0 : chunk % 2];
        const DeltaGates& gates = shared.gates[chunk % 2];
        if (warp == 0) {
            shared.gates[chunk % 2].set(raw);
            if (goes_on) raw = fetch_gates(next);
        }
        store(chunk);
        dstate.store_tile(shared.dstate, stride, warp);
        copy_async_wait<0>();
        __syncthreads();  // the tiles are there, and the chunk before is done
        if (goes_on) {
            fetch_keys(shared.keys[(chunk + 1) % 2], p.k, next);
            if constexpr (!one_place) fetch_keys(shared.queries[(chunk + 1) % 2], p.q, next);
            copy_async_commit();
        }
        Sums<N> rows;
        each_sum(rows, first_row, [&](float& value, int row, int column) {
            value = gates.before(row) * to_float(shared.dy[row * stride + column]);
        });
        store_sums_in_pairs(shared.decayed_dy + first_row * stride, stride, rows);

        // dU = Pᵀ dO + e ⊙ (K dS)
        Left<Operand, K / 16> left;
        load_left(left, keys + first_row * Tiles::key_stride, Tiles::key_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, left, shared.dstate, stride);
        scale_rows(rows, first_row, [&](int row) { return gates.after(row); });
        Sums<8> scores;
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, queries, Tiles::key_stride);
        each_sum(scores, first_row,
                 [&](float& score, int j, int i) { score = j <= i ? gates.between(i, j) * score : 0.0f; });
        Left<Operand, 4> square_left;
        to_left(square_left, scores);
        multiply<Right::rows_of_k>(rows, square_left, shared.dy, stride);
        store_sums_in_pairs(shared.dsolution + first_row * stride, stride, rows);
        __syncthreads();
        if (goes_on) {
            fetch_dy(next);
            copy_async_commit();
        }

        // -γ ⊙ dR = -γ β ⊙ (I + A)⁻ᵀ dU
        load_left_transposed(square_left, shared.inverse + first_row, Tiles::square_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, square_left, shared.dsolution, stride);
        scale_rows(rows, first_row, [&](int row) { return -gates.before(row) * gates.strength[row]; });
        store_sums_in_pairs(shared.dresidual + first_row * stride, stride, rows);
        __syncthreads();
        if (goes_on) {
            fetch_inverse(chunk - 1);
            copy_async_commit();
        }

        dstate.scale(gates.all());
        dstate.add_product(queries, shared.decayed_dy, warp);
        dstate.add_product(keys, shared.dresidual, warp);
        if constexpr (one_place) {
            __syncthreads();
            if (goes_on) {
                fetch_keys(shared.queries[0], p.q, next);
                copy_async_commit();
            }
        }
    }
    if (p.dinitial)
        dstate.store(p.dinitial + pair * matrix + first_column, p.key_width, p.value_width, columns, warp);
    else
        store(0);
}

}  // namespace

void delta_scan_back(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        auto p = delta_parameters<T, ScanBackParameters<T>>(arguments);
        p.q = delta_rows<const T>(arguments.q);
        p.dy = delta_rows<const T>(arguments.dy);
        p.dfinal = arguments.dfinal;
        p.dstates = static_cast<DeltaOperand<T>*>(arguments.dstates);
        p.dinitial = arguments.dinitial;
        p.value_width = static_cast<int>(shape.value_width);
        p.aligned = p.aligned && delta_aligned<T>(shape.key_width, {arguments.q});
        p.values_aligned = delta_aligned<T>(shape.value_width, {arguments.dy});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            static_assert(sizeof(ScanBackShared<T, K>) <= delta_shared_limit);
            launch(
                {"delta_scan_back",
                 dim3(static_cast<unsigned>(arguments.pairs()), blocks_for(shape.value_width, DeltaTiles<T, K>::slice)),
                 threads, sizeof(ScanBackShared<T, K>), arguments.stream},
                delta_scan_back_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
