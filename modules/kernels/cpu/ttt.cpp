// The TTT layer's inner loop: one thread per (sequence, head). Gradients of the learned tensors are computed per
// sequence and then summed in order, independent of the number of threads.
#include "kernels/cpu/vector/ttt.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "device/parallel.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels::cpu {
namespace {

std::int64_t whole_blocks(std::int64_t count) {
    return (count + ttt_block - 1) / ttt_block * ttt_block;
}

TttGeometry geometry_of(const TttShape& shape) {
    LOCKSTEP_ASSERT(shape.batch > 0 && shape.length > 0 && shape.heads > 0 && shape.head_width > 0 &&
                    shape.mini_batch > 0);
    TttGeometry g{};
    g.mlp = shape.mlp;
    g.length = shape.length;
    g.mini_batch = shape.mini_batch;
    g.heads = shape.heads;
    g.width = shape.head_width;
    g.hidden = shape.hidden();
    g.padded_width = whole_blocks(g.width);
    g.padded_hidden = whole_blocks(g.hidden);
    g.padded_batch = whole_blocks(g.mini_batch);
    g.state_count = (g.width + 1) * g.padded_hidden + (g.mlp ? (g.hidden + 1) * g.padded_width : 0);
    return g;
}

std::int64_t saved_states(const TttGeometry& g) {
    const std::int64_t mini_batches = (g.length + g.mini_batch - 1) / g.mini_batch;
    return (mini_batches - 1) / ttt_group;
}

// The tensors of consecutive inner models: one per head, or one per sequence and head.
TttCarry models_of(const TttInner& inner) {
    return {inner.weight1, inner.bias1, inner.weight2, inner.bias2};
}
TttCarry models_of(const TttState& state) {
    return {state.weight1, state.bias1, state.weight2, state.bias2};
}

void check_models(const TttCarry& models, const TttGeometry& g, std::int64_t count) {
    LOCKSTEP_ASSERT(models.weight1.count() == count * g.width * g.hidden && models.bias1.count() == count * g.hidden);
    if (g.mlp)
        LOCKSTEP_ASSERT(models.weight2.count() == count * g.hidden * g.width &&
                        models.bias2.count() == count * g.width);
}

void check_norm(const TttInner& inner, const TttGeometry& g) {
    LOCKSTEP_ASSERT(inner.norm_weight.count() == g.heads * g.width && inner.norm_bias.count() == g.heads * g.width);
}

// A row of a matrix from a column on, with the way to the next row.
template <class T>
TttRows<T> row_of(const Tensor& matrix, std::int64_t row, std::int64_t column) {
    return {matrix.strided_as<T>() + row * matrix.stride() + column, matrix.stride()};
}
template <class T>
TttRows<T> head_in(const Tensor& matrix, const TttGeometry& g, std::int64_t sequence, std::int64_t head) {
    return row_of<T>(matrix, sequence * g.length, head * g.width);
}

void check_one_type(std::initializer_list<Tensor> tensors) {
    for (const Tensor& tensor : tensors) LOCKSTEP_ASSERT(tensor.type() == tensors.begin()->type());
}

void check_inner(const TttInner& inner, const TttGeometry& g) {
    check_models(models_of(inner), g, g.heads);
    check_norm(inner, g);
}

// Maps the rows of one model's tensors to their places in a state; body(tensor's floats, state's floats, width).
template <class Body>
void for_each_row(const TttGeometry& g, const TttCarry& models, std::int64_t model, float* state, Body&& body) {
    const auto rows = [&](const Tensor& tensor, std::int64_t count, std::int64_t width, std::int64_t padded) {
        float* data = tensor.fp32() + model * count * width;
        for (std::int64_t i = 0; i < count; ++i, state += padded) body(data + i * width, state, width, padded);
    };
    rows(models.weight1, g.width, g.hidden, g.padded_hidden);
    rows(models.bias1, 1, g.hidden, g.padded_hidden);
    if (!g.mlp) return;
    rows(models.weight2, g.hidden, g.width, g.padded_width);
    rows(models.bias2, 1, g.width, g.padded_width);
}

void load_state(const TttGeometry& g, float* state, const TttCarry& models, std::int64_t model) {
    for_each_row(g, models, model, state, [](const float* tensor, float* row, std::int64_t width, std::int64_t padded) {
        std::memcpy(row, tensor, static_cast<std::size_t>(width) * sizeof(float));
        std::fill(row + width, row + padded, 0.0f);
    });
}

void store_state(const TttGeometry& g, const TttCarry& models, std::int64_t model, float* state) {
    for_each_row(g, models, model, state, [](float* tensor, const float* row, std::int64_t width, std::int64_t) {
        std::memcpy(tensor, row, static_cast<std::size_t>(width) * sizeof(float));
    });
}

// Floats of the gradients of one sequence's inner model.
std::int64_t gradient_part(const TttGeometry& g) {
    return whole_blocks(g.state_count) + 2 * g.padded_width + g.padded_batch;
}

// The backward pass takes sequences in waves, which bounds the memory of partial gradients; the order of summation is
// fixed.
std::int64_t sequences_of_wave(const TttShape& shape, int threads) {
    return std::min(shape.batch, (4 * threads + shape.heads - 1) / shape.heads);
}

}  // namespace

