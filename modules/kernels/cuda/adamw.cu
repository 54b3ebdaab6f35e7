// AdamW over flat tensors: 28 bytes per element, and 2 or 4 more with a working copy; memory-bound.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/dispatch.hpp"
#include "kernels/cuda/pack.hpp"

namespace lockstep::kernels::cuda {
namespace {

__device__ bool finite(double value) {  // false for NaN
    constexpr double largest = std::numeric_limits<double>::max();
    return value >= -largest && value <= largest;
}

__global__ void decide_update_kernel(double* decision, const double* loss, const double* totals, double clip,
                                     LossScaling scaling) {
    if (threadIdx.x != 0) return;
    const bool scaled = scaling.growth_interval > 0;
    const double scale = scaled ? decision[Decision::loss_scale] : 1.0, inverse_scale = 1 / scale;
    const double norm = sqrt(totals[0]) * inverse_scale;
    const bool proceed = finite(*loss) && finite(norm);
    const double share = clip / (norm + 1e-6);
    decision[Decision::proceed] = proceed ? 1 : 0;
    decision[Decision::gradient_norm] = norm;
    decision[Decision::factor] = inverse_scale * (clip > 0 && share < 1 ? share : 1.0);
    decision[Decision::updates] += proceed ? 1 : 0;
    decision[Decision::zeros] = totals[1];
    if (!scaled) return;
    double good = decision[Decision::good_steps] + 1, bad = decision[Decision::bad_steps], next_scale = scale;
    if (!proceed) {
        good = 0;
        bad += 1;
        if (bad >= static_cast<double>(scaling.hysteresis))
            next_scale = scale / 2 > scaling.minimum ? scale / 2 : scaling.minimum;
    } else if (good >= static_cast<double>(scaling.growth_interval)) {
        next_scale = 2 * scale;
        good = bad = 0;
    }
    decision[Decision::loss_scale] = next_scale;
    decision[Decision::good_steps] = good;
    decision[Decision::bad_steps] = bad;
}

struct Factors {
    float gradient, step, second_moment;
};

constexpr unsigned threads = 256, resident_blocks = 5;  // per multiprocessor
constexpr int width = 4;  // elements per thread and access; all of them decay or none does
static_assert(DecayBits::elements % width == 0);

struct Arguments {
    float *parameter, *first_moment, *second_moment;
    const float* gradient;
    const std::uint32_t* decays;
    const double* decision;
    std::int64_t count;
    bool aligned;
    AdamWSettings settings;
};

// Returns the new parameter; updates the moments.
__device__ inline float update(float parameter, float gradient, float& first, float& second, const Factors& factors,
                               const AdamWSettings& s, float decay) {
    const float g = gradient * factors.gradient;
    first = s.beta1 * first + (1.0f - s.beta1) * g;
    second = s.beta2 * second + (1.0f - s.beta2) * (g * g);
    const float deviation = sqrtf(second * factors.second_moment) + s.epsilon;
    return parameter * decay - factors.step * (first / deviation);
}

// A few blocks per multiprocessor stride over all elements, so that each computes the bias corrections once.
template <class T, bool has_working>
__global__ void __launch_bounds__(threads, resident_blocks) adamw_kernel(Arguments at, T* working) {
    if (at.decision[Decision::proceed] == 0) return;
    Factors* const shared = shared_memory<Factors>();
    const AdamWSettings s = at.settings;
    const double rate = static_cast<double>(s.learning_rate);
    if (threadIdx.x == 0) {
        const double updates = at.decision[Decision::updates];
        shared->gradient = static_cast<float>(at.decision[Decision::factor]);
        shared->step = static_cast<float>(rate / (1 - pow(static_cast<double>(s.beta1), updates)));
        shared->second_moment = static_cast<float>(1 / (1 - pow(static_cast<double>(s.beta2), updates)));
    }
    __syncthreads();
    const Factors factors = *shared;
    const float decaying = static_cast<float>(1 - rate * static_cast<double>(s.weight_decay));
    const auto decay_at = [&](std::int64_t i) {
        const std::uint32_t word = at.decays[i / DecayBits::elements_a_word];
        return (word >> (i / DecayBits::elements % DecayBits::bits)) & 1u ? decaying : 1.0f;
    };
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    const std::int64_t all_threads = static_cast<std::int64_t>(gridDim.x) * threads;
    const std::int64_t packed = at.aligned ? at.count / width * width : 0;
    for (std::int64_t i = thread * width; i < packed; i += all_threads * width) {
        Pack<float, width> p = load_pack<width>(at.parameter + i);
        const Pack<float, width> g = load_pack<width>(at.gradient + i);
        Pack<float, width> m = load_pack<width>(at.first_moment + i), v = load_pack<width>(at.second_moment + i);
        const float decay = decay_at(i);
        Pack<T, width> rounded;
#pragma unroll
        for (int e = 0; e < width; ++e) {
            p.at[e] = update(p.at[e], g.at[e], m.at[e], v.at[e], factors, s, decay);
            rounded.at[e] = from_float<T>(p.at[e]);
        }
        store_pack(at.parameter + i, p);
        store_pack(at.first_moment + i, m);
        store_pack(at.second_moment + i, v);
        if (has_working) store_pack(working + i, rounded);
    }
    for (std::int64_t i = packed + thread; i < at.count; i += all_threads) {
        float m = at.first_moment[i], v = at.second_moment[i];
        const float p = update(at.parameter[i], at.gradient[i], m, v, factors, s, decay_at(i));
        at.parameter[i] = p;
        at.first_moment[i] = m;
        at.second_moment[i] = v;
        if (has_working) working[i] = from_float<T>(p);
    }
}

}  // namespace

void CudaBackend::decide_update(Tensor decision, Tensor loss, Tensor totals, double clip, const LossScaling& scaling) {
    LOCKSTEP_ASSERT(decision.count() == Decision::places && totals.count() == 2);
    launch({"decide_update", dim3(1), 32, 0, stream()}, decide_update_kernel, decision.fp64(), loss.fp64(),
           totals.fp64(), clip, scaling);
}

void CudaBackend::adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment, Tensor second_moment,
                        Tensor decays, Tensor decision, const AdamWSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && first_moment.count() == count && second_moment.count() == count);
    LOCKSTEP_ASSERT(decays.count() >= DecayBits::words_for(count) && decision.count() == Decision::places);
    LOCKSTEP_ASSERT(working.empty() || working.count() == count);
    Arguments at{parameter.fp32(),
                 first_moment.fp32(),
                 second_moment.fp32(),
                 gradient.fp32(),
                 reinterpret_cast<const std::uint32_t*>(decays.as<std::int32_t>()),
                 decision.fp64(),
                 count,
                 false,
                 settings};
    const unsigned blocks =
        static_cast<unsigned>(std::min<std::int64_t>(blocks_for(count, static_cast<std::int64_t>(threads) * width),
                                                     static_cast<std::int64_t>(resident_blocks) * multiprocessors()));
    const auto run = [&](auto kernel, auto* rounded) {
        at.aligned = aligned_for(width, 0, at.parameter, at.first_moment, at.second_moment, at.gradient, rounded);
        launch({"adamw", dim3(blocks), threads, sizeof(Factors), stream()}, kernel, at, rounded);
    };
    if (working.empty()) return run(adamw_kernel<float, false>, static_cast<float*>(nullptr));
    dispatch(working.type(), [&](auto element) {
        using T = decltype(element);
        run(adamw_kernel<T, true>, elements<T>(working));
    });
}

}  // namespace lockstep::kernels::cuda
