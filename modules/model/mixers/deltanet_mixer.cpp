// Run-time half of Gated DeltaNet: output(norm(delta(q, k, v)) ⊙ silu(gate x)), where q, k and v are projections behind
// a causal convolution and SiLU, q and k of norm 1 in each head.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/delta_gpu_sizes.hpp"
#include "model/layers.hpp"
#include "model/mixers/deltanet.hpp"
#include "model/projections.hpp"

namespace lockstep::model {
namespace {

using kernels::DeltaShape;

constexpr double key_norm_epsilon = 1e-6;  // of the sum of squares
constexpr int tag_of_state = 0, tag_of_convolutions = 2;

// The projections, in order: those with convolutions, of which there are `inputs`, and the logits of the gates.
enum Projected : std::size_t { query, key, value, inputs, decay_logit = inputs, strength_logit };
static_assert(tag_of_convolutions + 2 * static_cast<int>(inputs) <= mixer_tags);

// What a pass computes from the projections with little work; recomputed where that is chosen.
struct Cheap {
    std::array<Tensor, inputs> convolved, activated;  // [N, G·fk], [N, G·fk], [N, H·fv]
    Tensor q, k;                                      // [N, G·fk], of norm 1; q over √fk
    Tensor normed, gated;                             // [N, H·fv]
};

struct DeltanetSaved final : MixerSaved {
    // Columns of one matrix: queries, keys, values, logits of decays and strengths [N, H].
    std::vector<Tensor> projected;
    Tensor y, gate;                              // [N, H·fv]
    Tensor log_decay, strength;                  // [N, H]
    Tensor scan;                                 // saved by the scan for its backward pass
    std::array<Tensor, value> inverse_key_norm;  // [N·G], of queries and keys
    Norm::Statistics statistics;                 // [N·H]
    Cheap cheap;                                 // empty if recomputed
};

// Handed over along a divided sequence: the state, and the convolutions' inputs.
struct DeltanetCarry final : MixerCarry {
    Handover state;
    std::array<Handover, inputs> history;
    void finish() override {
        state.finish();
        for (Handover& one : history) one.finish();
    }
};

struct DeltanetState final : MixerState {
    Tensor state;                        // [1, H, fk, fv]
    std::array<Tensor, inputs> history;  // [1, kernel-1, columns]
};

// What the norms of queries and keys and the convolutions are given for the parameters that they do not have.
struct Constants {
    Arena memory;
    Tensor query_scale, key_scale, no_bias, spare;  // [fk], [fk], [widest], [widest]

    Constants(Backend& backend, std::int64_t key_width, std::int64_t widest) {
        memory = planned(backend.device(), "DeltaNet constants", [&](Arena& arena) {
            query_scale = arena.allocate(Type::fp32, {key_width});
            key_scale = arena.allocate(Type::fp32, {key_width});
            no_bias = arena.allocate(Type::fp32, {widest});
            spare = arena.allocate(Type::fp32, {widest});
        });
        if (backend.device().imaginary) return;
        const auto width = static_cast<double>(key_width);
        backend.fill(query_scale, static_cast<float>(1 / width));
        backend.fill(key_scale, static_cast<float>(1 / std::sqrt(width)));
        backend.fill(no_bias, 0);
        backend.fill(spare, 0);
    }
};

class DeltanetMixer final : public Mixer {
  public:
    DeltanetMixer(Backend& backend, const ParameterSet& parameters, std::int64_t number, const std::string& prefix,
                  const config::ModelDescription& model, const DeltanetOptions& options, const Neighbours& neighbours)
        : number_(number),
          heads_(neighbours.group.part().count(options.heads)),
          key_heads_(neighbours.group.part().count(options.key_heads)),
          key_width_(options.key_width),
          value_width_(options.value_width),
          chain_(neighbours.chain),
          type_(parameters.compute_type()),
          backend_(backend),
          constants_(backend, key_width_, std::max({keys(), values(), key_width_})),
          inputs_({Linear(parameters, prefix + "query"), Linear(parameters, prefix + "key"),
                   Linear(parameters, prefix + "value"), Linear(parameters, prefix + "decay"),
                   Linear(parameters, prefix + "strength")}),
          gate_(parameters, prefix + "gate"),
          output_(parameters, prefix + "output"),
          output_norm_(parameters, prefix + "output_norm", model.norm_epsilon),
          log_rate_(parameters.value(prefix + "log_rate")),
          dlog_rate_(parameters.gradient_or_spare(prefix + "log_rate")),
          decay_bias_(parameters.value(prefix + "decay_bias")),
          ddecay_bias_(parameters.gradient_or_spare(prefix + "decay_bias")) {
        if (backend.device().kind == DeviceKind::cuda && key_width_ > kernels::delta_widest_key_on_gpu)
            throw usage_error(
                "model.deltanet.key_width = {}: the delta rule on a GPU supports keys of up to {} columns; make them "
                "narrower, or train on CPUs",
                key_width_, kernels::delta_widest_key_on_gpu);
        for (const char* name : {"query", "key", "value"}) {
            const std::string weight = prefix + name + "_convolution/weight";
            const Tensor taps = parameters.value(weight);
            convolutions_.emplace_back(taps, constants_.no_bias.slice(0, taps.size(0)),
                                       parameters.gradient_or_spare(weight), constants_.spare.slice(0, taps.size(0)));
        }
    }