void CpuBackend::step_size_forward(Tensor step_size, Tensor logit, Tensor bias, float scale) {
    const std::int64_t heads = bias.count(), rows = step_size.count() / heads;
    LOCKSTEP_ASSERT(logit.count() == step_size.count() && logit.size(-1) == heads);
    float* out = step_size.fp32();
    const float* add = bias.fp32();
    with_element(logit, [&]<class T>(T) {
        const Elementwise<T>& vector = *vector_.of<T>().elementwise;
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        const T* in = logit.strided_as<T>();
        parallel_for(rows, row_grain(heads), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r) {
                std::copy_n(add, heads, out + r * heads);
                vector.add_to(out + r * heads, in + r * logit.stride(), heads);
            }
            ttt.step_size_forward(out + first * heads, out + first * heads, scale, (last - first) * heads);
        });
    });
}

void CpuBackend::step_size_backward(Tensor dlogit, Tensor dstep_size, Tensor step_size, float scale) {
    LOCKSTEP_ASSERT(dlogit.count() == step_size.count() && dstep_size.count() == step_size.count());
    const std::int64_t heads = dlogit.size(-1);
    const float *gradient = dstep_size.fp32(), *step = step_size.fp32();
    with_element(dlogit, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        T* out = dlogit.strided_as<T>();
        parallel_for(dlogit.rows(), row_grain(heads), [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t r = first; r < last; ++r)
                ttt.step_size_backward(out + r * dlogit.stride(), gradient + r * heads, step + r * heads, scale, heads);
        });
    });
}

void CpuBackend::token_scale_forward(Tensor token_scale, Tensor delta) {
    LOCKSTEP_ASSERT(token_scale.count() == delta.count());
    float* out = token_scale.fp32();
    const float* in = delta.fp32();
    for (std::int64_t i = 0; i < delta.count(); ++i) {
        const float value = 1.0f / static_cast<float>(i + 1) + in[i];
        out[i] = value < 0.0f ? 0.0f : value;  // keeps NaN
    }
}

void CpuBackend::token_scale_backward(Tensor ddelta, Tensor dtoken_scale, Tensor delta) {
    LOCKSTEP_ASSERT(ddelta.count() == delta.count() && dtoken_scale.count() == delta.count());
    float* out = ddelta.fp32();
    const float *gradient = dtoken_scale.fp32(), *in = delta.fp32();
    for (std::int64_t i = 0; i < delta.count(); ++i)
        if (!(1.0f / static_cast<float>(i + 1) + in[i] < 0.0f)) out[i] += gradient[i];
}

std::int64_t CpuBackend::ttt_saved_count(const TttShape& shape, Type) const {
    return cpu::ttt_saved_count(shape);
}

