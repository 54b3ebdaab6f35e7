// Joins attention over two sets of keys: one warp per head of a row. Memory-bound.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/pack.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

struct JoinedSizes {
    std::int64_t rows;  // B · n · H
    int queries, first, length, heads, width;
};

template <class T, int pack>
__global__ void __launch_bounds__(threads)
    attention_join_kernel(float* __restrict__ sum, float* __restrict__ log_sum_exp, const T* __restrict__ y,
                          const float* __restrict__ y_log_sum_exp, JoinedSizes sizes) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (threads / warp_width) + threadIdx.x / warp_width;
    if (row >= sizes.rows) return;
    const int lane = static_cast<int>(threadIdx.x) % warp_width;
    const std::int64_t of_all = row / sizes.heads, sequence = of_all / sizes.queries;
    const int head = static_cast<int>(row % sizes.heads), query = static_cast<int>(of_all % sizes.queries);
    const std::int64_t sequence_head = sequence * sizes.heads + head;
    float* const level = log_sum_exp + sequence_head * sizes.length + sizes.first + query;
    const float own = *level, other = y_log_sum_exp[sequence_head * sizes.queries + query];
    const float highest = fmaxf(own, other);
    const float own_weight = expf(own - highest), other_weight = expf(other - highest);
    const float total = own_weight + other_weight, keep = own_weight / total, take = other_weight / total;
    float* const to = sum + ((sequence * sizes.length + sizes.first + query) * sizes.heads + head) * sizes.width;
    const T* const from = y + row * sizes.width;
    for (int column = lane * pack; column < sizes.width; column += warp_width * pack) {
        Pack<float, pack> values = load_pack<pack>(to + column);
        const Pack<T, pack> more = load_pack<pack>(from + column);
#pragma unroll
        for (int e = 0; e < pack; ++e) values.at[e] = keep * values.at[e] + take * to_float(more.at[e]);
        store_pack(to + column, values);
    }
    __syncwarp(all_lanes);  // all lanes have read the level
    if (lane == 0) *level = highest + logf(total);
}

}  // namespace

void CudaBackend::attention_join(Tensor sum, Tensor log_sum_exp, Tensor y, Tensor y_log_sum_exp,
                                 std::int64_t first_query, const AttentionShape& shape) {
    const std::int64_t queries = y_log_sum_exp.count() / (shape.batch * shape.heads);
    const std::int64_t rows = shape.batch * queries * shape.heads;
    LOCKSTEP_ASSERT(first_query >= 0 && first_query + queries <= shape.query_length);
    LOCKSTEP_ASSERT(sum.count() == shape.batch * shape.query_length * shape.heads * shape.head_width);
    LOCKSTEP_ASSERT(log_sum_exp.count() == shape.batch * shape.heads * shape.query_length);
    LOCKSTEP_ASSERT(y.count() == rows * shape.head_width && y_log_sum_exp.type() == Type::fp32);
    const JoinedSizes sizes{rows,
                            static_cast<int>(queries),
                            static_cast<int>(first_query),
                            static_cast<int>(shape.query_length),
                            static_cast<int>(shape.heads),
                            static_cast<int>(shape.head_width)};
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        const auto run = [&](auto kernel) {
            launch({"attention_join", dim3(blocks_for(rows, threads / warp_width)), threads, 0, stream()}, kernel,
                   sum.fp32(), log_sum_exp.fp32(), elements<T>(y), y_log_sum_exp.fp32(), sizes);
        };
        if (aligned_for(4, shape.head_width, sum.fp32(), elements<T>(y)))
            run(attention_join_kernel<T, 4>);
        else
            run(attention_join_kernel<T, 1>);
    });
}

}  // namespace lockstep::kernels::cuda
