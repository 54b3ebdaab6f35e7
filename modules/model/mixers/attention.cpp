// Causal attention with grouped keys and values: output(attention(rotate(query x), rotate(key x), value x)).
#include "model/mixers/attention.hpp"

#include <fmt/format.h>

#include <optional>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "model/layers.hpp"
#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"
#include "model/rotary_table.hpp"

namespace lockstep::model {
namespace {

using kernels::AttentionShape;
using kernels::RotaryPairs;

struct AttentionSaved final : MixerSaved {
    Tensor q, k, v, y;   // [N, H·f], [N, G·f], [N, G·f], [N, H·f]; q and k rotated
    Tensor log_sum_exp;  // [B, H, L]
};

struct AttentionState final : MixerState {
    Tensor keys, values;  // [context, G·f]; rotated keys
};

class AttentionMixer final : public Mixer {
  public:
    AttentionMixer(Backend& backend, const ParameterSet& parameters, const std::string& prefix,
                   const config::ModelDescription& model, const TensorGroup& group)
        : model_(model),
          heads_(group.part().count(model.heads)),
          key_heads_(group.part().count(model.kv_heads)),
          adds_bias_(group.first()),
          type_(parameters.compute_type()),
          query_(parameters, prefix + "query"),
          key_(parameters, prefix + "key"),
          value_(parameters, prefix + "value"),
          output_(parameters, prefix + "output") {
        if (model.position == config::Position::rope) rotary_.emplace(backend, model, model.context);
    }

    std::unique_ptr<MixerSaved> plan(Arena& arena, const PassShape& shape, bool) const override {
        auto saved = std::make_unique<AttentionSaved>();
        const std::int64_t rows = shape.rows(), key_width = key_.outputs();
        saved->q = arena.allocate(type_, {rows, query_.outputs()});
        saved->k = arena.allocate(type_, {rows, key_width});
        saved->v = arena.allocate(type_, {rows, key_width});
        saved->y = arena.allocate(type_, {rows, query_.outputs()});
        saved->log_sum_exp = arena.allocate(Type::fp32, {shape.batch, heads_, shape.length});
        return saved;
    }

    void plan_workspace(Arena& arena, const PassShape& shape, Direction direction) const override {
        if (direction == Direction::forward) return;
        const std::size_t mark = arena.mark();
        allocate_gradients(arena, shape.rows());
        arena.release(mark);
    }

    void forward(Backend& backend, Arena&, Tensor out, MixerSaved& kept, MixerCarry*, Tensor x, const PassShape& shape,
                 bool) override {
        auto& saved = static_cast<AttentionSaved&>(kept);
        query_.forward(backend, saved.q, x);
        key_.forward(backend, saved.k, x);
        value_.forward(backend, saved.v, x);
        rotate(backend, saved.q, shape.length, 0, false);
        rotate(backend, saved.k, shape.length, 0, false);
        backend.attention_forward(saved.y, saved.log_sum_exp, saved.q, saved.k, saved.v,
                                  attention_shape(shape.batch, shape.length, shape.length));
        output_.forward_part(backend, out, saved.y, {}, adds_bias_);
    }

    void backward(Backend& backend, Arena& workspace, Tensor dx, Tensor dout, MixerSaved& kept, MixerCarry*, Tensor x,
                  const PassShape& shape) override {
        auto& saved = static_cast<AttentionSaved&>(kept);
        const std::size_t mark = workspace.mark();
        const auto [dy, dq, dk, dv] = allocate_gradients(workspace, shape.rows());
        output_.backward(backend, dy, dout, saved.y, Accumulate::no);
        backend.attention_backward(dq, dk, dv, dy, saved.q, saved.k, saved.v, saved.y, saved.log_sum_exp,
                                   attention_shape(shape.batch, shape.length, shape.length));
        rotate(backend, dq, shape.length, 0, true);
        rotate(backend, dk, shape.length, 0, true);
        query_.backward(backend, dx, dq, x, Accumulate::no);
        key_.backward(backend, dx, dk, x, Accumulate::yes);
        value_.backward(backend, dx, dv, x, Accumulate::yes);
        workspace.release(mark);
    }

    std::size_t table_bytes() const override { return rotary_ ? rotary_->memory.capacity() : 0; }

    std::unique_ptr<MixerState> plan_state(Arena& arena, std::int64_t context) const override {
        auto state = std::make_unique<AttentionState>();
        state->keys = arena.allocate(type_, {context, key_.outputs()});
        state->values = arena.allocate(type_, {context, key_.outputs()});
        return state;
    }

    void plan_decoding(Arena& arena, std::int64_t tokens) const override {
        const std::size_t mark = arena.mark();
        allocate_decoding(arena, tokens);
        arena.release(mark);
    }

    void start_sequence(Backend&, MixerState&) const override {}

