// Caps of logits. Memory-bound; one block per row, since rows may be padded.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/row.hpp"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(most_row_threads)
    cap_logits_kernel(T* logits, float cap, float inverse_cap, int columns, std::int64_t stride) {
    for_row<true>(logits + static_cast<std::int64_t>(blockIdx.x) * stride, columns,
                  [&]<int count>(float(&values)[count], int) {
#pragma unroll
                      for (int e = 0; e < count; ++e) values[e] = cap * tanhf(values[e] * inverse_cap);
                  });
}

}  // namespace

void CudaBackend::cap_logits(Tensor logits, float cap) {
    const std::int64_t columns = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(cap > 0 && columns <= INT32_MAX / 2);
    dispatch(logits.type(), [&](auto element) {
        using T = decltype(element);
        launch(
            {"cap_logits", dim3(static_cast<unsigned>(rows)), row_threads(columns / Vector16<T>::count), 0, stream()},
            cap_logits_kernel<T>, strided_elements<T>(logits), cap, 1 / cap, static_cast<int>(columns),
            logits.stride());
    });
}

}  // namespace lockstep::kernels::cuda