std::int64_t ttt_saved_count(const TttShape& shape) {
    const TttGeometry g = geometry_of(shape);
    // Never 0: an empty tensor means that no backward follows.
    return std::max<std::int64_t>(shape.batch * shape.heads * saved_states(g) * g.state_count, 1);
}

std::int64_t ttt_scratch_floats(const TttShape& shape, Type type, int threads) {
    const TttGeometry g = geometry_of(shape);
    const auto of_thread = [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_functions().of<T>().ttt;
        return whole_blocks(g.state_count) + std::max(ttt.forward_scratch(g), ttt.backward_scratch(g));
    };
    return threads * (type == Type::fp32 ? of_thread(float{}) : of_thread(bf16{})) +
           sequences_of_wave(shape, threads) * g.heads * gradient_part(g);
}

void CpuBackend::ttt_forward(Tensor y, Tensor saved, Tensor q, Tensor k, Tensor v, Tensor step_size, Tensor token_scale,
                             const TttInner& inner, const TttCarry& initial, const TttCarry& final_state,
                             const TttShape& shape) {
    const TttGeometry g = geometry_of(shape);
    const std::int64_t rows = shape.batch * shape.length, stride = g.heads * g.width;
    LOCKSTEP_ASSERT(q.count() == rows * stride && k.count() == q.count() && v.count() == q.count() &&
                    y.count() == q.count() && step_size.count() == rows * g.heads &&
                    token_scale.count() == g.mini_batch);
    check_one_type({q, k, v, y});
    check_inner(inner, g);
    if (!initial.empty()) check_models(initial, g, shape.batch * g.heads);
    if (!final_state.empty()) {
        check_models(final_state, g, shape.batch * g.heads);
        LOCKSTEP_ASSERT(g.length % g.mini_batch == 0);
    }
    if (!saved.empty()) LOCKSTEP_ASSERT(saved.count() >= cpu::ttt_saved_count(shape));
    const TttCarry start = initial.empty() ? models_of(inner) : initial;
    with_element(q, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        scratch_->reserve(whole_blocks(g.state_count) + ttt.forward_scratch(g));
        parallel_for(shape.batch * g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* state = scratch_->of(thread);
            for (std::int64_t pair = begin; pair < end; ++pair) {
                const std::int64_t sequence = pair / g.heads, head = pair % g.heads;
                load_state(g, state, start, initial.empty() ? head : pair);
                TttForward<T> task{};
                task.q = head_in<T>(q, g, sequence, head);
                task.k = head_in<T>(k, g, sequence, head);
                task.v = head_in<T>(v, g, sequence, head);
                task.y = head_in<T>(y, g, sequence, head);
                task.step_size = step_size.fp32() + sequence * g.length * g.heads + head;
                task.token_scale = token_scale.fp32();
                task.norm_weight = inner.norm_weight.fp32() + head * g.width;
                task.norm_bias = inner.norm_bias.fp32() + head * g.width;
                task.state = state;
                task.checkpoints = saved.empty() ? nullptr : saved.fp32() + pair * saved_states(g) * g.state_count;
                task.last_update = !final_state.empty();
                ttt.forward(g, task, state + whole_blocks(g.state_count));
                if (!final_state.empty()) store_state(g, final_state, pair, state);
            }
        });
    });
}

