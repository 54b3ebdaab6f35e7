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
    float *dstates, *dinitial;
    std::int64_t length, chunks;
    int heads, key_heads, key_width, value_width;
    bool aligned, values_aligned;  // q and k; dy
};

template <class T, int K>
struct ScanBackShared {
    using Tiles = DeltaTiles<T, K>;
    typename Tiles::Operand queries[Tiles::keys], keys[Tiles::keys], inverse[Tiles::square], dstate[Tiles::state];
    // dO, γ ⊙ dO, dU, -γ ⊙ dR
    typename Tiles::Operand dy[Tiles::values], decayed_dy[Tiles::values], dsolution[Tiles::values],
        dresidual[Tiles::values];
    DeltaGates gates;
};

template <class T, int K>
__global__ void __launch_bounds__(threads) delta_scan_back_kernel(ScanBackParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int N = Tiles::slice / 8, square = delta_chunk * delta_chunk;
    auto& shared = *shared_memory<ScanBackShared<T, K>>();
    const DeltaGates& gates = shared.gates;
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_row = 16 * warp;
    const int first_column = static_cast<int>(blockIdx.y) * Tiles::slice;
    const int columns = min(p.value_width - first_column, Tiles::slice);
    const std::int64_t pair = blockIdx.x, matrix = static_cast<std::int64_t>(p.key_width) * p.value_width;

    DeltaState<T, K> dstate;
    dstate.load(p.dfinal ? p.dfinal + pair * matrix + first_column : nullptr, p.key_width, p.value_width, columns,
                warp);
    for (std::int64_t chunk = p.chunks - 1; chunk >= 0; --chunk) {
        dstate.store(p.dstates + (pair * p.chunks + chunk) * matrix + first_column, p.key_width, p.value_width, columns,
                     warp);
        if (chunk == 0 && !p.dinitial) return;
        const DeltaPlace place(pair, chunk, p.length, p.heads, p.key_heads);
        const auto key_at = [&](const auto& rows) {
            return rows.first + place.token * rows.stride + place.key_head * p.key_width;
        };
        __syncthreads();  // the chunk before is done with the tiles
        delta_load<K>(shared.queries, Tiles::key_stride, key_at(p.q), p.q.stride, place.rows, p.key_width, p.aligned,
                      thread, threads);
        delta_load<K>(shared.keys, Tiles::key_stride, key_at(p.k), p.k.stride, place.rows, p.key_width, p.aligned,
                      thread, threads);
        delta_load<Tiles::slice>(shared.dy, Tiles::slice_stride,
                                 p.dy.first + place.token * p.dy.stride + place.head * p.value_width + first_column,
                                 p.dy.stride, place.rows, columns, p.values_aligned, thread, threads);
        delta_load<delta_chunk>(shared.inverse, Tiles::square_stride, p.inverses + (pair * p.chunks + chunk) * square,
                                delta_chunk, delta_chunk, delta_chunk, true, thread, threads);
        copy_async_commit();
        const std::int64_t gates_at = place.token * p.heads + place.head;
        shared.gates.load(p.log_decay + gates_at, p.strength + gates_at, p.heads, place.rows);
        dstate.store_tile(shared.dstate, warp);
        copy_async_wait<0>();
        __syncthreads();
        Sums<N> dy;
        each_sum(dy, first_row, [&](float& value, int row, int column) {
            value = gates.before(row) * to_float(shared.dy[row * Tiles::slice_stride + column]);
        });
        store_sums_in_pairs(shared.decayed_dy + first_row * Tiles::slice_stride, Tiles::slice_stride, dy);

        // dU = Pᵀ dO + e ⊙ (K dS)
        Left<Operand, K / 16> left;
        load_left(left, shared.keys + first_row * Tiles::key_stride, Tiles::key_stride);
        Sums<N> rows;
        rows.clear();
        multiply<Right::rows_of_k>(rows, left, shared.dstate, Tiles::slice_stride);
        scale_rows(rows, first_row, [&](int row) { return gates.after(row); });
        Sums<8> scores;
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, shared.queries, Tiles::key_stride);
        each_sum(scores, first_row,
                 [&](float& score, int j, int i) { score = j <= i ? gates.between(i, j) * score : 0.0f; });
        Left<Operand, 4> square_left;
        to_left(square_left, scores);
        multiply<Right::rows_of_k>(rows, square_left, shared.dy, Tiles::slice_stride);
        store_sums_in_pairs(shared.dsolution + first_row * Tiles::slice_stride, Tiles::slice_stride, rows);
        __syncthreads();

        // -γ ⊙ dR = -γ β ⊙ (I + A)⁻ᵀ dU
        load_left_transposed(square_left, shared.inverse + first_row, Tiles::square_stride);
        rows.clear();
        multiply<Right::rows_of_k>(rows, square_left, shared.dsolution, Tiles::slice_stride);
        scale_rows(rows, first_row, [&](int row) { return -gates.before(row) * gates.strength[row]; });
        store_sums_in_pairs(shared.dresidual + first_row * Tiles::slice_stride, Tiles::slice_stride, rows);
        __syncthreads();

        dstate.scale(gates.all());
        dstate.add_product(shared.queries, shared.decayed_dy, warp);
        dstate.add_product(shared.keys, shared.dresidual, warp);
    }
    dstate.store(p.dinitial + pair * matrix + first_column, p.key_width, p.value_width, columns, warp);
}

}  // namespace

void delta_scan_back(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        ScanBackParameters<T> p{};
        p.q = delta_rows<const T>(arguments.q);
        p.k = delta_rows<const T>(arguments.k);
        p.dy = delta_rows<const T>(arguments.dy);
        p.log_decay = arguments.log_decay;
        p.strength = arguments.strength;
        p.dfinal = arguments.dfinal;
        p.inverses = static_cast<const DeltaOperand<T>*>(arguments.inverses);
        p.dstates = arguments.dstates;
        p.dinitial = arguments.dinitial;
        p.length = shape.length;
        p.chunks = arguments.chunks();
        p.heads = static_cast<int>(shape.heads);
        p.key_heads = static_cast<int>(shape.key_heads);
        p.key_width = static_cast<int>(shape.key_width);
        p.value_width = static_cast<int>(shape.value_width);
        p.aligned = delta_aligned<T>(shape.key_width, {arguments.q, arguments.k});
        p.values_aligned = delta_aligned<T>(shape.value_width, {arguments.dy});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            launch(
                {"delta_scan_back",
                 dim3(static_cast<unsigned>(arguments.pairs()), blocks_for(shape.value_width, DeltaTiles<T, K>::slice)),
                 threads, sizeof(ScanBackShared<T, K>), arguments.stream},
                delta_scan_back_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