    std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool training,
                                     Recompute recompute) const override {
        auto saved = std::make_unique<DeltanetSaved>();
        const std::int64_t rows = shape.rows();
        saved->projected = inputs_.allocate(arena, type_, rows);
        saved->y = arena.allocate(type_, {rows, values()});
        saved->gate = arena.allocate(type_, {rows, values()});
        saved->log_decay = arena.allocate(Type::fp32, {rows, heads_});
        saved->strength = arena.allocate(Type::fp32, {rows, heads_});
        for (Tensor& inverse : saved->inverse_key_norm) inverse = arena.allocate(Type::fp32, {rows * key_heads_});
        output_norm_.plan(arena, saved->statistics, rows * heads_);
        if (training) saved->scan = arena.allocate(Type::fp32, {backend_.delta_saved_count(delta_shape(shape), type_)});
        if (!recomputes_cheap(recompute)) saved->cheap = allocate_cheap(arena, rows);
        return saved;
    }

    std::unique_ptr<MixerCarry> plan_carry(Arena& arena, const PassShape& shape) const override {
        if (chain_.alone()) return nullptr;
        auto carry = std::make_unique<DeltanetCarry>();
        carry->state =
            Handover(arena, Type::fp32, state_shape(shape.batch), chain_, handover_tag(number_, tag_of_state));
        for (std::size_t i = 0; i < inputs; ++i)
            convolutions_[i].plan_handover(arena, carry->history[i], type_, shape.batch, chain_,
                                           handover_tag(number_, tag_of_convolutions + 2 * static_cast<int>(i)));
        return carry;
    }

    void plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute, Direction direction) const override {
        const std::size_t mark = arena.mark();
        if (recomputes_cheap(recompute)) allocate_cheap(arena, shape.rows());
        if (direction == Direction::backward) {
            allocate_gradients(arena, shape.rows());
            if (!chain_.alone())
                for (const Convolution& convolution : convolutions_)
                    convolution.plan_workspace(arena, type_, shape.batch, shape.length, chain_);
        }
        arena.release(mark);
    }

