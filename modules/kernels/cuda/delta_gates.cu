// Gated DeltaNet: decays and strengths from their logits.
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/documents.hpp"
#include "kernels/cuda/functions.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr int threads = 256;

template <class T>
struct Logits {  // [N, H]
    T* first;
    std::int64_t stride;
    explicit Logits(const Tensor& tensor) : first(strided_elements<T>(tensor)), stride(tensor.stride()) {}
};

// Which rows are the first of a document.
struct DocumentStarts {
    DocumentPlaces documents;
    std::int64_t length;
    __device__ bool at(std::int64_t row) const {
        if (!documents.starts) return false;
        const std::int64_t sequence = row / length;
        const int token = static_cast<int>(row - sequence * length);
        return documents.begin(sequence, token) == token;
    }
};

__device__ inline float softplus(float x) {  // log(1 + exp(x))
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

template <class T>
__global__ void __launch_bounds__(threads)
    delta_gates_forward_kernel(float* log_decay, float* strength, Logits<const T> decay, Logits<const T> strengths,
                               const float* log_rate, const float* decay_bias, std::int64_t count, std::int64_t heads,
                               DocumentStarts documents) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    if (at >= count) return;
    const std::int64_t row = at / heads, head = at - row * heads;
    const float logit = to_float(decay.first[row * decay.stride + head]) + decay_bias[head];
    log_decay[at] = documents.at(row) ? forgetting_log_decay : -expf(log_rate[head]) * softplus(logit);
    strength[at] = sigmoid(to_float(strengths.first[row * strengths.stride + head]));
}

// Each block writes a row of partial sums, of each head those of log_rate and of decay_bias.
template <class T>
__global__ void __launch_bounds__(column_threads)
    delta_gates_backward_kernel(Logits<T> ddecay, Logits<T> dstrengths, float* partials, const float* dlog_decay,
                                const float* dstrength, Logits<const T> decay, const float* strength,
                                const float* log_rate, const float* decay_bias, std::int64_t rows, std::int64_t heads,
                                int lanes, DocumentStarts documents) {
    const int lane = static_cast<int>(threadIdx.x) % lanes, row_lane = static_cast<int>(threadIdx.x) / lanes;
    const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.x) * lanes, head = first_head + lane;
    const std::int64_t row_lanes = column_threads / lanes;
    float sums[2] = {};
    if (head < heads) {
        const float rate = -expf(log_rate[head]), bias = decay_bias[head];
        for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * row_lanes + row_lane; row < rows;
             row += row_lanes * gridDim.y) {
            const float logit = to_float(decay.first[row * decay.stride + head]) + bias;
            const float s = strength[row * heads + head];
            const float scaled = documents.at(row) ? 0.0f : rate * dlog_decay[row * heads + head];
            const float dlogit = scaled * sigmoid(logit);
            sums[0] += scaled * softplus(logit);
            sums[1] += dlogit;
            ddecay.first[row * ddecay.stride + head] = from_float<T>(dlogit);
            dstrengths.first[row * dstrengths.stride + head] =
                from_float<T>(dstrength[row * heads + head] * s * (1.0f - s));
        }
    }
    store_column_sums(partials + (static_cast<std::int64_t>(blockIdx.y) * heads + first_head) * 2,
                      2 * (heads - first_head), sums, lanes, shared_memory<float>());
}

struct GatePlace {
    float *dlog_rate, *ddecay_bias;
    __device__ float* operator()(std::int64_t column) const {
        return (column % 2 == 0 ? dlog_rate : ddecay_bias) + column / 2;
    }
};

}  // namespace

void CudaBackend::delta_gates_forward(Tensor log_decay, Tensor strength, Tensor decay_logit, Tensor strength_logit,
                                      Tensor log_rate, Tensor decay_bias, std::int64_t length,
                                      const Documents& documents) {
    const std::int64_t heads = log_rate.count(), count = log_decay.count();
    LOCKSTEP_ASSERT(length > 0 && count / heads % length == 0 && documents.cover(count / heads / length, length));
    LOCKSTEP_ASSERT(strength.count() == count && decay_logit.count() == count && strength_logit.count() == count &&
                    decay_logit.size(-1) == heads && strength_logit.size(-1) == heads && decay_bias.count() == heads &&
                    decay_logit.type() == strength_logit.type());
    dispatch(decay_logit.type(), [&](auto element) {
        using T = decltype(element);
        launch({"delta_gates_forward", dim3(blocks_for(count, threads)), threads, 0, stream()},
               delta_gates_forward_kernel<T>, log_decay.fp32(), strength.fp32(), Logits<const T>(decay_logit),
               Logits<const T>(strength_logit), log_rate.fp32(), decay_bias.fp32(), count, heads,
               DocumentStarts{DocumentPlaces(documents), length});
    });
}

void CudaBackend::delta_gates_backward(Tensor ddecay_logit, Tensor dstrength_logit, Tensor dlog_rate,
                                       Tensor ddecay_bias, Tensor dlog_decay, Tensor dstrength, Tensor decay_logit,
                                       Tensor strength, Tensor log_rate, Tensor decay_bias, std::int64_t length,
                                       const Documents& documents) {
    const std::int64_t heads = log_rate.count(), count = dlog_decay.count(), rows = count / heads;
    LOCKSTEP_ASSERT(length > 0 && rows % length == 0 && documents.cover(rows / length, length));
    for (const Tensor& tensor : {ddecay_logit, dstrength_logit, decay_logit})
        LOCKSTEP_ASSERT(tensor.count() == count && tensor.size(-1) == heads && tensor.type() == decay_logit.type());
    LOCKSTEP_ASSERT(dstrength.count() == count && strength.count() == count && decay_bias.count() == heads &&
                    dlog_rate.count() == heads && ddecay_bias.count() == heads);
    const ColumnGrid grid = column_grid(rows, heads, 8);
    float* const partials = scratch_of<float>(grid.row_blocks * heads * 2);
    dispatch(decay_logit.type(), [&](auto element) {
        using T = decltype(element);
        launch({"delta_gates_backward", dim3(grid.column_blocks, grid.row_blocks), column_threads,
                column_threads * 2 * sizeof(float), stream()},
               delta_gates_backward_kernel<T>, Logits<T>(ddecay_logit), Logits<T>(dstrength_logit), partials,
               dlog_decay.fp32(), dstrength.fp32(), Logits<const T>(decay_logit), strength.fp32(), log_rate.fp32(),
               decay_bias.fp32(), rows, heads, grid.lanes, DocumentStarts{DocumentPlaces(documents), length});
    });
    add_partials("delta_gates_backward", stream(), GatePlace{dlog_rate.fp32(), ddecay_bias.fp32()}, partials,
                 grid.row_blocks, 2 * heads);
}

}  // namespace lockstep::kernels::cuda