void CpuBackend::ttt_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dstep_size, Tensor dtoken_scale,
                              const TttInner& dinner, const TttCarry& dinitial, Tensor dy, Tensor saved, Tensor q,
                              Tensor k, Tensor v, Tensor step_size, Tensor token_scale, const TttInner& inner,
                              const TttCarry& initial, const TttCarry& dfinal, const TttShape& shape) {
    const TttGeometry g = geometry_of(shape);
    const std::int64_t rows = shape.batch * shape.length, stride = g.heads * g.width;
    for (const Tensor& tensor : {dq, dk, dv, dy, q, k, v}) LOCKSTEP_ASSERT(tensor.count() == rows * stride);
    LOCKSTEP_ASSERT(step_size.count() == rows * g.heads && dstep_size.count() == step_size.count() &&
                    token_scale.count() == g.mini_batch && dtoken_scale.count() == g.mini_batch &&
                    saved.count() >= cpu::ttt_saved_count(shape));
    check_one_type({dq, dk, dv, dy, q, k, v});
    check_inner(inner, g);
    check_norm(dinner, g);
    LOCKSTEP_ASSERT(dinitial.empty() == initial.empty());
    if (initial.empty()) {
        check_models(models_of(dinner), g, g.heads);
    } else {
        check_models(initial, g, shape.batch * g.heads);
        check_models(dinitial, g, shape.batch * g.heads);
    }
    if (!dfinal.empty()) {
        check_models(dfinal, g, shape.batch * g.heads);
        LOCKSTEP_ASSERT(g.length % g.mini_batch == 0);
    }
    const TttCarry start = initial.empty() ? models_of(inner) : initial;
    with_element(q, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        const std::int64_t state_room = whole_blocks(g.state_count);
        scratch_->reserve(state_room + ttt.backward_scratch(g));

        const std::int64_t part_count = gradient_part(g), wave = sequences_of_wave(shape, threads());
        float* const parts = scratch_->shared(wave * g.heads * part_count);
        for (std::int64_t first_sequence = 0; first_sequence < shape.batch; first_sequence += wave) {
            const std::int64_t sequences = std::min(wave, shape.batch - first_sequence);
            parallel_for(sequences * g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
                float* state = scratch_->of(thread);
                for (std::int64_t pair = begin; pair < end; ++pair) {
                    const std::int64_t sequence = first_sequence + pair / g.heads, head = pair % g.heads;
                    const std::int64_t step_at = sequence * g.length * g.heads + head;
                    const std::int64_t carried = sequence * g.heads + head;
                    load_state(g, state, start, initial.empty() ? head : carried);
                    TttBackward<T> task{};
                    task.dy = head_in<T>(dy, g, sequence, head);
                    task.q = head_in<T>(q, g, sequence, head);
                    task.k = head_in<T>(k, g, sequence, head);
                    task.v = head_in<T>(v, g, sequence, head);
                    task.step_size = step_size.fp32() + step_at;
                    task.token_scale = token_scale.fp32();
                    task.norm_weight = inner.norm_weight.fp32() + head * g.width;
                    task.norm_bias = inner.norm_bias.fp32() + head * g.width;
                    task.state = state;
                    task.checkpoints = saved.fp32() + carried * saved_states(g) * g.state_count;
                    task.dq = head_in<T>(dq, g, sequence, head);
                    task.dk = head_in<T>(dk, g, sequence, head);
                    task.dv = head_in<T>(dv, g, sequence, head);
                    task.dstep_size = dstep_size.fp32() + step_at;
                    task.dstate = parts + pair * part_count;
                    task.dnorm_weight = task.dstate + state_room;
                    task.dnorm_bias = task.dnorm_weight + g.padded_width;
                    task.dtoken_scale = task.dnorm_bias + g.padded_width;
                    if (dfinal.empty())
                        std::fill(task.dstate, task.dstate + g.state_count, 0.0f);
                    else
                        load_state(g, task.dstate, dfinal, carried);
                    ttt.backward(g, task, state + state_room);
                    if (!dinitial.empty()) store_state(g, dinitial, carried, task.dstate);
                }
            });
            const auto add = [](float* to, const float* from, std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
            };
            parallel_for(g.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t head = begin; head < end; ++head)
                    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
                        float* part = parts + (sequence * g.heads + head) * part_count;
                        if (dinitial.empty())
                            for_each_row(g, models_of(dinner), head, part,
                                         [&](float* tensor, const float* row, std::int64_t width, std::int64_t) {
                                             add(tensor, row, width);
                                         });
                        add(dinner.norm_weight.fp32() + head * g.width, part + state_room, g.width);
                        add(dinner.norm_bias.fp32() + head * g.width, part + state_room + g.padded_width, g.width);
                    }
            });
            for (std::int64_t pair = 0; pair < sequences * g.heads; ++pair)
                add(dtoken_scale.fp32(), parts + pair * part_count + state_room + 2 * g.padded_width, g.mini_batch);
        }
    });
}

