// Gated DeltaNet: the recurrence's tasks are the pairs of a sequence and a head, of the key heads in backward, so that
// results do not depend on the number of threads.
#include "kernels/cpu/vector/delta.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/parallel.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"

namespace lockstep::kernels::cpu {
namespace {

// Sequences of so few tokens are cheaper one token after the other.
constexpr std::int64_t short_length = 3;

std::int64_t whole_blocks(std::int64_t count) {
    return (count + delta_block - 1) / delta_block * delta_block;
}

DeltaGeometry geometry_of(const DeltaShape& shape) {
    LOCKSTEP_ASSERT(shape.valid());
    return {shape.length,
            shape.heads,
            shape.key_width,
            shape.value_width,
            whole_blocks(shape.key_width),
            whole_blocks(shape.value_width)};
}

std::int64_t saved_states(const DeltaShape& shape) {
    return (shape.length - 1) / (delta_chunk * delta_group);
}

void check(const DeltaShape& s, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
           const Tensor& log_decay, const Tensor& strength, std::initializer_list<Tensor> states) {
    const std::int64_t rows = s.batch * s.length, keys = rows * s.key_heads * s.key_width;
    LOCKSTEP_ASSERT(q.count() == keys && k.count() == keys);
    LOCKSTEP_ASSERT(v.count() == rows * s.heads * s.value_width && y.count() == v.count());
    LOCKSTEP_ASSERT(k.type() == q.type() && v.type() == q.type() && y.type() == q.type());
    LOCKSTEP_ASSERT(log_decay.count() == rows * s.heads && strength.count() == log_decay.count());
    for (const Tensor& state : states)
        LOCKSTEP_ASSERT(state.empty() || state.count() == s.batch * s.heads * s.key_width * s.value_width);
}

// The columns from `column` on, of a sequence's rows.
template <class T>
DeltaRows<T> rows_of(const Tensor& matrix, const DeltaShape& s, std::int64_t sequence, std::int64_t column) {
    return {matrix.strided_as<T>() + sequence * s.length * matrix.stride() + column, matrix.stride()};
}

// Between a state's tensor, zeros if it is empty, and padded rows.
void load_state(const DeltaGeometry& g, float* state, const Tensor& tensor, std::int64_t number) {
    if (tensor.empty()) {
        std::fill_n(state, g.state_count(), 0.0f);
        return;
    }
    const float* from = tensor.fp32() + number * g.key_width * g.value_width;
    for (std::int64_t r = 0; r < g.key_width; ++r, state += g.padded_value, from += g.value_width) {
        std::copy_n(from, g.value_width, state);
        std::fill(state + g.value_width, state + g.padded_value, 0.0f);
    }
}
void store_state(const DeltaGeometry& g, const Tensor& tensor, std::int64_t number, const float* state) {
    if (tensor.empty()) return;
    float* to = tensor.fp32() + number * g.key_width * g.value_width;
    for (std::int64_t r = 0; r < g.key_width; ++r, state += g.padded_value, to += g.value_width)
        std::copy_n(state, g.value_width, to);
}

// Floats of each thread.
template <class T>
std::int64_t forward_floats(const Delta<T>& delta, const DeltaGeometry& g) {
    return whole_blocks(g.state_count()) + std::max(delta.forward_scratch(g), delta.step_scratch(g));
}
template <class T>
std::int64_t backward_floats(const Delta<T>& delta, const DeltaGeometry& g, std::int64_t members) {
    return 2 * whole_blocks(members * g.state_count()) + delta.backward_scratch(g);
}

// -exp(log_rate), which the gates of all rows use.
std::vector<float> rates_of(const Tensor& log_rate) {
    std::vector<float> rates(static_cast<std::size_t>(log_rate.count()));
    std::transform(log_rate.fp32(), log_rate.fp32() + log_rate.count(), rates.begin(),
                   [](float value) { return -std::exp(value); });
    return rates;
}

}  // namespace

void CpuBackend::delta_gates_forward(Tensor log_decay, Tensor strength, Tensor decay_logit, Tensor strength_logit,
                                     Tensor log_rate, Tensor decay_bias) {
    const std::int64_t heads = log_rate.count(), rows = decay_logit.rows();
    LOCKSTEP_ASSERT(decay_bias.count() == heads && decay_logit.size(-1) == heads && strength_logit.size(-1) == heads);
    LOCKSTEP_ASSERT(strength_logit.rows() == rows && log_decay.count() == rows * heads &&
                    strength.count() == rows * heads && strength_logit.type() == decay_logit.type());
    const std::vector<float> rates = rates_of(log_rate);
    float *const decays = log_decay.fp32(), *const strengths = strength.fp32();
    const float* const bias = decay_bias.fp32();
    with_element(decay_logit, [&]<class T>(T) {
        const auto gates = vector_.of<T>().delta->gates_forward;
        const T *const of_decay = decay_logit.strided_as<T>(), *const of_strength = strength_logit.strided_as<T>();
        parallel_for(rows, row_grain(heads), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r)
                gates(decays + r * heads, strengths + r * heads, of_decay + r * decay_logit.stride(),
                      of_strength + r * strength_logit.stride(), rates.data(), bias, heads);
        });
    });
}

