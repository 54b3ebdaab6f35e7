// Causal attention with grouped keys and values: output(attention(rotate(query x), rotate(key x), value x)). With norms
// of heads (Dehghani et al. 2023, arXiv:2302.05442; as RMSNorm in Qwen3): rotate(norm(query x)), rotate(norm(key x)).
#include "model/mixers/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "kernels/attention_limits.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "model/layers.hpp"
#include "model/mixer.hpp"
#include "model/mixers/divided_attention.hpp"
#include "model/mixers/registry.hpp"
#include "model/projections.hpp"
#include "model/rotary_table.hpp"

namespace lockstep::model {
namespace {

using kernels::AttentionShape;
using kernels::RotaryPairs;

struct AttentionSaved final : MixerSaved {
    // [N, H·f], [N, G·f], [N, G·f], [N, H·f]; q and k normed and rotated, empty if recomputed. Without norms q, k and v
    // are columns of one matrix.
    Tensor q, k, v, y;
    Tensor log_sum_exp;  // [B, H, L]
    // With norms of heads: as projected.
    Tensor projected_q, projected_k;
    Norm::Statistics q_statistics, k_statistics;  // [N·H], [N·G]
};

struct AttentionState final : MixerState {
    Tensor keys, values;     // [rows, G·f]; normed and rotated keys
    std::int64_t first = 0;  // the position of the first row
};

// A window that no sequence is longer than hides nothing.
std::int64_t window_of(const config::ModelDescription& model, const config::LayerShape& layer) {
    return layer.window < model.context ? layer.window : 0;
}

class AttentionMixer final : public Mixer {
  public:
    AttentionMixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
                   const config::ModelDescription& model, const config::LayerShape& layer, const Neighbours& neighbours)
        : heads_(neighbours.group.part().count(layer.heads)),
          key_heads_(neighbours.group.part().count(layer.kv_heads)),
          head_width_(layer.head_width),
          window_(window_of(model, layer)),
          score_cap_(static_cast<float>(model.score_cap)),
          stretch_(neighbours.chain.rank()),
          adds_bias_(neighbours.group.first()),
          type_(parameters.compute_type()),
          inputs_({Linear(parameters, prefix + "query"), Linear(parameters, prefix + "key"),
                   Linear(parameters, prefix + "value")}),
          output_(parameters, prefix + "output") {
        if (backend.device().kind == DeviceKind::cuda && head_width_ > kernels::widest_head_on_gpu)
            throw usage_error(
                "model.head_width = {}: attention on a GPU supports heads of up to {} columns; make them narrower, or "
                "train on CPUs",
                head_width_, kernels::widest_head_on_gpu);
        if (model.position == config::Position::rope) rotary_.emplace(backend, model, head_width_, model.context);
        if (!neighbours.chain.alone())
            divided_.emplace(
                neighbours.chain, type_,
                DividedAttention::Sizes{heads_, key_heads_, head_width_, !model.qk_norm, window_, score_cap_},
                handover_tag(layer.number, 0));
        if (!model.qk_norm) return;
        query_norm_.emplace(parameters, prefix + "query_norm", model.norm_epsilon);
        key_norm_.emplace(parameters, prefix + "key_norm", model.norm_epsilon);
    }

    std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool, Recompute recompute) const override {
        auto saved = std::make_unique<AttentionSaved>();
        const std::int64_t rows = shape.rows();
        if (query_norm_) {
            if (!recomputes_heads(recompute)) std::tie(saved->q, saved->k) = allocate_heads(arena, rows);
            std::tie(saved->projected_q, saved->projected_k) = allocate_heads(arena, rows);
            query_norm_->plan(arena, saved->q_statistics, rows * heads_);
            key_norm_->plan(arena, saved->k_statistics, rows * key_heads_);
            saved->v = arena.allocate(type_, {rows, key_width()});
        } else {
            const auto projected = inputs_.allocate(arena, type_, rows);
            saved->q = projected[0];
            saved->k = projected[1];
            saved->v = projected[2];
        }
        saved->y = arena.allocate(type_, {rows, query_width()});
        saved->log_sum_exp = arena.allocate(Type::fp32, {shape.batch, heads_, shape.length});
        return saved;
    }

