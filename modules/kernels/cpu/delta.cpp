// The gated delta rule: forward one task per (sequence, head); backward one per (sequence, key head), whose value heads
// add to the same gradients of queries and keys, in order.
#include "kernels/cpu/vector/delta.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/document_bounds.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"

namespace lockstep::kernels::cpu {
namespace {

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

// States that a head keeps: the first one is `initial`, or zero.
std::int64_t saved_states(const DeltaShape& shape) {
    return (shape.length - 1) / (delta_chunk * delta_group);
}

void check_inputs(const DeltaShape& shape, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y,
                  const Tensor& log_decay, const Tensor& strength) {
    const std::int64_t rows = shape.batch * shape.length;
    LOCKSTEP_ASSERT(q.count() == rows * shape.key_heads * shape.key_width && k.count() == q.count() &&
                    v.count() == rows * shape.heads * shape.value_width && y.count() == v.count() &&
                    log_decay.count() == rows * shape.heads && strength.count() == log_decay.count());
    for (const Tensor& tensor : {k, v, y}) LOCKSTEP_ASSERT(tensor.type() == q.type());
}

// Of all sequences and heads; may be empty.
void check_states(const DeltaShape& shape, const Tensor& states) {
    LOCKSTEP_ASSERT(states.empty() ||
                    states.count() == shape.batch * shape.heads * shape.key_width * shape.value_width);
}

// A head's columns of the rows of a sequence.
template <class T>
DeltaRows<T> head_in(const Tensor& matrix, const DeltaShape& shape, std::int64_t sequence, std::int64_t head,
                     std::int64_t width) {
    return {matrix.strided_as<T>() + sequence * shape.length * matrix.stride() + head * width, matrix.stride()};
}

// Between [B, H, fk, fv] and padded rows; empty tensors are zeros.
void load_state(const DeltaGeometry& g, float* state, const Tensor& states, std::int64_t pair) {
    if (states.empty()) {
        std::fill_n(state, g.state_count(), 0.0f);
        return;
    }
    const float* from = states.fp32() + pair * g.key_width * g.value_width;
    for (std::int64_t r = 0; r < g.key_width; ++r, from += g.value_width, state += g.padded_value) {
        std::copy_n(from, g.value_width, state);
        std::fill(state + g.value_width, state + g.padded_value, 0.0f);
    }
}
void store_state(const DeltaGeometry& g, const Tensor& states, std::int64_t pair, const float* state) {
    float* to = states.fp32() + pair * g.key_width * g.value_width;
    for (std::int64_t r = 0; r < g.key_width; ++r)
        std::copy_n(state + r * g.padded_value, g.value_width, to + r * g.value_width);
}

// Floats of a thread's scratch.
template <class T>
std::int64_t step_floats(const Delta<T>& delta, const DeltaGeometry& g) {
    return whole_blocks(g.key_width * g.value_width) + delta.step_scratch(g);
}
template <class T>
std::int64_t forward_floats(const Delta<T>& delta, const DeltaGeometry& g) {
    return g.state_count() + delta.forward_scratch(g);
}
template <class T>
std::int64_t backward_floats(const Delta<T>& delta, const DeltaGeometry& g, std::int64_t members) {
    return 2 * members * g.state_count() + delta.backward_scratch(g);
}

// -exp(log_rate), zeros, then partial sums of the gradients of log_rate and of the bias.
std::int64_t gate_floats(std::int64_t rows, std::int64_t heads) {
    return 2 * heads + row_sums_scratch_floats(rows, 2 * heads);
}

bool begins_document(const DocumentBounds& bounds, std::int64_t row, std::int64_t length) {
    return bounds.begin(row / length, row % length) == row % length;
}

void fill_rates(float* rates, const Tensor& log_rate) {
    for (std::int64_t h = 0; h < log_rate.count(); ++h) rates[h] = -std::exp(log_rate.fp32()[h]);
}

}  // namespace

void CpuBackend::delta_gates_forward(Tensor log_decay, Tensor strength, Tensor decay_logit, Tensor strength_logit,
                                     Tensor log_rate, Tensor decay_bias, std::int64_t length,
                                     const Documents& documents) {
    const std::int64_t heads = log_rate.count(), rows = log_decay.count() / heads;
    LOCKSTEP_ASSERT(length > 0 && rows % length == 0 && documents.cover(rows / length, length));
    const DocumentBounds bounds(documents);
    LOCKSTEP_ASSERT(decay_bias.count() == heads && decay_logit.size(-1) == heads && strength_logit.size(-1) == heads);
    LOCKSTEP_ASSERT(log_decay.count() == rows * heads && strength.count() == log_decay.count() &&
                    decay_logit.count() == log_decay.count() && strength_logit.count() == log_decay.count() &&
                    decay_logit.type() == strength_logit.type());
    float* const rates = scratch_->shared(heads);
    fill_rates(rates, log_rate);
    float *decays = log_decay.fp32(), *strengths = strength.fp32();
    const float* bias = decay_bias.fp32();
    with_element(decay_logit, [&]<class T>(T) {
        const auto forward = vector_.of<T>().delta->gates_forward;
        const T *decay = decay_logit.strided_as<T>(), *strong = strength_logit.strided_as<T>();
        parallel_for(rows, row_grain(4 * heads), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                forward(decays + r * heads, strengths + r * heads, decay + r * decay_logit.stride(),
                        strong + r * strength_logit.stride(), rates, bias, heads);
                if (begins_document(bounds, r, length)) std::fill_n(decays + r * heads, heads, forgetting_log_decay);
            }
        });
    });
}

