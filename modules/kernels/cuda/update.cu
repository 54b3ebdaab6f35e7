// Updates of flat tensors, memory-bound: AdamW moves 28 bytes per element, momentum 20, and 2 or 4 more with a working
// copy; and the elementwise parts of Muon.
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

constexpr unsigned threads = 256, resident_blocks = 4;  // per multiprocessor
constexpr int width = 4;                                // elements per thread and access; all of one group
static_assert(WeightGroups::elements % width == 0 && WeightGroups::most <= threads);

// What a block computes once: of all weights, and of each group.
struct Shared {
    float gradient, second_moment;
    float step[WeightGroups::most], decay[WeightGroups::most];
};

template <class Rule>
constexpr int states_of = Rule::states > 0 ? Rule::states : 1;  // of arrays, which are never empty

template <class Rule>
struct Arguments {
    float* parameter;
    float* state[states_of<Rule>];
    const float* gradient;
    const std::int32_t* groups;
    const double* decision;
    std::int64_t count;
    bool aligned;
};

// A rule says what one weight's step is, besides its decay.
struct AdamWRule {
    static constexpr int states = 2;  // first and second moment
    AdamWSettings settings;

    __device__ void prepare(Shared& shared, const double* decision, unsigned group) const {
        const double updates = decision[Decision::updates];
        const double rate =
            static_cast<double>(settings.learning_rate) * static_cast<double>(settings.groups[group].rate_factor);
        shared.step[group] = static_cast<float>(rate / (1 - pow(static_cast<double>(settings.beta1), updates)));
        shared.decay[group] = static_cast<float>(1 - rate * static_cast<double>(settings.groups[group].decay));
        if (group > 0) return;
        shared.gradient = static_cast<float>(decision[Decision::factor]);
        shared.second_moment = static_cast<float>(1 / (1 - pow(static_cast<double>(settings.beta2), updates)));
    }
    __device__ float direction(float g, float (&state)[states], const Shared& shared) const {
        float &first = state[0], &second = state[1];
        first = settings.beta1 * first + (1.0f - settings.beta1) * g;
        second = settings.beta2 * second + (1.0f - settings.beta2) * (g * g);
        return first / (sqrtf(second * shared.second_moment) + settings.epsilon);
    }
};

struct MomentumRule {
    static constexpr int states = 1;  // velocity
    MomentumSettings settings;

    __device__ void prepare(Shared& shared, const double* decision, unsigned group) const {
        const double rate =
            static_cast<double>(settings.learning_rate) * static_cast<double>(settings.groups[group].rate_factor);
        shared.step[group] = static_cast<float>(rate);
        shared.decay[group] = static_cast<float>(1 - rate * static_cast<double>(settings.groups[group].decay));
        if (group == 0) shared.gradient = static_cast<float>(decision[Decision::factor]);
    }
    __device__ float direction(float g, float (&state)[states], const Shared&) const {
        state[0] = settings.momentum * state[0] + g;
        return settings.nesterov ? g + settings.momentum * state[0] : state[0];
    }
};

// Along a direction that takes the gradient's place.
struct DirectionRule {
    static constexpr int states = 0;
    StepSettings settings;

    __device__ void prepare(Shared& shared, const double*, unsigned group) const {
        const double rate =
            static_cast<double>(settings.learning_rate) * static_cast<double>(settings.groups[group].rate_factor);
        shared.step[group] = static_cast<float>(rate * static_cast<double>(settings.scale));
        shared.decay[group] = static_cast<float>(1 - rate * static_cast<double>(settings.groups[group].decay));
        if (group == 0) shared.gradient = 1;
    }
    __device__ float direction(float given, float (&)[1], const Shared&) const { return given; }
};

struct Direction {
    const double* decision;
    float momentum;
    bool nesterov;
    __device__ void operator()(const float (&x)[2], float (&y)[2]) const {
        if (decision[Decision::proceed] == 0) {
            y[0] = 0;
            y[1] = x[1];
            return;
        }
        const float g = x[0] * static_cast<float>(decision[Decision::factor]);
        y[1] = momentum * x[1] + g;
        y[0] = nesterov ? g + momentum * y[1] : y[1];
    }
};