    void plan_workspace(Arena& arena, const PassShape& shape, Recompute recompute, Direction direction) const override {
        const std::size_t mark = arena.mark();
        if (direction == Direction::backward) allocate_gradients(arena, shape.rows());
        if (recomputes_heads(recompute)) allocate_heads(arena, shape.rows());
        if (divided_) divided_->plan_workspace(arena, shape, direction);
        arena.release(mark);
    }

    void forward(Backend& backend, Arena& workspace, Tensor out, MixerSaved& kept, MixerCarry*, Tensor x,
                 const PassShape& shape, bool) override {
        auto& saved = static_cast<AttentionSaved&>(kept);
        const std::size_t mark = workspace.mark();
        const auto [q, k] = kept_heads(workspace, saved, shape.rows());
        inputs_.forward(backend, {query_norm_ ? saved.projected_q : q, key_norm_ ? saved.projected_k : k, saved.v}, x);
        norm_and_rotate(backend, q, k, saved, shape.length, first_position(shape));
        if (divided_)
            divided_->forward(backend, workspace, saved.y, saved.log_sum_exp, q, k, saved.v, shape);
        else
            backend.attention_forward(saved.y, saved.log_sum_exp, q, k, saved.v,
                                      attention_shape(shape.batch, shape.length, shape.length, shape.documents));
        output_.forward_part(backend, out, saved.y, {}, adds_bias_);
        workspace.release(mark);
    }

    void backward(Backend& backend, Arena& workspace, InputGradient& dx, Tensor dout, MixerSaved& kept, MixerCarry*,
                  Tensor x, const PassShape& shape) override {
        auto& saved = static_cast<AttentionSaved&>(kept);
        const std::size_t mark = workspace.mark();
        const auto [dy, dq, dk, dv] = allocate_gradients(workspace, shape.rows());
        const auto [q, k] = kept_heads(workspace, saved, shape.rows());
        if (saved.q.axes() == 0) norm_and_rotate(backend, q, k, saved, shape.length, first_position(shape));
        output_.backward_input(backend, dy, dout, Accumulate::no);
        if (divided_)
            divided_->backward(backend, workspace, dq, dk, dv, dy, q, k, saved.v, saved.y, saved.log_sum_exp, shape);
        else
            backend.attention_backward(dq, dk, dv, dy, q, k, saved.v, saved.y, saved.log_sum_exp,
                                       attention_shape(shape.batch, shape.length, shape.length, shape.documents));
        rotate_heads(backend, dq, dk, shape.length, first_position(shape), true);
        std::vector<Tensor> dinputs = {dq, dk, dv};
        if (query_norm_) {
            // The gradients before the norms take the places of dy, then of dq.
            norm_backward(backend, *query_norm_, dy, dq, saved.projected_q, saved.q_statistics);
            const Tensor dprojected_k = first_elements(dq, dk.shape());
            norm_backward(backend, *key_norm_, dprojected_k, dk, saved.projected_k, saved.k_statistics);
            dinputs = {dy, dprojected_k, dv};
        }
        inputs_.backward_input(backend, dx.part(), dinputs, Accumulate::no);
        dx.complete();
        inputs_.backward_parameters(backend, dinputs, x);
        output_.backward_parameters(backend, dout, saved.y);
        workspace.release(mark);
    }

    std::size_t table_bytes() const override { return rotary_ ? rotary_->memory.capacity() : 0; }

