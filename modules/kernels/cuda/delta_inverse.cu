// Gated DeltaNet: (I + A)⁻¹ of every chunk, A_ij = β_i exp(Σ_{j<l≤i} g_l) k_i·k_j below the diagonal, by blocks of 16 ×
// 16: those on the diagonal by substitution, those below from them.
#include "kernels/cuda/delta_tile.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 128, block_width = 16, fp32_stride = block_width + 1;

template <class T>
struct InverseParameters {
    DeltaRows<const T> k;
    const float *log_decay, *strength;
    DeltaOperand<T>* inverses;
    std::int64_t length, chunks;
    int heads, key_heads, key_width;
    bool aligned;
};

template <class T, int K>
struct InverseShared {
    using Tiles = DeltaTiles<T, K>;
    typename Tiles::Operand keys[Tiles::keys];
    typename Tiles::Operand lower[Tiles::square], inverse[Tiles::square];  // A, (I + A)⁻¹
    float diagonal[4 * block_width * fp32_stride];                         // the blocks of A on the diagonal
    DeltaGates gates;
};

template <class T, int K>
__global__ void __launch_bounds__(threads) delta_inverse_kernel(InverseParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    constexpr int stride = Tiles::square_stride;
    auto& shared = *shared_memory<InverseShared<T, K>>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_row = 16 * warp;
    const std::int64_t chunk = blockIdx.y;
    const DeltaPlace place(static_cast<int>(blockIdx.x), chunk, p.length, p.heads, p.key_heads);
    delta_load<K>(shared.keys, Tiles::key_stride, p.k.first + place.token * p.k.stride + place.key_head * p.key_width,
                  p.k.stride, place.rows, p.key_width, p.aligned, thread, threads);
    copy_async_commit();
    const std::int64_t gates_at = place.token * p.heads + place.head;
    if (warp == 0)
        shared.gates.set(DeltaGates::fetch(p.log_decay + gates_at, p.strength + gates_at, p.heads, place.rows));
    copy_async_wait<0>();
    __syncthreads();

    // A warp has 16 rows of A; what is on the diagonal stays in fp32.
    float* const diagonal = shared.diagonal + warp * block_width * fp32_stride;
    {
        Left<Operand, K / 16> left;
        load_left(left, shared.keys + first_row * Tiles::key_stride, Tiles::key_stride);
        Sums<8> scores;
        scores.clear();
        multiply<Right::rows_of_n>(scores, left, shared.keys, Tiles::key_stride);
        each_sum(scores, first_row, [&](float& score, int i, int j) {
            score = j < i ? shared.gates.strength[i] * shared.gates.between(i, j) * score : 0.0f;
            if (j / block_width == warp) diagonal[(i - first_row) * fp32_stride + j - first_row] = score;
        });
        store_sums_in_pairs(shared.lower + first_row * stride, stride, scores);
    }
    __syncwarp(all_lanes);

    // On the diagonal: a lane a column. Above it: zeros.
    {
        float column[block_width];
#pragma unroll
        for (int i = 0; i < block_width; ++i) {
            float value = i == lane_index() ? 1.0f : 0.0f;
#pragma unroll
            for (int j = 0; j < i; ++j) value = fmaf(-diagonal[i * fp32_stride + j], column[j], value);
            column[i] = value;
        }
        if (lane_index() < block_width)
#pragma unroll
            for (int i = 0; i < block_width; ++i)
                shared.inverse[(first_row + i) * stride + first_row + lane_index()] = from_float<Operand>(column[i]);
        for (int e = lane_index(); e < block_width * delta_chunk; e += warp_width)
            if (e % delta_chunk / block_width > warp)
                shared.inverse[(first_row + e / delta_chunk) * stride + e % delta_chunk] = from_float<Operand>(0.0f);
    }
    __syncthreads();

    // Below it: this warp's 16 columns X_c, X_rc = -X_rr Σ A_rj X_jc over the blocks j from c to r - 1.
#pragma unroll 1
    for (int r = warp + 1; r < 4; ++r) {
        Left<Operand, 1> left;
        Sums<2> sums, product;
        sums.clear();
        for (int j = warp; j < r; ++j) {
            load_left(left, shared.lower + block_width * (r * stride + j), stride);
            multiply<Right::rows_of_k>(sums, left, shared.inverse + block_width * (j * stride + warp), stride);
        }
        Operand* const to = shared.inverse + block_width * (r * stride + warp);
        store_sums_in_pairs(to, stride, sums);
        __syncwarp(all_lanes);
        load_left(left, shared.inverse + block_width * r * (stride + 1), stride);
        product.clear();
        multiply<Right::rows_of_k>(product, left, to, stride);
        __syncwarp(all_lanes);
        each_sum(product, 0, [](float& value, int, int) { value = -value; });
        store_sums_in_pairs(to, stride, product);
        __syncwarp(all_lanes);
    }
    __syncthreads();

    constexpr int each = Vector16<Operand>::count, pieces = delta_chunk / each;
    Operand* const out = p.inverses + (place.pair * p.chunks + chunk) * delta_chunk * delta_chunk;
    for (int piece = thread; piece < delta_chunk * pieces; piece += threads)
        store16(out + piece * each, load16(shared.inverse + piece / pieces * stride + piece % pieces * each));
}

}  // namespace

void delta_invert(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        auto p = delta_parameters<T, InverseParameters<T>>(arguments);
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            static_assert(sizeof(InverseShared<T, K>) <= delta_shared_limit);
            launch({"delta_inverse", dim3(static_cast<unsigned>(arguments.pairs()), static_cast<unsigned>(p.chunks)),
                    threads, sizeof(InverseShared<T, K>), arguments.stream},
                   delta_inverse_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