struct Normalize {
    const double* square;
    __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
        y[0] = x[0] * (1.0f / (sqrtf(static_cast<float>(*square)) + 1e-7f));
    }
};

struct Blend {
    float y_share, x_share;
    __device__ void operator()(const float (&x)[2], float (&y)[1]) const { y[0] = y_share * x[0] + x_share * x[1]; }
};

// A few blocks per multiprocessor stride over all elements, so that each prepares the factors once.
template <class Rule, class T, bool has_working>
__global__ void __launch_bounds__(threads, resident_blocks)
    update_kernel(const __grid_constant__ Rule rule, const Arguments<Rule> at, T* working) {
    if (at.decision[Decision::proceed] == 0) return;
    Shared& shared = *shared_memory<Shared>();
    if (threadIdx.x < WeightGroups::most) rule.prepare(shared, at.decision, threadIdx.x);
    __syncthreads();
    const float gradient_factor = shared.gradient;
    const auto group_at = [&](std::int64_t i) {
        const auto word = static_cast<std::uint32_t>(at.groups[i / WeightGroups::elements_a_word]);
        const auto run = static_cast<unsigned>(i / WeightGroups::elements % WeightGroups::runs_a_word);
        return (word >> (static_cast<unsigned>(WeightGroups::bits) * run)) &
               static_cast<unsigned>(WeightGroups::most - 1);
    };
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    const std::int64_t all_threads = static_cast<std::int64_t>(gridDim.x) * threads;
    const std::int64_t packed = at.aligned ? at.count / width * width : 0;
    for (std::int64_t i = thread * width; i < packed; i += all_threads * width) {
        Pack<float, width> p = load_pack<width>(at.parameter + i), states[states_of<Rule>];
        const Pack<float, width> g = load_pack<width>(at.gradient + i);
#pragma unroll
        for (int s = 0; s < Rule::states; ++s) states[s] = load_pack<width>(at.state[s] + i);
        const unsigned group = group_at(i);
        const float step = shared.step[group], decay = shared.decay[group];
        Pack<T, width> rounded;
#pragma unroll
        for (int e = 0; e < width; ++e) {
            float state[states_of<Rule>];
#pragma unroll
            for (int s = 0; s < Rule::states; ++s) state[s] = states[s].at[e];
            p.at[e] = p.at[e] * decay - step * rule.direction(g.at[e] * gradient_factor, state, shared);
            rounded.at[e] = from_float<T>(p.at[e]);
#pragma unroll
            for (int s = 0; s < Rule::states; ++s) states[s].at[e] = state[s];
        }
        store_pack(at.parameter + i, p);
#pragma unroll
        for (int s = 0; s < Rule::states; ++s) store_pack(at.state[s] + i, states[s]);
        if (has_working) store_pack(working + i, rounded);
    }
    for (std::int64_t i = packed + thread; i < at.count; i += all_threads) {
        float state[states_of<Rule>];
#pragma unroll
        for (int s = 0; s < Rule::states; ++s) state[s] = at.state[s][i];
        const unsigned group = group_at(i);
        const float direction = rule.direction(at.gradient[i] * gradient_factor, state, shared);
        const float p = at.parameter[i] * shared.decay[group] - shared.step[group] * direction;
        at.parameter[i] = p;
#pragma unroll
        for (int s = 0; s < Rule::states; ++s) at.state[s][i] = state[s];
        if (has_working) working[i] = from_float<T>(p);
    }
}

template <class Rule>
void update(const char* name, const Rule& rule, Arguments<Rule> at, Tensor working, int multiprocessors,
            cudaStream_t stream) {
    const unsigned blocks =
        static_cast<unsigned>(std::min<std::int64_t>(blocks_for(at.count, static_cast<std::int64_t>(threads) * width),
                                                     static_cast<std::int64_t>(resident_blocks) * multiprocessors));
    const auto run = [&](auto kernel, auto* rounded) {
        at.aligned =
            aligned_for(width, 0, at.parameter, at.state[0], at.state[states_of<Rule> - 1], at.gradient, rounded);
        launch({name, dim3(blocks), threads, sizeof(Shared), stream}, kernel, rule, at, rounded);
    };
    if (working.empty()) return run(update_kernel<Rule, float, false>, static_cast<float*>(nullptr));
    dispatch(working.type(), [&](auto element) {
        using T = decltype(element);
        run(update_kernel<Rule, T, true>, elements<T>(working));
    });
}

}  // namespace