    std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t context, std::int64_t tokens) const override {
        auto state = std::make_unique<AttentionState>();
        // Of a window twice what is to be kept: then one half moves to the other.
        const std::int64_t rows = window_ > 0 ? std::min(context, 2 * (window_ - 1) + tokens) : context;
        state->keys = arena.allocate(type_, {rows, key_width()});
        state->values = arena.allocate(type_, {rows, key_width()});
        return state;
    }

    void plan_decoding(Arena& arena, std::int64_t tokens) const override {
        const std::size_t mark = arena.mark();
        allocate_decoding(arena, tokens);
        arena.release(mark);
    }

    void start_sequence(Backend&, MixerState& state) const override { static_cast<AttentionState&>(state).first = 0; }

    void decode(Backend& backend, Arena& workspace, Tensor out, MixerState& kept, Tensor x,
                std::int64_t position) override {
        auto& state = static_cast<AttentionState&>(kept);
        const std::size_t mark = workspace.mark();
        const std::int64_t count = x.rows();
        const AttentionSaved pass = allocate_decoding(workspace, count);
        if (position - state.first + count > state.keys.rows()) forget(backend, state, position);
        const std::int64_t row = position - state.first, seen = row + count;
        const Tensor k = state.keys.slice(row, count), v = state.values.slice(row, count);
        inputs_.forward(backend, {query_norm_ ? pass.projected_q : pass.q, key_norm_ ? pass.projected_k : k, v}, x);
        norm_and_rotate(backend, pass.q, k, pass, count, position);
        backend.attention_forward(pass.y, pass.log_sum_exp, pass.q, state.keys.slice(0, seen),
                                  state.values.slice(0, seen), attention_shape(1, count, seen));
        output_.forward(backend, out, pass.y);
        workspace.release(mark);
    }

  private:
    std::int64_t query_width() const { return inputs_.outputs(0); }
    std::int64_t key_width() const { return inputs_.outputs(1); }

    // Norms and rotations read and write once what attention reads many times: cheap to compute again.
    bool recomputes_heads(Recompute recompute) const { return query_norm_ && recomputes_cheap(recompute); }

    std::pair<Tensor, Tensor> allocate_heads(Arena& arena, std::int64_t rows) const {
        const Tensor q = arena.allocate(type_, {rows, query_width()});
        return {q, arena.allocate(type_, {rows, key_width()})};
    }
    std::pair<Tensor, Tensor> kept_heads(Arena& workspace, const AttentionSaved& saved, std::int64_t rows) const {
        return saved.q.axes() > 0 ? std::pair(saved.q, saved.k) : allocate_heads(workspace, rows);
    }

    // Fills q and k from what was projected, or, without norms, turns them in place.
    void norm_and_rotate(Backend& backend, Tensor q, Tensor k, const AttentionSaved& saved, std::int64_t length,
                         std::int64_t position) const {
        if (query_norm_) {
            query_norm_->forward(backend, heads_of(q), saved.q_statistics, heads_of(saved.projected_q));
            key_norm_->forward(backend, heads_of(k), saved.k_statistics, heads_of(saved.projected_k));
        }
        rotate_heads(backend, q, k, length, position, false);
    }

    void norm_backward(Backend& backend, const Norm& norm, Tensor dx, Tensor dy, Tensor x,
                       const Norm::Statistics& statistics) const {
        norm.backward(backend, heads_of(dx), heads_of(dy), heads_of(x), statistics, Accumulate::no);
    }

    // [N, heads · f] as a row for each head
    Tensor heads_of(Tensor x) const { return x.reshaped({x.count() / head_width_, head_width_}); }

    static Tensor first_elements(Tensor tensor, const Shape& shape) {
        return tensor.reshaped({tensor.count()}).slice(0, element_count(shape)).reshaped(shape);
    }

    struct Gradients {
        Tensor dy, dq, dk, dv;
    };
    Gradients allocate_gradients(Arena& arena, std::int64_t rows) const {
        const auto make = [&](std::int64_t columns) { return arena.allocate(type_, {rows, columns}); };
        const Tensor dy = make(query_width());
        if (query_norm_) return {dy, make(query_width()), make(key_width()), make(key_width())};
        const auto projected = inputs_.allocate(arena, type_, rows);
        return {dy, projected[0], projected[1], projected[2]};
    }

    // Keys and values go to the state.
    AttentionSaved allocate_decoding(Arena& arena, std::int64_t tokens) const {
        AttentionSaved pass;
        pass.q = arena.allocate(type_, {tokens, query_width()});
        pass.y = arena.allocate(type_, {tokens, query_width()});
        pass.log_sum_exp = arena.allocate(Type::fp32, {1, heads_, tokens});
        if (!query_norm_) return pass;
        std::tie(pass.projected_q, pass.projected_k) = allocate_heads(arena, tokens);
        query_norm_->plan(arena, pass.q_statistics, tokens * heads_);
        key_norm_->plan(arena, pass.k_statistics, tokens * key_heads_);
        return pass;
    }

    // Keeps what the window of the token at `position` has before it.
    void forget(Backend& backend, AttentionState& state, std::int64_t position) const {
        const std::int64_t kept = window_ - 1, from = position - state.first - kept;
        LOCKSTEP_ASSERT(window_ > 0 && from >= kept);
        if (kept > 0)
            for (const Tensor& rows : {state.keys, state.values})
                backend.copy(rows.slice(0, kept), rows.slice(from, kept));
        state.first = position - kept;
    }

    AttentionShape attention_shape(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                                   const kernels::Documents& documents = {}) const {
        const std::int64_t window = window_ < keys ? window_ : 0;  // of fewer keys it hides none
        return {batch, queries, keys, heads_, key_heads_, head_width_, keys - queries, window, score_cap_, documents};
    }

    // Of this rank's stretch of a sequence.
    std::int64_t first_position(const PassShape& shape) const { return stretch_ * shape.length; }

    void rotate_heads(Backend& backend, Tensor q, Tensor k, std::int64_t length, std::int64_t position,
                      bool inverse) const {
        LOCKSTEP_ASSERT(!rotary_ || position + length <= rotary_->cosine.size(0));
        if (rotary_) rotate(backend, *rotary_, q, k, length, position, RotaryPairs::halves, inverse);
    }

    std::int64_t heads_, key_heads_;  // of this rank
    std::int64_t head_width_;
    std::int64_t window_;  // 0: none
    float score_cap_;
    std::int64_t stretch_;  // its place along divided sequences
    bool adds_bias_;
    Type type_;
    Projections inputs_;  // queries, keys, values
    Linear output_;
    std::optional<Norm> query_norm_, key_norm_;  // over each head
    std::optional<RotaryTable> rotary_;
    std::optional<DividedAttention> divided_;
};