void CpuBackend::delta_gates_backward(Tensor ddecay_logit, Tensor dstrength_logit, Tensor dlog_rate, Tensor ddecay_bias,
                                      Tensor dlog_decay, Tensor dstrength, Tensor decay_logit, Tensor strength,
                                      Tensor log_rate, Tensor decay_bias) {
    const std::int64_t heads = log_rate.count(), rows = decay_logit.rows();
    LOCKSTEP_ASSERT(decay_bias.count() == heads && dlog_rate.count() == heads && ddecay_bias.count() == heads &&
                    decay_logit.size(-1) == heads);
    for (const Tensor& tensor : {ddecay_logit, dstrength_logit, dlog_decay, dstrength, strength})
        LOCKSTEP_ASSERT(tensor.count() == rows * heads);
    LOCKSTEP_ASSERT(ddecay_logit.type() == decay_logit.type() && dstrength_logit.type() == decay_logit.type());
    const std::vector<float> rates = rates_of(log_rate);
    const float *const ddecays = dlog_decay.fp32(), *const dstrengths = dstrength.fp32();
    const float *const strengths = strength.fp32(), *const bias = decay_bias.fp32();
    float* const partials = scratch_->shared(row_sums_scratch_floats(rows, 2 * heads));
    with_element(decay_logit, [&]<class T>(T) {
        const auto gates = vector_.of<T>().delta->gates_backward;
        const T* const of_decay = decay_logit.strided_as<T>();
        T *const to_decay = ddecay_logit.strided_as<T>(), *const to_strength = dstrength_logit.strided_as<T>();
        sum_over_rows(rows, partials, {{dlog_rate.fp32(), heads}, {ddecay_bias.fp32(), heads}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          for (std::int64_t r = first; r < last; ++r)
                              gates(to_decay + r * ddecay_logit.stride(), to_strength + r * dstrength_logit.stride(),
                                    partial, partial + heads, ddecays + r * heads, dstrengths + r * heads,
                                    of_decay + r * decay_logit.stride(), strengths + r * heads, rates.data(), bias,
                                    heads);
                      });
    });
}

std::int64_t CpuBackend::delta_saved_count(const DeltaShape& shape, Type) const {
    return cpu::delta_saved_count(shape);
}

std::int64_t delta_saved_count(const DeltaShape& shape) {
    // Never 0: an empty tensor means that no backward follows.
    return std::max<std::int64_t>(shape.batch * shape.heads * saved_states(shape) * geometry_of(shape).state_count(),
                                  1);
}

std::int64_t delta_scratch_floats(const DeltaShape& shape, Type type, int threads) {
    const DeltaGeometry g = geometry_of(shape);
    const auto of_thread = [&]<class T>(T) {
        const Delta<T>& delta = *vector_functions().of<T>().delta;
        return std::max(forward_floats(delta, g), backward_floats(delta, g, shape.heads / shape.key_heads));
    };
    return threads * (type == Type::fp32 ? of_thread(float{}) : of_thread(bf16{}));
}