    void forward(Backend& backend, Arena& workspace, Tensor out, MixerSaved& kept, MixerCarry* carried, Tensor x,
                 const PassShape& shape, bool recompute) override {
        auto& saved = static_cast<DeltanetSaved&>(kept);
        auto* carry = static_cast<DeltanetCarry*>(carried);
        const std::size_t mark = workspace.mark();
        const Cheap cheap = kept_cheap(workspace, saved, shape.rows());
        inputs_.forward(backend, saved.projected, x);
        if (carry)
            for (std::size_t i = 0; i < inputs; ++i)
                convolutions_[i].hand_over(backend, carry->history[i], saved.projected[i], shape.length, recompute);
        prepare(backend, saved, cheap, histories(carry), shape);
        const bool hands_over = carry && !recompute;
        if (hands_over) carry->state.receive();
        backend.delta_forward(saved.y, saved.scan, cheap.q, cheap.k, cheap.activated[value], saved.log_decay,
                              saved.strength, carry ? carry->state.incoming() : Tensor(),
                              hands_over ? carry->state.outgoing() : Tensor(), delta_shape(shape));
        if (hands_over) carry->state.send();
        finish(backend, out, saved, cheap, x);
        workspace.release(mark);
    }

    void backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dout, MixerSaved& kept,
                  MixerCarry* carried, Tensor x, const PassShape& shape) override {
        auto& saved = static_cast<DeltanetSaved&>(kept);
        auto* carry = static_cast<DeltanetCarry*>(carried);
        const std::size_t mark = workspace.mark();
        const Cheap cheap = kept_cheap(workspace, saved, shape.rows());
        if (saved.cheap.q.axes() == 0) {
            prepare(backend, saved, cheap, histories(carry), shape);
            gate_output(backend, saved, cheap);
        }
        const Gradients at = allocate_gradients(workspace, shape.rows());
        const Tensor dgated = at.first[value], dnormed = at.second[value];
        output_.backward_input(backend, dgated, dout, Accumulate::no);
        backend.swiglu_backward(at.dgate, dnormed, dgated, saved.gate, cheap.normed);
        gate_.backward_input(backend, dx.part(), at.dgate, Accumulate::no);
        const Tensor dy = at.first[value];
        output_norm_.backward(backend, rows_of(dy, value_width_), rows_of(dnormed, value_width_),
                              rows_of(saved.y, value_width_), saved.statistics, Accumulate::no);

        if (carry) carry->state.receive_gradient();
        backend.delta_backward(at.first[query], at.first[key], at.second[value], at.dlog_decay, at.dstrength,
                               carry ? carry->state.incoming_gradient() : Tensor(), dy, saved.scan, cheap.q, cheap.k,
                               cheap.activated[value], saved.log_decay, saved.strength,
                               carry ? carry->state.incoming() : Tensor(),
                               carry ? carry->state.outgoing_gradient() : Tensor(), delta_shape(shape));
        if (carry) carry->state.send_gradient();
        backend.delta_gates_backward(at.dprojected[decay_logit], at.dprojected[strength_logit], dlog_rate_,
                                     ddecay_bias_, at.dlog_decay, at.dstrength, saved.projected[decay_logit],
                                     saved.strength, log_rate_, decay_bias_, shape.length, shape.documents);
        for (const std::size_t i : {query, key}) {
            const auto of_heads = [&](const Tensor& tensor) { return rows_of(tensor, key_width_); };
            backend.rms_norm_backward(of_heads(at.second[i]), constants_.spare.slice(0, key_width_),
                                      of_heads(at.first[i]), of_heads(cheap.activated[i]), key_scale(i),
                                      saved.inverse_key_norm[i], Accumulate::no);
        }
        for (std::size_t i = 0; i < inputs; ++i) {
            backend.silu_backward(at.first[i], at.second[i], cheap.convolved[i]);
            convolution_backward(backend, workspace, i, at.dprojected[i], at.first[i], saved, carry, shape);
        }
        inputs_.backward_input(backend, dx.part(), at.dprojected, Accumulate::yes);
        dx.complete();
        inputs_.backward_parameters(backend, at.dprojected, x);
        gate_.backward_parameters(backend, at.dgate, x);
        output_.backward_parameters(backend, dout, cheap.gated);
        workspace.release(mark);
    }

    std::size_t table_bytes() const override { return constants_.memory.capacity(); }

    std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t, std::int64_t) const override {
        auto state = std::make_unique<DeltanetState>();
        state->state = arena.allocate(Type::fp32, state_shape(1));
        for (std::size_t i = 0; i < inputs; ++i)
            state->history[i] = arena.allocate(type_, {1, convolutions_[i].kernel() - 1, convolutions_[i].width()});
        return state;
    }

    void plan_decoding(Arena& arena, std::int64_t tokens) const override {
        const std::size_t mark = arena.mark();
        plan(arena, {1, tokens}, false, Recompute::none);
        arena.release(mark);
    }

    void start_sequence(Backend& backend, MixerState& kept) const override {
        auto& state = static_cast<DeltanetState&>(kept);
        backend.fill(state.state, 0);
        for (const Tensor& history : state.history) backend.fill(history, 0);
    }

    void decode(Backend& backend, Arena& workspace, Tensor out, MixerState& kept, Tensor x, std::int64_t) override {
        auto& state = static_cast<DeltanetState&>(kept);
        const std::size_t mark = workspace.mark();
        const PassShape shape{1, x.rows()};
        const auto planned_pass = plan(workspace, shape, false, Recompute::none);
        auto& pass = static_cast<DeltanetSaved&>(*planned_pass);
        inputs_.forward(backend, pass.projected, x);
        prepare(backend, pass, pass.cheap, state.history, shape);
        for (std::size_t i = 0; i < inputs; ++i) move_convolution_history(backend, state.history[i], pass.projected[i]);
        backend.delta_forward(pass.y, {}, pass.cheap.q, pass.cheap.k, pass.cheap.activated[value], pass.log_decay,
                              pass.strength, state.state, state.state, delta_shape(shape));
        finish(backend, out, pass, pass.cheap, x);
        workspace.release(mark);
    }

  private:
    std::int64_t keys() const { return key_heads_ * key_width_; }
    std::int64_t values() const { return heads_ * value_width_; }
    std::int64_t columns(std::size_t input) const { return input == value ? values() : keys(); }

    DeltaShape delta_shape(const PassShape& shape) const {
        return {shape.batch, shape.length, heads_, key_heads_, key_width_, value_width_};
    }
    Shape state_shape(std::int64_t batch) const { return {batch, heads_, key_width_, value_width_}; }

    Tensor key_scale(std::size_t input) const { return input == query ? constants_.query_scale : constants_.key_scale; }

    // [N, heads · f] as a row for each head
    static Tensor rows_of(const Tensor& x, std::int64_t width) { return x.reshaped({x.count() / width, width}); }

    Cheap allocate_cheap(Arena& arena, std::int64_t rows) const {
        Cheap made;
        for (std::size_t i = 0; i < inputs; ++i) {
            made.convolved[i] = arena.allocate(type_, {rows, columns(i)});
            made.activated[i] = arena.allocate(type_, {rows, columns(i)});
        }
        made.q = arena.allocate(type_, {rows, keys()});
        made.k = arena.allocate(type_, {rows, keys()});
        made.normed = arena.allocate(type_, {rows, values()});
        made.gated = arena.allocate(type_, {rows, values()});
        return made;
    }
    Cheap kept_cheap(Arena& workspace, const DeltanetSaved& saved, std::int64_t rows) const {
        return saved.cheap.q.axes() > 0 ? saved.cheap : allocate_cheap(workspace, rows);
    }

    // Temporaries of backward; `first` and `second` hold several gradients in turn.
    struct Gradients {
        std::array<Tensor, inputs> first, second;  // [N, G·fk], [N, G·fk], [N, H·fv]
        Tensor dgate;                              // [N, H·fv]
        Tensor dlog_decay, dstrength;              // [N, H]
        std::vector<Tensor> dprojected;
    };
    Gradients allocate_gradients(Arena& arena, std::int64_t rows) const {
        Gradients made;
        for (std::size_t i = 0; i < inputs; ++i) {
            made.first[i] = arena.allocate(type_, {rows, columns(i)});
            made.second[i] = arena.allocate(type_, {rows, columns(i)});
        }
        made.dgate = arena.allocate(type_, {rows, values()});
        made.dlog_decay = arena.allocate(Type::fp32, {rows, heads_});
        made.dstrength = arena.allocate(Type::fp32, {rows, heads_});
        made.dprojected = inputs_.allocate(arena, type_, rows);
        return made;
    }

    // The convolutions' inputs before these tokens.
    static std::array<Tensor, inputs> histories(const DeltanetCarry* carry) {
        std::array<Tensor, inputs> list;
        if (carry)
            for (std::size_t i = 0; i < inputs; ++i) list[i] = carry->history[i].incoming();
        return list;
    }

    // From the projections to the scan.
    void prepare(Backend& backend, const DeltanetSaved& saved, const Cheap& cheap,
                 const std::array<Tensor, inputs>& history, const PassShape& shape) const {
        for (std::size_t i = 0; i < inputs; ++i) {
            convolutions_[i].forward(backend, cheap.convolved[i], saved.projected[i], history[i], shape.length,
                                     shape.documents);
            backend.silu_forward(cheap.activated[i], cheap.convolved[i]);
        }
        const auto epsilon = static_cast<float>(key_norm_epsilon / static_cast<double>(key_width_));
        for (const std::size_t i : {query, key})
            backend.rms_norm_forward(rows_of(i == query ? cheap.q : cheap.k, key_width_), saved.inverse_key_norm[i],
                                     rows_of(cheap.activated[i], key_width_), {}, key_scale(i), epsilon);
        backend.delta_gates_forward(saved.log_decay, saved.strength, saved.projected[decay_logit],
                                    saved.projected[strength_logit], log_rate_, decay_bias_, shape.length,
                                    shape.documents);
    }

    void gate_output(Backend& backend, const DeltanetSaved& saved, const Cheap& cheap) const {
        output_norm_.forward(backend, rows_of(cheap.normed, value_width_), saved.statistics,
                             rows_of(saved.y, value_width_));
        backend.swiglu_forward(cheap.gated, saved.gate, cheap.normed);
    }

    void finish(Backend& backend, Tensor out, const DeltanetSaved& saved, const Cheap& cheap, Tensor x) const {
        gate_.forward(backend, saved.gate, x);
        gate_output(backend, saved, cheap);
        output_.forward(backend, out, cheap.gated);
    }

    void convolution_backward(Backend& backend, Arena& workspace, std::size_t input, Tensor dprojected, Tensor dy,
                              const DeltanetSaved& saved, DeltanetCarry* carry, const PassShape& shape) const {
        const Convolution& convolution = convolutions_[input];
        const Tensor x = saved.projected[input];
        if (!carry)
            return convolution.backward(backend, dprojected, dy, x, shape.length, shape.documents, Accumulate::no);
        Handover& history = carry->history[input];
        history.receive_gradient();
        convolution.backward_part(backend, workspace, dprojected, dy, x, history, Accumulate::no, shape.length,
                                  shape.documents);
        history.send_gradient();
        convolution.add_from_next_rank(backend, dprojected, history, shape.length);
    }

    std::int64_t number_;             // of the block
    std::int64_t heads_, key_heads_;  // of this rank
    std::int64_t key_width_, value_width_;
    const ContextChain& chain_;
    Type type_;
    const Backend& backend_;
    Constants constants_;
    Projections inputs_;
    Linear gate_, output_;
    Norm output_norm_;
    std::vector<Convolution> convolutions_;
    Tensor log_rate_, dlog_rate_, decay_bias_, ddecay_bias_;
};

}  // namespace

std::unique_ptr<Mixer> make_deltanet_mixer(Backend& backend, const ParameterSet& parameters,
                                           const config::ModelDescription& model, const config::LayerShape& layer,
                                           const DeltanetOptions& options, const Neighbours& neighbours) {
    return std::make_unique<DeltanetMixer>(backend, parameters, layer.number, mixer_prefix(layer.number), model,
                                           options, neighbours);
}

}  // namespace lockstep::model
