// Run-time half of TTT-Linear and TTT-MLP.
#include <optional>
#include <utility>
#include <vector>

#include "model/column_norm.hpp"
#include "model/layers.hpp"
#include "model/mixers/ttt.hpp"
#include "model/projections.hpp"
#include "model/rotary_table.hpp"

namespace lockstep::model {
namespace {

using kernels::RotaryPairs;
using kernels::TttCarry;
using kernels::TttInner;
using kernels::TttShape;
using kernels::TttState;

constexpr double post_norm_epsilon = 1e-6;
constexpr int tag_of_state = 0, tag_of_convolution = 2;
static_assert(tag_of_convolution + 2 <= mixer_tags);

struct TttSaved final : MixerSaved {
    // d and H: the columns and heads of this rank.
    Tensor shared;                  // [N, d]: the shared query/key projection, before its two convolutions
    Tensor q, k, v, y;              // [N, d]; q and k rotated; y before the post norm
    Tensor logit;                   // [N, H]: of the step sizes
    Tensor step_size;               // [N, H]
    std::vector<Tensor> projected;  // those of shared, q, k, v and logit that are projections: columns of one matrix
    Tensor token_scale;             // [b]
    Tensor scan;                    // saved by the scan for its backward pass
    ColumnNorm::Statistics post_statistics;
    Tensor gate;  // [N, d]; with a gate only
    // What the output's layer reads, [N, d]; gated with a gate only. Recomputed where that is chosen.
    struct Outputs {
        Tensor normed, gated;
    } outputs;
};

// Handed over along a divided sequence: the inner models' state and the convolutions' inputs.
struct TttPassCarry final : MixerCarry {
    Handover state, history;
    void finish() override {
        state.finish();
        history.finish();
    }
};

struct TttDecodeState final : MixerState {
    TttState inner;
    Tensor history;  // [1, kernel-1, d]: the convolutions' inputs before these tokens
};

// Of a rotation within mini-batches there is nothing to scale: the key is attention's.
config::ModelDescription unscaled(config::ModelDescription model) {
    model.rope_scaling = config::RopeScaling::none;
    return model;
}

class TttMixer final : public Mixer {
  public:
    TttMixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
             const config::ModelDescription& model, const config::LayerShape& layer, const TttOptions& options,
             bool mlp, const Neighbours& neighbours)
        : options_(options),
          mlp_(mlp),
          number_(layer.number),
          heads_(neighbours.group.part().count(layer.heads)),
          head_width_(layer.head_width),
          width_(heads_ * head_width_),
          chain_(neighbours.chain),
          type_(parameters.compute_type()),
          inputs_(inputs_of(parameters, prefix, options)),
          output_(parameters, prefix + "output"),
          post_norm_(parameters, prefix + "post_norm", post_norm_epsilon, neighbours.group),
          inner_(inner_of(parameters, prefix, false)),
          dinner_(inner_of(parameters, prefix, true)),
          token_step_(parameters.value(prefix + "token_step")),
          dtoken_step_(parameters.gradient(prefix + "token_step")),
          step_bias_(in_one_row(parameters.value(prefix + "step_size/bias"))),
          dstep_bias_(in_one_row(parameters.gradient(prefix + "step_size/bias"))),
          rotary_(backend, unscaled(model), head_width_, options.mini_batch) {
        if (options.share_qk) {
            query_convolution_.emplace(parameters, prefix + "query_convolution");
            key_convolution_.emplace(parameters, prefix + "key_convolution");
        }
        if (options.gate) gate_.emplace(parameters, prefix + "gate");
        backend_ = &backend;
    }

    void set_inner_rate_factor(double factor) override { inner_rate_factor_ = factor; }