    void decode(Backend& backend, Arena& workspace, Tensor out, MixerState& kept, Tensor x,
                std::int64_t position) override {
        auto& state = static_cast<AttentionState&>(kept);
        const std::size_t mark = workspace.mark();
        const std::int64_t count = x.rows(), seen = position + count;
        const auto [q, y, log_sum_exp] = allocate_decoding(workspace, count);
        const Tensor k = state.keys.slice(position, count), v = state.values.slice(position, count);
        query_.forward(backend, q, x);
        key_.forward(backend, k, x);
        value_.forward(backend, v, x);
        rotate(backend, q, count, position, false);
        rotate(backend, k, count, position, false);
        backend.attention_forward(y, log_sum_exp, q, state.keys.slice(0, seen), state.values.slice(0, seen),
                                  attention_shape(1, count, seen));
        output_.forward(backend, out, y);
        workspace.release(mark);
    }

  private:
    struct Gradients {
        Tensor dy, dq, dk, dv;
    };
    Gradients allocate_gradients(Arena& arena, std::int64_t rows) const {
        const auto make = [&](std::int64_t columns) { return arena.allocate(type_, {rows, columns}); };
        return {make(query_.outputs()), make(query_.outputs()), make(key_.outputs()), make(key_.outputs())};
    }

    struct Decoding {
        Tensor q, y, log_sum_exp;
    };
    Decoding allocate_decoding(Arena& arena, std::int64_t tokens) const {
        return {arena.allocate(type_, {tokens, query_.outputs()}), arena.allocate(type_, {tokens, query_.outputs()}),
                arena.allocate(Type::fp32, {1, model_.heads, tokens})};
    }

    AttentionShape attention_shape(std::int64_t batch, std::int64_t queries, std::int64_t keys) const {
        return {batch, queries, keys, heads_, key_heads_, model_.head_width};
    }

    void rotate(Backend& backend, Tensor x, std::int64_t length, std::int64_t position, bool inverse) const {
        LOCKSTEP_ASSERT(!rotary_ || position + length <= rotary_->cosine.size(0));
        if (rotary_) backend.rotate(x, rotary_->cosine, rotary_->sine, length, position, RotaryPairs::halves, inverse);
    }

    config::ModelDescription model_;
    std::int64_t heads_, key_heads_;  // of this rank
    bool adds_bias_;
    Type type_;
    Linear query_, key_, value_, output_;
    std::optional<RotaryTable> rotary_;
};

class AttentionType final : public MixerType {
  public:
    AttentionType() : MixerType("attention") {}

    void check(const config::ModelDescription& model) const override {
        if (model.position == config::Position::rope && model.head_width % 2 != 0)
            throw usage_error(
                "model.head_width = {}: rotation needs an even one; change it, or model.width = {} over model.heads = {}",
                model.head_width, model.width, model.heads);
        if (model.rope_scaling != config::RopeScaling::none && model.position != config::Position::rope)
            throw usage_error(
                "model.rope_scaling = {} needs model.position = \"rope\", but it is {}; change one of them",
                config::toml_text(config::word_of(model.rope_scaling)),
                config::toml_text(config::word_of(model.position)));
    }

    std::string why_impossible(const config::ModelDescription& model, const MixerLayout& layout) const override {
        if (layout.context > 1)
            return fmt::format(
                "parallel.context = {} divides sequences for {} only; attention looks at all tokens at once",
                layout.context, names_that_hand_over());
        if (const std::string why = MixerType::why_impossible(model, layout); !why.empty()) return why;
        if (model.kv_heads % layout.tensor != 0)
            return fmt::format(
                "parallel.tensor = {} does not divide model.kv_heads = {}: heads of keys and values are divided, never "
                "copied",
                layout.tensor, model.kv_heads);
        return "";
    }

    void describe(const config::ModelDescription& model, ParameterLister& lister) const override {
        const std::int64_t d = model.width, f = model.head_width;
        const std::int64_t query_width = model.heads * f, key_width = model.kv_heads * f;
        const bool all = model.bias == config::Bias::all, qkv = all || model.bias == config::Bias::qkv;
        lister.linear("query", query_width, d, Split::axis0, qkv);
        lister.linear("key", key_width, d, Split::axis0, qkv);
        lister.linear("value", key_width, d, Split::axis0, qkv);
        lister.linear("output", d, query_width, Split::axis1, all, lister.residual_deviation());
        if (!model.qk_norm) return;
        for (const char* norm : {"query_norm/weight", "key_norm/weight"})  // shared by the heads
            lister.exact(norm, {f}, Initial::one, Split::none).gradient_part = GradientPart::of_heads;
    }

    std::int64_t scratch_floats(const config::ModelDescription& model, std::int64_t tensor, const PassShape& shape,
                                Type compute, int threads) const override {
        return kernels::cpu::attention_scratch_floats(
            {shape.batch, shape.length, shape.length, model.heads / tensor, model.kv_heads / tensor, model.head_width},
            compute, threads);
    }

    // Causal: half of the full square.
    bool scores_pairs() const override { return true; }

    std::unique_ptr<Mixer> make(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                const config::ModelDescription& model, const Neighbours& neighbours) const override {
        return std::make_unique<AttentionMixer>(backend, parameters, mixer_prefix(number), model, neighbours.group);
    }
};

}  // namespace

std::unique_ptr<MixerType> attention_type() {
    return std::make_unique<AttentionType>();
}

}  // namespace lockstep::model