class AttentionType final : public MixerType {
  public:
    AttentionType() : MixerType("attention") {}

    bool keeps_documents_apart() const override { return true; }

    void check(const config::ModelDescription& model, const config::LayerShape& layer) const override {
        if (model.position == config::Position::rope && layer.head_width % 2 != 0)
            throw usage_error(
                "model.head_width = {}: rotation needs an even width; change it, or model.width = {} over "
                "model.heads = {}",
                layer.head_width, model.width, layer.heads);
        if (model.rope_scaling != config::RopeScaling::none && model.position != config::Position::rope)
            throw usage_error(
                "model.rope_scaling = {} needs model.position = \"rope\", but it is {}; change one of them",
                config::toml_text(config::word_of(model.rope_scaling)),
                config::toml_text(config::word_of(model.position)));
    }

    std::string why_impossible(const config::ModelDescription& model, const config::LayerShape& layer,
                               const MixerLayout& layout) const override {
        if (const std::string why = MixerType::why_impossible(model, layer, layout); !why.empty()) return why;
        if (layer.kv_heads % layout.tensor != 0)
            return fmt::format(
                "parallel.tensor = {} does not divide model.kv_heads = {}: heads of keys and values are divided, never "
                "copied",
                layout.tensor, layer.kv_heads);
        return "";
    }

    void describe(const config::ModelDescription& model, const config::LayerShape& layer,
                  ParameterLister& lister) const override {
        const std::int64_t d = model.width, f = layer.head_width;
        const std::int64_t query_width = layer.heads * f, key_width = layer.kv_heads * f;
        const bool all = model.bias == config::Bias::all, qkv = all || model.bias == config::Bias::qkv;
        lister.linear_layers({{"query", query_width}, {"key", key_width}, {"value", key_width}}, d, Split::axis0, qkv);
        lister.linear("output", d, query_width, Split::axis1, all, lister.residual_deviation());
        if (!model.qk_norm) return;
        for (const char* norm : {"query_norm/weight", "key_norm/weight"})  // shared by the heads
            lister.exact(norm, {f}, Initial::one, Split::none).gradient_part = GradientPart::of_heads;
    }

    std::int64_t scratch_floats(const config::ModelDescription&, const config::LayerShape& layer, std::int64_t tensor,
                                const PassShape& shape, Type compute, int threads) const override {
        return kernels::cpu::attention_scratch_floats(
            {shape.batch, shape.length, shape.length, layer.heads / tensor, layer.kv_heads / tensor, layer.head_width},
            compute, threads);
    }

    SequenceDivision sequence_division() const override { return SequenceDivision::exchange; }

    // Causal: half of the full square.
    bool scores_pairs() const override { return true; }

    std::unique_ptr<Mixer> make(Backend& backend, const ParameterSet& parameters, const config::ModelDescription& model,
                                const config::LayerShape& layer, const Neighbours& neighbours) const override {
        return std::make_unique<AttentionMixer>(backend, parameters, mixer_prefix(layer.number), model, layer,
                                                neighbours);
    }
};

}  // namespace

std::unique_ptr<MixerType> attention_type() {
    return std::make_unique<AttentionType>();
}

}  // namespace lockstep::model