    std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool training,
                                     Recompute recompute) const override {
        auto saved = std::make_unique<TttSaved>();
        const Shape rows = {shape.rows(), width_};
        saved->projected = inputs_.allocate(arena, type_, shape.rows());
        const Projected at(saved->projected);
        saved->v = at.v;
        saved->logit = at.logit;
        if (options_.share_qk) {
            saved->shared = at.query;
            saved->q = arena.allocate(type_, rows);
            saved->k = arena.allocate(type_, rows);
        } else {
            saved->q = at.query;
            saved->k = at.key;
        }
        saved->y = arena.allocate(type_, rows);
        if (gate_) saved->gate = arena.allocate(type_, rows);
        if (!recomputes_cheap(recompute)) saved->outputs = allocate_outputs(arena, shape.rows());
        saved->step_size = arena.allocate(Type::fp32, {shape.rows(), heads_});
        saved->token_scale = arena.allocate(Type::fp32, {options_.mini_batch});
        post_norm_.plan(arena, saved->post_statistics, shape.rows());
        if (training) saved->scan = arena.allocate(Type::fp32, {backend_->ttt_saved_count(ttt_shape(shape), type_)});
        return saved;
    }

    std::unique_ptr<MixerCarry> plan_carry(Arena& arena, const PassShape& shape) const override {
        if (chain_.alone()) return nullptr;
        auto carry = std::make_unique<TttPassCarry>();
        const std::int64_t inner =
            inner_.weight1.count() + inner_.bias1.count() + (mlp_ ? inner_.weight2.count() + inner_.bias2.count() : 0);
        carry->state = Handover(arena, Type::fp32, {shape.batch * inner}, chain_, handover_tag(number_, tag_of_state));
        if (query_convolution_)
            query_convolution_->plan_handover(arena, carry->history, type_, shape.batch, chain_,
                                              handover_tag(number_, tag_of_convolution));
        return carry;
    }

