// Gated DeltaNet: (I + A)⁻¹ of every chunk, A_ij = β_i exp(Σ_{j<l≤i} g_l) k_i·k_j below the diagonal, by blocks of 16 ×
// 16: those on the diagonal by substitution, those below from them, one diagonal after the other.
#include "kernels/cuda/delta_tile.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/launch.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 128, block_width = 16, fp32_stride = delta_chunk + 1;

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
    DeltaOperand<T> keys[DeltaTiles<T, K>::keys];
    float lower[delta_chunk * fp32_stride], inverse[delta_chunk * fp32_stride];  // A, (I + A)⁻¹
    float sums[3 * block_width * block_width];
    DeltaGates gates;
};

template <class T, int K>
__global__ void __launch_bounds__(threads) delta_inverse_kernel(InverseParameters<T> p) {
    using Tiles = DeltaTiles<T, K>;
    using Operand = DeltaOperand<T>;
    auto& shared = *shared_memory<InverseShared<T, K>>();
    const int thread = static_cast<int>(threadIdx.x), warp = thread / warp_width, first_row = 16 * warp;
    const std::int64_t chunk = blockIdx.y;
    const DeltaPlace place(blockIdx.x, chunk, p.length, p.heads, p.key_heads);
    delta_load<K>(shared.keys, Tiles::key_stride, p.k.first + place.token * p.k.stride + place.key_head * p.key_width,
                  p.k.stride, place.rows, p.key_width, p.aligned, thread, threads);
    copy_async_commit();
    const std::int64_t gates_at = place.token * p.heads + place.head;
    shared.gates.load(p.log_decay + gates_at, p.strength + gates_at, p.heads, place.rows);
    copy_async_wait<0>();
    __syncthreads();

    Left<Operand, K / 16> left;
    load_left(left, shared.keys + first_row * Tiles::key_stride, Tiles::key_stride);
    Sums<8> scores;
    scores.clear();
    multiply<Right::rows_of_n>(scores, left, shared.keys, Tiles::key_stride);
    each_sum(scores, first_row, [&](float score, int i, int j) {
        const bool below = j < i;
        shared.lower[i * fp32_stride + j] =
            below ? shared.gates.strength[i] * shared.gates.between(i, j) * score : 0.0f;
        shared.inverse[i * fp32_stride + j] = 0;
    });
    __syncthreads();

    // On the diagonal: a warp a block, a lane a column.
    if (lane_index() < block_width) {
        const float* const a = shared.lower + first_row * fp32_stride + first_row;
        float column[block_width];
#pragma unroll
        for (int i = 0; i < block_width; ++i) {
            float value = i == lane_index() ? 1.0f : 0.0f;
#pragma unroll
            for (int j = 0; j < i; ++j) value = fmaf(-a[i * fp32_stride + j], column[j], value);
            column[i] = value;
        }
#pragma unroll
        for (int i = 0; i < block_width; ++i)
            shared.inverse[(first_row + i) * fp32_stride + first_row + lane_index()] = column[i];
    }
    __syncthreads();

    for (int distance = 1; distance < 4; ++distance) {
        const int count = (4 - distance) * block_width * block_width;
        // Blocks (c + distance, c): first Σ A_rj X_jc over the blocks j from c to r - 1, then -X_rr times that.
        for (int e = thread; e < count; e += threads) {
            const int c = e / (block_width * block_width),
                      row = (c + distance) * block_width + e / block_width % block_width;
            const int column = c * block_width + e % block_width;
            float sum = 0;
            for (int j = c * block_width; j < (c + distance) * block_width; ++j)
                sum = fmaf(shared.lower[row * fp32_stride + j], shared.inverse[j * fp32_stride + column], sum);
            shared.sums[e] = sum;
        }
        __syncthreads();
        for (int e = thread; e < count; e += threads) {
            const int c = e / (block_width * block_width), first = (c + distance) * block_width;
            const int row = first + e / block_width % block_width, column = e % block_width;
            const float* const sums = shared.sums + c * block_width * block_width + column;
            float sum = 0;
            for (int j = 0; j < block_width; ++j)
                sum = fmaf(shared.inverse[row * fp32_stride + first + j], sums[j * block_width], sum);
            shared.inverse[row * fp32_stride + c * block_width + column] = -sum;
        }
        __syncthreads();
    }

    Operand* const out = p.inverses + (place.pair * p.chunks + chunk) * delta_chunk * delta_chunk;
    for (int e = thread; e < delta_chunk * delta_chunk; e += threads)
        out[e] = from_float<Operand>(shared.inverse[e / delta_chunk * fp32_stride + e % delta_chunk]);
}

}  // namespace

std::size_t delta_inverse_bytes(const DeltaShape& shape, Type type) {
    const std::int64_t elements = shape.batch * shape.heads * delta_gpu_chunks(shape) * delta_chunk * delta_chunk;
    return static_cast<std::size_t>(elements) * (type == Type::fp32 ? sizeof(float) : sizeof(bf16));
}

void delta_invert(const DeltaArguments& arguments, Type type) {
    const DeltaShape& shape = arguments.shape;
    dispatch(type, [&](auto element) {
        using T = decltype(element);
        InverseParameters<T> p{};
        p.k = delta_rows<const T>(arguments.k);
        p.log_decay = arguments.log_decay;
        p.strength = arguments.strength;
        p.inverses = static_cast<DeltaOperand<T>*>(arguments.inverses);
        p.length = shape.length;
        p.chunks = arguments.chunks();
        p.heads = static_cast<int>(shape.heads);
        p.key_heads = static_cast<int>(shape.key_heads);
        p.key_width = static_cast<int>(shape.key_width);
        p.aligned = delta_aligned<T>(shape.key_width, {arguments.k});
        for_padded_key_width(shape.key_width, [&](auto padded) {
            constexpr int K = decltype(padded)::value;
            launch({"delta_inverse", dim3(static_cast<unsigned>(arguments.pairs()), static_cast<unsigned>(p.chunks)),
                    threads, sizeof(InverseShared<T, K>), arguments.stream},
                   delta_inverse_kernel<T, K>, p);
        });
    });
}

}  // namespace lockstep::kernels::cuda