void CpuBackend::ttt_decode(Tensor y, const TttState& state, Tensor q, Tensor k, Tensor v, Tensor step_size,
                            Tensor token_scale, const TttInner& inner, const TttShape& shape, std::int64_t position) {
    const TttGeometry g = geometry_of(shape);
    LOCKSTEP_ASSERT(shape.batch == 1 && position >= 0 && q.count() == g.length * g.heads * g.width &&
                    k.count() == q.count() && v.count() == q.count() && y.count() == q.count() &&
                    step_size.count() == g.length * g.heads && token_scale.count() == g.mini_batch);
    check_one_type({q, k, v, y});
    check_inner(inner, g);
    with_element(q, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        const std::int64_t state_room = whole_blocks(g.state_count);
        scratch_->reserve(std::max(state_room + ttt.forward_scratch(g), ttt.decode_scratch(g)));
        parallel_for(g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* scratch = scratch_->of(thread);
            for (std::int64_t head = begin; head < end; ++head) {
                const std::int64_t narrow = head * g.width, wide = head * g.hidden;
                const std::int64_t matrix = narrow * g.hidden;
                TttDecode task{};
                task.weight1 = state.weight1.fp32() + matrix;
                task.bias1 = state.bias1.fp32() + wide;
                task.weight1_sum = state.weight1_sum.fp32() + matrix;
                task.bias1_sum = state.bias1_sum.fp32() + wide;
                if (g.mlp) {
                    task.weight2 = state.weight2.fp32() + matrix;
                    task.bias2 = state.bias2.fp32() + narrow;
                    task.weight2_sum = state.weight2_sum.fp32() + matrix;
                    task.bias2_sum = state.bias2_sum.fp32() + narrow;
                }
                task.norm_weight = inner.norm_weight.fp32() + narrow;
                task.norm_bias = inner.norm_bias.fp32() + narrow;
                std::int64_t token = 0;
                while (token < g.length) {
                    const std::int64_t index = (position + token) % g.mini_batch;
                    const std::int64_t whole = (g.length - token) / g.mini_batch * g.mini_batch;
                    if (index == 0 && whole > 0) {
                        // Whole mini-batches, as in a prompt: the parallel form.
                        TttGeometry part = g;
                        part.length = whole;
                        load_state(g, scratch, models_of(state), head);
                        TttForward<T> pass{};
                        pass.q = row_of<T>(q, token, narrow);
                        pass.k = row_of<T>(k, token, narrow);
                        pass.v = row_of<T>(v, token, narrow);
                        pass.y = row_of<T>(y, token, narrow);
                        pass.step_size = step_size.fp32() + token * g.heads + head;
                        pass.token_scale = token_scale.fp32();
                        pass.norm_weight = task.norm_weight;
                        pass.norm_bias = task.norm_bias;
                        pass.state = scratch;
                        pass.last_update = true;
                        ttt.forward(part, pass, scratch + state_room);
                        store_state(g, models_of(state), head, scratch);
                        token += whole;
                        continue;
                    }
                    const float scale = token_scale.fp32()[index];
                    ttt.decode(g, task, row_of<T>(y, token, narrow).first, row_of<T>(q, token, narrow).first,
                               row_of<T>(k, token, narrow).first, row_of<T>(v, token, narrow).first,
                               step_size.fp32()[token * g.heads + head], scale, scratch);
                    ++token;
                    if (index + 1 < g.mini_batch) continue;
                    ttt.decode_commit(task.weight1, task.weight1_sum, scale, g.width * g.hidden);
                    ttt.decode_commit(task.bias1, task.bias1_sum, scale, g.hidden);
                    if (!g.mlp) continue;
                    ttt.decode_commit(task.weight2, task.weight2_sum, scale, g.width * g.hidden);
                    ttt.decode_commit(task.bias2, task.bias2_sum, scale, g.width);
                }
            }
        });
    });
}

}  // namespace lockstep::kernels::cpu