    void plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute, Direction direction) const override {
        const std::size_t mark = arena.mark();
        if (recomputes_cheap(recompute)) allocate_outputs(arena, shape.rows());
        if (direction == Direction::forward) return arena.release(mark);
        allocate_gradients(arena, shape);
        if (query_convolution_ && !chain_.alone())
            query_convolution_->plan_workspace(arena, type_, shape.batch, shape.length, chain_);
        arena.release(mark);
    }

    void forward(Backend& backend, Arena& workspace, Tensor y, MixerSaved& kept, MixerCarry* carried, Tensor x,
                 const PassShape& shape, bool recompute) override {
        auto& saved = static_cast<TttSaved&>(kept);
        auto* carry = static_cast<TttPassCarry*>(carried);
        inputs_.forward(backend, saved.projected, x);
        Tensor history;
        if (query_convolution_ && carry) {
            query_convolution_->hand_over(backend, carry->history, saved.shared, shape.length, recompute);
            history = carry->history.incoming();
        }
        prepare(backend, saved, history, shape, 0);
        const bool hands_over = carry && !recompute;
        if (hands_over) carry->state.receive();
        const TttCarry initial = carry ? state_in(carry->state.incoming(), shape) : TttCarry{};
        const TttCarry final_state = hands_over ? state_in(carry->state.outgoing(), shape) : TttCarry{};
        backend.ttt_forward(saved.y, saved.scan, saved.q, saved.k, saved.v, saved.step_size, saved.token_scale, inner_,
                            initial, final_state, ttt_shape(shape));
        if (hands_over) carry->state.send();
        const std::size_t mark = workspace.mark();
        finish(backend, y, saved, kept_outputs(workspace, saved, shape.rows()), x);
        workspace.release(mark);
    }

    void backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dout, MixerSaved& kept,
                  MixerCarry* carried, Tensor x, const PassShape& shape) override {
        auto& saved = static_cast<TttSaved&>(kept);
        auto* carry = static_cast<TttPassCarry*>(carried);
        const std::size_t mark = workspace.mark();
        const TttSaved::Outputs outputs = kept_outputs(workspace, saved, shape.rows());
        if (saved.outputs.normed.axes() == 0) {
            post_norm_.repeat(backend, outputs.normed, saved.post_statistics, saved.y);
            if (gate_) backend.gelu_gate_forward(outputs.gated, saved.gate, outputs.normed);
        }
        const Gradients temporary = allocate_gradients(workspace, shape);
        const Tensor dnormed = temporary.dnormed, dy = temporary.dy;
        if (gate_) {
            const Tensor dgated = dy, dgate = temporary.dgate;
            output_.backward_input(backend, dgated, dout, Accumulate::no);
            backend.gelu_gate_backward(dgate, dnormed, dgated, saved.gate, outputs.normed);
            gate_->backward_input(backend, dx.part(), dgate, Accumulate::no);
        } else {
            output_.backward_input(backend, dnormed, dout, Accumulate::no);
        }
        post_norm_.backward(backend, dy, dnormed, saved.y, saved.post_statistics);

        const Projected dprojected(temporary.dprojected);
        const Tensor dq = key_apart() ? dprojected.query : temporary.dq,
                     dk = key_apart() ? dprojected.key : temporary.dk;
        const Tensor dv = dprojected.v, dlogit = dprojected.logit;
        const Tensor dstep = temporary.dstep, dtoken_scale = temporary.dtoken_scale;
        backend.fill(dtoken_scale, 0);
        if (carry) carry->state.receive_gradient();
        const TttCarry initial = carry ? state_in(carry->state.incoming(), shape) : TttCarry{};
        const TttCarry dinitial = carry ? state_in(carry->state.incoming_gradient(), shape) : TttCarry{};
        const TttCarry dfinal = carry ? state_in(carry->state.outgoing_gradient(), shape) : TttCarry{};
        backend.ttt_backward(dq, dk, dv, dstep, dtoken_scale, dinner_, dinitial, dy, saved.scan, saved.q, saved.k,
                             saved.v, saved.step_size, saved.token_scale, inner_, initial, dfinal, ttt_shape(shape));
        if (carry) carry->state.send_gradient();
        if (!dtoken_step_.empty()) backend.token_scale_backward(dtoken_step_, dtoken_scale, token_step_);

        backend.step_size_backward(dlogit, dstep, saved.step_size, step_scale());
        if (!dstep_bias_.empty()) backend.bias_backward(dstep_bias_, dlogit);

        rotate(backend, rotary_, dq, dk, shape.length, 0, RotaryPairs::interleaved, true);
        if (!key_apart())
            convolutions_backward(backend, workspace, dprojected.query, dq, dk, saved.shared, carry, shape);
        inputs_.backward_input(backend, dx.part(), temporary.dprojected, gate_ ? Accumulate::yes : Accumulate::no);
        dx.complete();
        inputs_.backward_parameters(backend, temporary.dprojected, x);
        if (gate_) gate_->backward_parameters(backend, temporary.dgate, x);
        output_.backward_parameters(backend, dout, gate_ ? outputs.gated : outputs.normed);
        workspace.release(mark);
    }

    std::size_t table_bytes() const override { return rotary_.memory.capacity(); }

    std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t, std::int64_t) const override {
        auto state = std::make_unique<TttDecodeState>();
        const auto like = [&](Tensor tensor) {
            return tensor.axes() == 0 ? Tensor() : arena.allocate(Type::fp32, tensor.shape());
        };
        state->inner = {like(inner_.weight1), like(inner_.bias1), like(inner_.weight2), like(inner_.bias2),
                        like(inner_.weight1), like(inner_.bias1), like(inner_.weight2), like(inner_.bias2)};
        if (query_convolution_) state->history = arena.allocate(type_, {1, query_convolution_->kernel() - 1, width_});
        return state;
    }

    void plan_decoding(Arena& arena, std::int64_t tokens) const override {
        const std::size_t mark = arena.mark();
        plan(arena, {1, tokens}, false, Recompute::none);
        arena.release(mark);
    }

    void start_sequence(Backend& backend, MixerState& kept) const override {
        auto& state = static_cast<TttDecodeState&>(kept);
        backend.copy(state.inner.weight1, inner_.weight1);
        backend.copy(state.inner.bias1, inner_.bias1);
        backend.fill(state.inner.weight1_sum, 0);
        backend.fill(state.inner.bias1_sum, 0);
        if (!inner_.weight2.empty()) {
            backend.copy(state.inner.weight2, inner_.weight2);
            backend.copy(state.inner.bias2, inner_.bias2);
            backend.fill(state.inner.weight2_sum, 0);
            backend.fill(state.inner.bias2_sum, 0);
        }
        if (!state.history.empty()) backend.fill(state.history, 0);
    }

    void decode(Backend& backend, Arena& workspace, Tensor y, MixerState& kept, Tensor x,
                std::int64_t position) override {
        auto& state = static_cast<TttDecodeState&>(kept);
        const std::size_t mark = workspace.mark();
        const PassShape shape{1, x.rows()};
        const auto saved = plan(workspace, shape, false, Recompute::none);
        auto& pass = static_cast<TttSaved&>(*saved);
        inputs_.forward(backend, pass.projected, x);
        prepare(backend, pass, state.history, shape, position);
        if (!state.history.empty()) move_convolution_history(backend, state.history, pass.shared);
        backend.ttt_decode(pass.y, state.inner, pass.q, pass.k, pass.v, pass.step_size, pass.token_scale, inner_,
                           ttt_shape(shape), position);
        finish(backend, y, pass, pass.outputs, x);
        workspace.release(mark);
    }

  private:
    // Temporaries of backward. Some hold several gradients in turn.
    struct Gradients {
        Tensor dnormed, dy, dgate;  // [N, d]
        Tensor dq, dk;              // [N, d], of the convolutions' outputs
        std::vector<Tensor> dprojected;
        Tensor dstep;         // [N, H]
        Tensor dtoken_scale;  // [b]
    };
    Gradients allocate_gradients(Arena& arena, const PassShape& shape) const {
        const auto rows = [&] { return arena.allocate(type_, {shape.rows(), width_}); };
        Gradients made;
        made.dnormed = rows();
        made.dy = rows();
        if (gate_) made.dgate = rows();
        if (!key_apart()) {
            made.dq = rows();
            made.dk = rows();
        }
        made.dprojected = inputs_.allocate(arena, type_, shape.rows());
        made.dstep = arena.allocate(Type::fp32, {shape.rows(), heads_});
        made.dtoken_scale = arena.allocate(Type::fp32, {options_.mini_batch});
        return made;
    }

    // Whether queries and keys have projections of their own, not one that is shared.
    bool key_apart() const { return !options_.share_qk; }

    // What the input is projected to, in the order of the parameters. Without a key of its own, `query` is the shared
    // projection.
    struct Projected {
        Tensor query, key, v, logit;
        explicit Projected(const std::vector<Tensor>& all)
            : query(all.front()), v(all[all.size() - 2]), logit(all.back()) {
            if (all.size() > 3) key = all[1];
        }
    };
    static Projections inputs_of(const ParameterSet& parameters, const std::string& prefix, const TttOptions& options) {
        std::vector<Linear> layers = {Linear(parameters, prefix + "query")};
        if (!options.share_qk) layers.emplace_back(parameters, prefix + "key");
        layers.emplace_back(parameters, prefix + "value");
        const std::string step = prefix + "step_size/weight";
        layers.emplace_back(flattened(parameters.working(step)), Tensor(), flattened(parameters.gradient(step)),
                            Tensor(), parameters.coming_pass());
        parameters.overwrite_in_first_pass(step);
        return Projections(std::move(layers));
    }

    static Tensor flattened(Tensor step_weight) {  // [H, 1, d] as the matrix [H, d]
        return step_weight.empty() ? step_weight : step_weight.reshaped({step_weight.size(0), step_weight.size(2)});
    }
    static Tensor in_one_row(Tensor step_bias) {
        return step_bias.empty() ? step_bias : step_bias.reshaped({step_bias.count()});
    }

    TttInner inner_of(const ParameterSet& parameters, const std::string& prefix, bool gradients) const {
        const auto find = [&](const std::string& name) {
            const std::string full = prefix + name;
            if (!parameters.has(full)) return Tensor();
            return gradients ? parameters.gradient_or_spare(full) : parameters.value(full);
        };
        return {find("inner/weight1"), find("inner/bias1"),       find("inner/weight2"),
                find("inner/bias2"),   find("inner_norm/weight"), find("inner_norm/bias")};
    }

    TttShape ttt_shape(const PassShape& shape) const {
        return {mlp_, shape.batch, shape.length, heads_, head_width_, options_.mini_batch, shape.documents};
    }

    // The tensors of a state, flattened into one.
    TttCarry state_in(Tensor flat, const PassShape& shape) const {
        if (flat.axes() == 0) return {};
        std::int64_t first = 0;
        const auto next = [&](Tensor like) {
            const std::int64_t count = shape.batch * like.count();
            first += count;
            return flat.slice(first - count, count).reshaped({shape.batch, like.size(0), like.size(1), like.size(2)});
        };
        TttCarry state;
        state.weight1 = next(inner_.weight1);
        state.bias1 = next(inner_.bias1);
        if (mlp_) {
            state.weight2 = next(inner_.weight2);
            state.bias2 = next(inner_.bias2);
        }
        return state;
    }

    // Both convolutions of the shared projection have the same history; its gradient is the sum of theirs.
    void convolutions_backward(Backend& backend, Arena& workspace, Tensor dshared, Tensor dq, Tensor dk, Tensor shared,
                               TttPassCarry* carry, const PassShape& shape) const {
        if (!carry) {
            query_convolution_->backward(backend, dshared, dq, shared, shape.length, shape.documents, Accumulate::no);
            key_convolution_->backward(backend, dshared, dk, shared, shape.length, shape.documents, Accumulate::yes);
            return;
        }
        Handover& history = carry->history;
        history.receive_gradient();
        query_convolution_->backward_part(backend, workspace, dshared, dq, shared, history, Accumulate::no,
                                          shape.length, shape.documents);
        key_convolution_->backward_part(backend, workspace, dshared, dk, shared, history, Accumulate::yes, shape.length,
                                        shape.documents);
        history.send_gradient();
        query_convolution_->add_from_next_rank(backend, dshared, history, shape.length);
    }

    float step_scale() const {
        return static_cast<float>(options_.base_lr * inner_rate_factor_ / static_cast<double>(head_width_));
    }

    // From the projections to the scan. `history`: the convolutions' inputs before these tokens.
    void prepare(Backend& backend, TttSaved& saved, Tensor history, const PassShape& shape,
                 std::int64_t position) const {
        if (!key_apart()) {
            query_convolution_->forward(backend, saved.q, saved.shared, history, shape.length, shape.documents);
            key_convolution_->forward(backend, saved.k, saved.shared, history, shape.length, shape.documents);
        }
        rotate(backend, rotary_, saved.q, saved.k, shape.length, position, RotaryPairs::interleaved, false);
        backend.step_size_forward(saved.step_size, saved.logit, step_bias_, step_scale());
        backend.token_scale_forward(saved.token_scale, token_step_);
    }

    TttSaved::Outputs allocate_outputs(Arena& arena, std::int64_t rows) const {
        const Tensor normed = arena.allocate(type_, {rows, width_});
        return {normed, gate_ ? arena.allocate(type_, {rows, width_}) : Tensor()};
    }
    TttSaved::Outputs kept_outputs(Arena& workspace, const TttSaved& saved, std::int64_t rows) const {
        return saved.outputs.normed.axes() > 0 ? saved.outputs : allocate_outputs(workspace, rows);
    }

    void finish(Backend& backend, Tensor y, TttSaved& saved, const TttSaved::Outputs& outputs, Tensor x) const {
        post_norm_.forward(backend, outputs.normed, saved.post_statistics, saved.y);
        if (gate_) {
            gate_->forward(backend, saved.gate, x);
            backend.gelu_gate_forward(outputs.gated, saved.gate, outputs.normed);
        }
        output_.forward(backend, y, gate_ ? outputs.gated : outputs.normed);
    }

    TttOptions options_;
    bool mlp_;                                          // the inner model has two layers
    std::int64_t number_, heads_, head_width_, width_;  // of the block; heads and columns of this rank
    const ContextChain& chain_;
    Type type_;
    const Backend* backend_ = nullptr;
    Projections inputs_;
    Linear output_;
    std::optional<Linear> gate_;
    std::optional<Convolution> query_convolution_, key_convolution_;
    ColumnNorm post_norm_;
    TttInner inner_, dinner_;
    Tensor token_step_, dtoken_step_, step_bias_, dstep_bias_;
    RotaryTable rotary_;
    double inner_rate_factor_ = 1;
};

}  // namespace

std::unique_ptr<Mixer> make_ttt_mixer(Backend& backend, const ParameterSet& parameters,
                                      const config::ModelDescription& model, const config::LayerShape& layer,
                                      const TttOptions& options, bool mlp, const Neighbours& neighbours) {
    return std::make_unique<TttMixer>(backend, parameters, mixer_prefix(layer.number), model, layer, options, mlp,
                                      neighbours);
}

}  // namespace lockstep::model