void CpuBackend::delta_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor strength,
                               Tensor initial, Tensor final_state, const DeltaShape& shape) {
    const DeltaGeometry g = geometry_of(shape);
    check(shape, q, k, v, y, log_decay, strength, {initial, final_state});
    LOCKSTEP_ASSERT(saved.empty() || saved.count() >= cpu::delta_saved_count(shape));
    const std::int64_t sharing = shape.heads / shape.key_heads, dense_count = g.key_width * g.value_width;
    with_element(q, [&]<class T>(T) {
        const Delta<T>& delta = *vector_.of<T>().delta;
        scratch_->reserve(forward_floats(delta, g));
        parallel_for(shape.batch * g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float *const state = scratch_->of(thread), *const rest = state + whole_blocks(g.state_count());
            for (std::int64_t pair = begin; pair < end; ++pair) {
                const std::int64_t sequence = pair / g.heads, head = pair % g.heads, key_head = head / sharing;
                DeltaForward<T> task{};
                task.q = rows_of<T>(q, shape, sequence, key_head * g.key_width);
                task.k = rows_of<T>(k, shape, sequence, key_head * g.key_width);
                task.v = rows_of<T>(v, shape, sequence, head * g.value_width);
                task.y = rows_of<T>(y, shape, sequence, head * g.value_width);
                task.log_decay = log_decay.fp32() + sequence * g.length * g.heads + head;
                task.strength = strength.fp32() + sequence * g.length * g.heads + head;
                if (g.length <= short_length) {
                    float* const after = final_state.empty() ? state : final_state.fp32() + pair * dense_count;
                    const float* before = initial.empty() ? after : initial.fp32() + pair * dense_count;
                    if (initial.empty()) std::fill_n(after, dense_count, 0.0f);
                    for (std::int64_t t = 0; t < g.length; ++t, before = after)
                        delta.step(g,
                                   {task.q.row(t), task.k.row(t), task.v.row(t), task.y.row(t),
                                    task.log_decay[t * g.heads], task.strength[t * g.heads], before, after},
                                   rest);
                    continue;
                }
                load_state(g, state, initial, pair);
                task.state = state;
                task.checkpoints =
                    saved.empty() ? nullptr : saved.fp32() + pair * saved_states(shape) * g.state_count();
                delta.forward(g, task, rest);
                store_state(g, final_state, pair, state);
            }
        });
    });
}

void CpuBackend::delta_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dlog_decay, Tensor dstrength, Tensor dinitial,
                                Tensor dy, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay,
                                Tensor strength, Tensor initial, Tensor dfinal, const DeltaShape& shape) {
    const DeltaGeometry g = geometry_of(shape);
    check(shape, q, k, v, dy, log_decay, strength, {initial, dfinal});
    check(shape, dq, dk, dv, dy, dlog_decay, dstrength, {dinitial});
    LOCKSTEP_ASSERT(dinitial.empty() == initial.empty() && saved.count() >= cpu::delta_saved_count(shape));
    const std::int64_t members = shape.heads / shape.key_heads, checkpoints = saved_states(shape) * g.state_count();
    with_element(q, [&]<class T>(T) {
        const Delta<T>& delta = *vector_.of<T>().delta;
        scratch_->reserve(backward_floats(delta, g, members));
        // One task a key head: the heads that share it add to the same dq and dk, in order and in fp32.
        parallel_for(shape.batch * shape.key_heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* const states = scratch_->of(thread);
            float* const dstates = states + whole_blocks(members * g.state_count());
            for (std::int64_t item = begin; item < end; ++item) {
                const std::int64_t sequence = item / shape.key_heads, key_head = item % shape.key_heads;
                const std::int64_t head = key_head * members, pair = sequence * g.heads + head;
                const std::int64_t keys = key_head * g.key_width, values = head * g.value_width;
                const std::int64_t gate = sequence * g.length * g.heads + head;
                for (std::int64_t member = 0; member < members; ++member) {
                    load_state(g, states + member * g.state_count(), initial, pair + member);
                    load_state(g, dstates + member * g.state_count(), dfinal, pair + member);
                }
                DeltaBackward<T> task{};
                task.members = members;
                task.q = rows_of<T>(q, shape, sequence, keys);
                task.k = rows_of<T>(k, shape, sequence, keys);
                task.v = rows_of<T>(v, shape, sequence, values);
                task.dy = rows_of<T>(dy, shape, sequence, values);
                task.log_decay = log_decay.fp32() + gate;
                task.strength = strength.fp32() + gate;
                task.states = states;
                task.checkpoints = saved.fp32() + pair * checkpoints;
                task.checkpoint_count = checkpoints;
                task.dq = rows_of<T>(dq, shape, sequence, keys);
                task.dk = rows_of<T>(dk, shape, sequence, keys);
                task.dv = rows_of<T>(dv, shape, sequence, values);
                task.dlog_decay = dlog_decay.fp32() + gate;
                task.dstrength = dstrength.fp32() + gate;
                task.dstates = dstates;
                delta.backward(g, task, dstates + whole_blocks(members * g.state_count()));
                for (std::int64_t member = 0; member < members; ++member)
                    store_state(g, dinitial, pair + member, dstates + member * g.state_count());
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
