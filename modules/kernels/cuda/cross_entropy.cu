// Softmax cross-entropy with its gradient in place (Milakov & Gimelshein 2018 for the running sum), one block per row.
// What shared memory keeps of a row, with room for a second block on the multiprocessor, is read from global memory
// once and written once; the rest is read twice. One block reads while the other writes. Rows need no alignment: each
// element before and after the 16-byte vectors, at most 14 of 16 bits, takes a thread.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/functions.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/reduce.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned most_threads = 512;
constexpr int at_once = 3;  // 16-byte vectors in flight per thread

// Σ exp(x - base) so far, base the running maximum. -∞ counts 0, even before any other value; +∞ and NaN make the total
// NaN.
struct SoftmaxSum {
    float highest = -INFINITY, total = 0;

    __device__ static float base(float highest) { return highest == -INFINITY ? 0.0f : highest; }
    template <int count>
    __device__ void add(const float (&values)[count]) {
        float top = highest;
#pragma unroll
        for (int e = 0; e < count; ++e) top = fmaxf(top, values[e]);
        const float from = base(top);
        total *= exponential(highest - from);
#pragma unroll
        for (int e = 0; e < count; ++e) total += exponential(values[e] - from);
        highest = top;
    }
};

template <class T>
__device__ inline void to_floats(float (&values)[Vector16<T>::count], const Vector16<T>& piece) {
#pragma unroll
    for (int e = 0; e < Vector16<T>::count; ++e) values[e] = to_float(piece.at[e]);
}

template <class T>
__global__ void __launch_bounds__(most_threads, 2)
    cross_entropy_rows(float* losses, T* logits, const std::int32_t* __restrict__ targets, LossGradient gradient,
                       const double* loss_scale, int vocabulary, std::int64_t stride, int most_kept) {
    using Piece = Vector16<T>;
    constexpr int elements = Piece::count;
    float* work = shared_memory<float>();
    T* kept = reinterpret_cast<T*>(work + warp_width);
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const std::int64_t row = blockIdx.x;
    T* scores = logits + row * stride;
    const int target = targets[row];

    // [head | vectors | tail], and this thread's element of head or tail, or -1.
    const int skew = static_cast<int>(reinterpret_cast<std::uintptr_t>(scores) % 16 / sizeof(T));
    const int to_aligned = (elements - skew) % elements, head = to_aligned < vocabulary ? to_aligned : vocabulary;
    const int pieces = (vocabulary - head) / elements, tail = vocabulary - head - pieces * elements;
    const int in_shared = most_kept < pieces ? most_kept : pieces;
    T* body = scores + head;
    const int edge = thread < head ? thread : thread < head + tail ? vocabulary - head - tail + thread : -1;

    if (target < 0) {  // ignored
        if (thread == 0) losses[row] = 0;
        if (gradient.scale == 0) return;
        for (int piece = thread; piece < pieces; piece += threads) store16(body + piece * elements, Piece{});
        if (edge >= 0) scores[edge] = T{};
        return;
    }

    SoftmaxSum sum;
    for (int first = thread; first < pieces; first += at_once * threads) {
        Piece in[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i)
            if (first + i * threads < pieces) in[i] = load16(body + (first + i * threads) * elements);
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + i * threads >= pieces) continue;
            if (first + i * threads < in_shared) store16(kept + (first + i * threads) * elements, in[i]);
            float values[elements];
            to_floats(values, in[i]);
            sum.add(values);
        }
    }
    float edge_value[1] = {-INFINITY};
    if (edge >= 0) {
        edge_value[0] = to_float(scores[edge]);
        sum.add(edge_value);
    }
    // A target beyond the vocabulary is faulty data: its loss is NaN, and the update is skipped.
    const float chosen = target < vocabulary ? to_float(scores[target]) : NAN;
    const float highest = block_maximum(sum.highest, work);
    const float total = block_sum(sum.total * exponential(sum.highest - SoftmaxSum::base(highest)), work);
    const float log_total = logf(total);
    if (thread == 0) losses[row] = log_total + (highest - chosen);
    if (gradient.scale == 0) return;

    const float scale = gradient.scale * (loss_scale ? static_cast<float>(*loss_scale) : 1.0f);
    const float factor = scale / total * (1 + 2 * gradient.z_loss * (highest + log_total));
    const auto write_gradients = [&](const T* from, int begin, int end) {  // of pieces [begin, end), read from `from`
        for (int first = begin + thread; first < end; first += at_once * threads) {
            Piece in[at_once];
#pragma unroll
            for (int i = 0; i < at_once; ++i)
                if (first + i * threads < end) in[i] = load16(from + (first + i * threads) * elements);
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                const int piece = first + i * threads;
                if (piece >= end) continue;
                float values[elements];
                to_floats(values, in[i]);
#pragma unroll
                for (int e = 0; e < elements; ++e)
                    values[e] = factor * exponential(values[e] - highest) * gradient.slope(values[e]);
                Piece out;
#pragma unroll
                for (int e = 0; e < elements; ++e) out.at[e] = from_float<T>(values[e]);
                store16(body + piece * elements, out);
            }
        }
    };
    write_gradients(kept, 0, in_shared);  // a thread reads what it has kept itself
    write_gradients(body, in_shared, pieces);
    if (edge >= 0)
        scores[edge] = from_float<T>(factor * exponential(edge_value[0] - highest) * gradient.slope(edge_value[0]));
    __syncthreads();  // all are written, the target's too, which then gets its own
    if (thread == 0 && target < vocabulary)
        scores[target] = from_float<T>((factor * exponential(chosen - highest) - scale) * gradient.slope(chosen));
}

}  // namespace

void CudaBackend::cross_entropy(Tensor losses, Tensor logits, Tensor targets, const LossGradient& gradient,
                                Tensor loss_scale) {
    const std::int64_t vocabulary = logits.size(-1), rows = logits.rows();
    LOCKSTEP_ASSERT(losses.count() == rows && targets.count() == rows && vocabulary <= INT32_MAX / 2);
    const double* const scale = loss_scale.empty() ? nullptr : loss_scale.fp64();
    const cudaDeviceProp& properties = context_->properties();
    const std::size_t work = warp_width * sizeof(float);
    const std::size_t each = properties.sharedMemPerMultiprocessor / 2 - properties.reservedSharedMemPerBlock - work;
    dispatch(logits.type(), [&](auto element) {
        using T = decltype(element);
        constexpr int elements = Vector16<T>::count;
        const std::int64_t pieces = gradient.scale == 0.0f ? 0 : vocabulary / elements;
        const std::int64_t kept = std::min(pieces, static_cast<std::int64_t>(each / sizeof(Vector16<T>)));
        launch({"cross_entropy", dim3(static_cast<unsigned>(rows)),
                threads_for(vocabulary / elements, at_once, most_threads),
                work + static_cast<std::size_t>(kept) * sizeof(Vector16<T>), stream()},
               cross_entropy_rows<T>, losses.fp32(), strided_elements<T>(logits), targets.as<std::int32_t>(), gradient,
               scale, static_cast<int>(vocabulary), logits.stride(), static_cast<int>(kept));
    });
}

}  // namespace lockstep::kernels::cuda
