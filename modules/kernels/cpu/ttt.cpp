// The TTT layer's inner loop: one thread per (sequence, head). Gradients of the learned tensors are computed per
// sequence and then summed in order, independent of the number of threads.
#include "kernels/cpu/vector/ttt.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "device/parallel.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/document_bounds.hpp"
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
// Of a pair's saved states, how many lie before those of the piece that begins at this token: two of a sequence are
// never closer than ttt_group mini-batches, so that the token of a state gives it a place of its own.
std::int64_t saved_before(const TttGeometry& g, std::int64_t begin) {
    return begin / (ttt_group * g.mini_batch);
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

// The tokens of one document in a sequence, or its only piece: a scan of its own.
struct Piece {
    std::int64_t begin, end;  // of the sequence's tokens
    bool carried;             // whether it starts from `initial`
};

class Pieces {
  public:
    Pieces(const TttShape& shape, bool initial) : bounds_(shape.documents), length_(shape.length), given_(initial) {
        LOCKSTEP_ASSERT(shape.documents.cover(shape.batch, shape.length));
    }
    Piece from(std::int64_t sequence, std::int64_t begin) const {
        if (joined()) return {0, length_, given_};
        return {begin, std::min(bounds_.end(sequence, begin), length_), carried(sequence, begin)};
    }
    Piece before(std::int64_t sequence, std::int64_t end) const {
        if (joined()) return {0, length_, given_};
        const std::int64_t begin = std::max<std::int64_t>(bounds_.begin(sequence, end - 1), 0);
        return {begin, end, carried(sequence, begin)};
    }
    bool joined() const { return bounds_.joined(); }

  private:
    bool carried(std::int64_t sequence, std::int64_t begin) const {
        return given_ && begin == 0 && bounds_.begin(sequence, 0) < 0;
    }

    DocumentBounds bounds_;
    std::int64_t length_;
    bool given_;
};

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

void add_to(float* to, const float* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
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
        // Backward's gradients of one document are there only if several share a sequence.
        return whole_blocks(g.state_count) +
               std::max(ttt.forward_scratch(g), ttt.backward_scratch(g) + gradient_part(g));
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
        LOCKSTEP_ASSERT(!shape.documents.joined() || g.length % g.mini_batch == 0);
    }
    if (!saved.empty()) LOCKSTEP_ASSERT(saved.count() >= cpu::ttt_saved_count(shape));
    const Pieces pieces(shape, !initial.empty());
    with_element(q, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        scratch_->reserve(whole_blocks(g.state_count) + ttt.forward_scratch(g));
        parallel_for(shape.batch * g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
            float* state = scratch_->of(thread);
            for (std::int64_t pair = begin; pair < end; ++pair) {
                const std::int64_t sequence = pair / g.heads, head = pair % g.heads;
                for (std::int64_t token = 0; token < g.length;) {
                    const Piece piece = pieces.from(sequence, token);
                    const std::int64_t row = sequence * g.length + token;
                    const bool last = piece.end == g.length;
                    TttGeometry part = g;
                    part.length = piece.end - token;
                    load_state(g, state, piece.carried ? initial : models_of(inner), piece.carried ? pair : head);
                    TttForward<T> task{};
                    task.q = row_of<T>(q, row, head * g.width);
                    task.k = row_of<T>(k, row, head * g.width);
                    task.v = row_of<T>(v, row, head * g.width);
                    task.y = row_of<T>(y, row, head * g.width);
                    task.step_size = step_size.fp32() + row * g.heads + head;
                    task.token_scale = token_scale.fp32();
                    task.norm_weight = inner.norm_weight.fp32() + head * g.width;
                    task.norm_bias = inner.norm_bias.fp32() + head * g.width;
                    task.state = state;
                    if (!saved.empty())
                        task.checkpoints =
                            saved.fp32() + (pair * saved_states(g) + saved_before(g, token)) * g.state_count;
                    task.last_update = last && !final_state.empty();
                    ttt.forward(part, task, state + whole_blocks(g.state_count));
                    if (task.last_update) store_state(g, final_state, pair, state);
                    token = piece.end;
                }
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
    const Pieces pieces(shape, !initial.empty());
    const bool learns = initial.empty() || !pieces.joined();  // whether pieces start from the learned model
    if (learns) check_models(models_of(dinner), g, g.heads);
    if (!initial.empty()) {
        check_models(initial, g, shape.batch * g.heads);
        check_models(dinitial, g, shape.batch * g.heads);
    }
    if (!dfinal.empty()) {
        check_models(dfinal, g, shape.batch * g.heads);
        LOCKSTEP_ASSERT(!pieces.joined() || g.length % g.mini_batch == 0);
    }
    with_element(q, [&]<class T>(T) {
        const Ttt<T>& ttt = *vector_.of<T>().ttt;
        const std::int64_t state_room = whole_blocks(g.state_count), part_count = gradient_part(g);
        const std::int64_t piece_room = pieces.joined() ? 0 : part_count;
        scratch_->reserve(state_room + piece_room + ttt.backward_scratch(g));

        const std::int64_t wave = sequences_of_wave(shape, threads());
        float* const parts = scratch_->shared(wave * g.heads * part_count);
        for (std::int64_t first_sequence = 0; first_sequence < shape.batch; first_sequence += wave) {
            const std::int64_t sequences = std::min(wave, shape.batch - first_sequence);
            parallel_for(sequences * g.heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
                float* const state = scratch_->of(thread);
                for (std::int64_t pair = begin; pair < end; ++pair) {
                    const std::int64_t sequence = first_sequence + pair / g.heads, head = pair % g.heads;
                    const std::int64_t carried = sequence * g.heads + head;
                    float* const sum = parts + pair * part_count;
                    // The gradients of a piece; a sequence of several adds them up, but for that of `initial`.
                    float* const part = pieces.joined() ? sum : state + state_room;
                    if (!pieces.joined()) {
                        std::fill(sum, sum + part_count, 0.0f);
                        std::fill(part, part + part_count, 0.0f);
                        if (!dinitial.empty()) store_state(g, dinitial, carried, part);
                    }
                    for (std::int64_t token = g.length; token > 0;) {
                        const Piece piece = pieces.before(sequence, token);
                        const std::int64_t row = sequence * g.length + piece.begin, column = head * g.width;
                        TttGeometry of_piece = g;
                        of_piece.length = token - piece.begin;
                        load_state(g, state, piece.carried ? initial : models_of(inner),
                                   piece.carried ? carried : head);
                        TttBackward<T> task{};
                        task.dy = row_of<T>(dy, row, column);
                        task.q = row_of<T>(q, row, column);
                        task.k = row_of<T>(k, row, column);
                        task.v = row_of<T>(v, row, column);
                        task.step_size = step_size.fp32() + row * g.heads + head;
                        task.token_scale = token_scale.fp32();
                        task.norm_weight = inner.norm_weight.fp32() + column;
                        task.norm_bias = inner.norm_bias.fp32() + column;
                        task.state = state;
                        task.checkpoints =
                            saved.fp32() + (carried * saved_states(g) + saved_before(g, piece.begin)) * g.state_count;
                        task.dq = row_of<T>(dq, row, column);
                        task.dk = row_of<T>(dk, row, column);
                        task.dv = row_of<T>(dv, row, column);
                        task.dstep_size = dstep_size.fp32() + row * g.heads + head;
                        task.dstate = part;
                        task.dnorm_weight = task.dstate + state_room;
                        task.dnorm_bias = task.dnorm_weight + g.padded_width;
                        task.dtoken_scale = task.dnorm_bias + g.padded_width;
                        if (token < g.length || dfinal.empty())
                            std::fill(task.dstate, task.dstate + g.state_count, 0.0f);
                        else
                            load_state(g, task.dstate, dfinal, carried);
                        ttt.backward(of_piece, task, state + state_room + piece_room);
                        if (piece.carried) store_state(g, dinitial, carried, task.dstate);
                        if (!pieces.joined()) {
                            if (!piece.carried) add_to(sum, part, g.state_count);
                            add_to(sum + state_room, part + state_room, part_count - state_room);
                        }
                        token = piece.begin;
                    }
                }
            });
            parallel_for(g.heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t head = begin; head < end; ++head)
                    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
                        float* part = parts + (sequence * g.heads + head) * part_count;
                        if (learns)
                            for_each_row(g, models_of(dinner), head, part,
                                         [&](float* tensor, const float* row, std::int64_t width, std::int64_t) {
                                             add_to(tensor, row, width);
                                         });
                        add_to(dinner.norm_weight.fp32() + head * g.width, part + state_room, g.width);
                        add_to(dinner.norm_bias.fp32() + head * g.width, part + state_room + g.padded_width, g.width);
                    }
            });
            for (std::int64_t pair = 0; pair < sequences * g.heads; ++pair)
                add_to(dtoken_scale.fp32(), parts + pair * part_count + state_room + 2 * g.padded_width, g.mini_batch);
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