void CudaBackend::decide_update(Tensor decision, Tensor loss, Tensor totals, double clip, const LossScaling& scaling) {
    LOCKSTEP_ASSERT(decision.count() == Decision::places && totals.count() == 2);
    launch({"decide_update", dim3(1), 32, 0, stream()}, decide_update_kernel, decision.fp64(), loss.fp64(),
           totals.fp64(), clip, scaling);
}

void CudaBackend::adamw(Tensor parameter, Tensor working, Tensor gradient, Tensor first_moment, Tensor second_moment,
                        Tensor groups, Tensor decision, const AdamWSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && first_moment.count() == count && second_moment.count() == count);
    LOCKSTEP_ASSERT(groups.count() >= WeightGroups::words_for(count) && decision.count() == Decision::places);
    LOCKSTEP_ASSERT(working.empty() || working.count() == count);
    const Arguments<AdamWRule> at{parameter.fp32(),
                                  {first_moment.fp32(), second_moment.fp32()},
                                  gradient.fp32(),
                                  groups.as<std::int32_t>(),
                                  decision.fp64(),
                                  count,
                                  false};
    update("adamw", AdamWRule{settings}, at, working, multiprocessors(), stream());
}

void CudaBackend::momentum(Tensor parameter, Tensor working, Tensor gradient, Tensor velocity, Tensor groups,
                           Tensor decision, const MomentumSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(gradient.count() == count && velocity.count() == count && decision.count() == Decision::places);
    LOCKSTEP_ASSERT(groups.count() >= WeightGroups::words_for(count) && (working.empty() || working.count() == count));
    const Arguments<MomentumRule> at{
        parameter.fp32(), {velocity.fp32()}, gradient.fp32(), groups.as<std::int32_t>(), decision.fp64(), count, false};
    update("momentum", MomentumRule{settings}, at, working, multiprocessors(), stream());
}

void CudaBackend::step(Tensor parameter, Tensor working, Tensor direction, Tensor groups, Tensor decision,
                       const StepSettings& settings) {
    const std::int64_t count = parameter.count();
    LOCKSTEP_ASSERT(direction.count() == count && decision.count() == Decision::places);
    LOCKSTEP_ASSERT(groups.count() >= WeightGroups::words_for(count) && (working.empty() || working.count() == count));
    const Arguments<DirectionRule> at{
        parameter.fp32(), {}, direction.fp32(), groups.as<std::int32_t>(), decision.fp64(), count, false};
    update("step", DirectionRule{settings}, at, working, multiprocessors(), stream());
}

void CudaBackend::momentum_direction(Tensor direction, Tensor gradient, Tensor velocity, Tensor decision,
                                     float momentum, bool nesterov) {
    const std::int64_t count = direction.count();
    LOCKSTEP_ASSERT(gradient.count() == count && velocity.count() == count && decision.count() == Decision::places);
    map("momentum_direction", stream(), count,
        Operands<float, 2, float, 2>{{direction.fp32(), velocity.fp32()}, {gradient.fp32(), velocity.fp32()}},
        Direction{decision.fp64(), momentum, nesterov});
}

void CudaBackend::normalize(Tensor y, Tensor x, Tensor totals) {
    LOCKSTEP_ASSERT(y.count() == x.count() && totals.count() == 2);
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        map("normalize", stream(), y.count(), Operands<T, 1, float, 1>{{elements<T>(y)}, {x.fp32()}},
            Normalize{totals.fp64()});
    });
}

void CudaBackend::blend(Tensor y, Tensor x, float y_share, float x_share) {
    LOCKSTEP_ASSERT(y.type() == x.type() && y.count() == x.count());
    dispatch(y.type(), [&](auto element) {
        using T = decltype(element);
        map("blend", stream(), y.count(), Operands<T, 1, T, 2>{{elements<T>(y)}, {elements<T>(y), elements<T>(x)}},
            Blend{y_share, x_share});
    });
}

}  // namespace lockstep::kernels::cuda