void CpuBackend::delta_gates_backward(Tensor ddecay_logit, Tensor dstrength_logit, Tensor dlog_rate, Tensor ddecay_bias,
                                      Tensor dlog_decay, Tensor dstrength, Tensor decay_logit, Tensor strength,
                                      Tensor log_rate, Tensor decay_bias, std::int64_t length,
                                      const Documents& documents) {
    const std::int64_t heads = log_rate.count(), rows = strength.count() / heads;
    LOCKSTEP_ASSERT(length > 0 && rows % length == 0 && documents.cover(rows / length, length));
    const DocumentBounds bounds(documents);
    for (const Tensor& tensor : {dlog_rate, ddecay_bias, decay_bias}) LOCKSTEP_ASSERT(tensor.count() == heads);
    for (const Tensor& tensor : {ddecay_logit, dstrength_logit, decay_logit})
        LOCKSTEP_ASSERT(tensor.size(-1) == heads && tensor.rows() == rows && tensor.type() == decay_logit.type());
    for (const Tensor& tensor : {strength, dlog_decay, dstrength}) LOCKSTEP_ASSERT(tensor.count() == rows * heads);
    float *const rates = scratch_->shared(gate_floats(rows, heads)), *const no_gradient = rates + heads,
                 *const partials = no_gradient + heads;
    std::fill_n(no_gradient, heads, 0.0f);  // of the decay that a document's first token has not got
    fill_rates(rates, log_rate);
    const float *ddecays = dlog_decay.fp32(), *dstrengths = dstrength.fp32(), *strengths = strength.fp32();
    const float* bias = decay_bias.fp32();
    with_element(decay_logit, [&]<class T>(T) {
        const auto backward = vector_.of<T>().delta->gates_backward;
        const T* decay = decay_logit.strided_as<T>();
        T *ddecay = ddecay_logit.strided_as<T>(), *dstrong = dstrength_logit.strided_as<T>();
        sum_over_rows(rows, partials, {{dlog_rate.fp32(), heads}, {ddecay_bias.fp32(), heads}},
                      [&](std::int64_t first, std::int64_t last, float* partial) {
                          for (std::int64_t r = first; r < last; ++r)
                              backward(ddecay + r * ddecay_logit.stride(), dstrong + r * dstrength_logit.stride(),
                                       partial, partial + heads,
                                       begins_document(bounds, r, length) ? no_gradient : ddecays + r * heads,
                                       dstrengths + r * heads, decay + r * decay_logit.stride(), strengths + r * heads,
                                       rates, bias, heads);
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
        return std::max({step_floats(delta, g), forward_floats(delta, g),
                         backward_floats(delta, g, shape.heads / shape.key_heads)});
    };
    return threads * (type == Type::fp32 ? of_thread(float{}) : of_thread(bf16{})) +
           gate_floats(shape.batch * shape.length, shape.heads);
}

void CpuBackend::delta_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay, Tensor strength,
                               Tensor initial, Tensor final_state, const DeltaShape& shape) {
    const DeltaGeometry g = geometry_of(shape);
    check_inputs(shape, q, k, v, y, log_decay, strength);
    check_states(shape, initial);
    check_states(shape, final_state);
    LOCKSTEP_ASSERT(saved.empty() || saved.count() >= cpu::delta_saved_count(shape));
    // Backward reads the initial state.
    LOCKSTEP_ASSERT(saved.empty() || final_state.empty() || final_state.data() != initial.data());
    const std::int64_t members = shape.heads / shape.key_heads, state = g.key_width * g.value_width;
    with_element(q, [&]<class T>(T) {
        const Delta<T>& delta = *vector_.of<T>().delta;
        const bool one_token = shape.length == 1;
        scratch_->reserve(one_token ? step_floats(delta, g) : forward_floats(delta, g));
        parallel_for(shape.batch * shape.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* const memory = scratch_->of(thread);
            if (one_token && initial.empty()) std::fill_n(memory, state, 0.0f);
            for (std::int64_t pair = begin; pair < end; ++pair) {
                const std::int64_t sequence = pair / shape.heads, head = pair % shape.heads;
                const std::int64_t gate = sequence * shape.length * shape.heads + head;
                const auto queries = head_in<T>(q, shape, sequence, head / members, g.key_width),
                           keys = head_in<T>(k, shape, sequence, head / members, g.key_width),
                           values = head_in<T>(v, shape, sequence, head, g.value_width),
                           outputs = head_in<T>(y, shape, sequence, head, g.value_width);
                if (one_token) {
                    DeltaStep<T> task{};
                    task.q = queries.first;
                    task.k = keys.first;
                    task.v = values.first;
                    task.y = outputs.first;
                    task.log_decay = log_decay.fp32()[gate];
                    task.strength = strength.fp32()[gate];
                    task.before = initial.empty() ? memory : initial.fp32() + pair * state;
                    task.after = final_state.empty() ? nullptr : final_state.fp32() + pair * state;
                    delta.step(g, task, memory + whole_blocks(state));
                    continue;
                }
                DeltaForward<T> task{};
                task.q = queries;
                task.k = keys;
                task.v = values;
                task.y = outputs;
                task.log_decay = log_decay.fp32() + gate;
                task.strength = strength.fp32() + gate;
                task.state = memory;
                task.checkpoints =
                    saved.empty() ? nullptr : saved.fp32() + pair * saved_states(shape) * g.state_count();
                load_state(g, memory, initial, pair);
                task.last_update = !final_state.empty();
                delta.forward(g, task, memory + g.state_count());
                if (!final_state.empty()) store_state(g, final_state, pair, memory);
            }
        });
    });
}

void CpuBackend::delta_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dlog_decay, Tensor dstrength, Tensor dinitial,
                                Tensor dy, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor log_decay,
                                Tensor strength, Tensor initial, Tensor dfinal, const DeltaShape& shape) {
    const DeltaGeometry g = geometry_of(shape);
    check_inputs(shape, q, k, v, dy, log_decay, strength);
    check_inputs(shape, dq, dk, dv, dy, dlog_decay, dstrength);
    LOCKSTEP_ASSERT(dq.type() == q.type() && saved.count() >= cpu::delta_saved_count(shape));
    LOCKSTEP_ASSERT(dinitial.empty() == initial.empty());
    for (const Tensor& states : {initial, dinitial, dfinal}) check_states(shape, states);
    const std::int64_t members = shape.heads / shape.key_heads;
    with_element(q, [&]<class T>(T) {
        const Delta<T>& delta = *vector_.of<T>().delta;
        scratch_->reserve(backward_floats(delta, g, members));
        parallel_for(shape.batch * shape.key_heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float *const states = scratch_->of(thread), *const dstates = states + members * g.state_count();
            for (std::int64_t group = begin; group < end; ++group) {
                const std::int64_t sequence = group / shape.key_heads, key_head = group % shape.key_heads;
                const std::int64_t head = key_head * members, pair = sequence * shape.heads + head;
                const std::int64_t gate = sequence * shape.length * shape.heads + head;
                for (std::int64_t m = 0; m < members; ++m) {
                    load_state(g, states + m * g.state_count(), initial, pair + m);
                    load_state(g, dstates + m * g.state_count(), dfinal, pair + m);
                }
                DeltaBackward<T> task{};
                task.members = members;
                task.q = head_in<T>(q, shape, sequence, key_head, g.key_width);
                task.k = head_in<T>(k, shape, sequence, key_head, g.key_width);
                task.v = head_in<T>(v, shape, sequence, head, g.value_width);
                task.dy = head_in<T>(dy, shape, sequence, head, g.value_width);
                task.log_decay = log_decay.fp32() + gate;
                task.strength = strength.fp32() + gate;
                task.states = states;
                task.checkpoint_count = saved_states(shape) * g.state_count();
                task.checkpoints = saved.fp32() + pair * task.checkpoint_count;
                task.dq = head_in<T>(dq, shape, sequence, key_head, g.key_width);
                task.dk = head_in<T>(dk, shape, sequence, key_head, g.key_width);
                task.dv = head_in<T>(dv, shape, sequence, head, g.value_width);
                task.dlog_decay = dlog_decay.fp32() + gate;
                task.dstrength = dstrength.fp32() + gate;
                task.dstates = dstates;
                delta.backward(g, task, dstates + members * g.state_count());
                for (std::int64_t m = 0; m < members && !dinitial.empty(); ++m)
                    store_state(g, dinitial, pair + m, dstates + m * g.state_count());
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
