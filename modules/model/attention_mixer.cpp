// Causal attention with grouped keys and values: output(attention(rotate(query x), rotate(key x), value x)).
#include <optional>

#include "model/layers.hpp"
#include "model/mixer.hpp"
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
          query_(parameters, prefix + "mixer/query"),
          key_(parameters, prefix + "mixer/key"),
          value_(parameters, prefix + "mixer/value"),
          output_(parameters, prefix + "mixer/output") {
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

    std::unique_ptr<MixerCarry> plan_carry(Arena&, const PassShape&) const override { return nullptr; }

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
        const Tensor dy = workspace.allocate(type_, saved.y.shape());
        const Tensor dq = workspace.allocate(type_, saved.q.shape());
        const Tensor dk = workspace.allocate(type_, saved.k.shape());
        const Tensor dv = workspace.allocate(type_, saved.v.shape());
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

    void start_sequence(Backend&, MixerState&) const override {}

    void decode(Backend& backend, Arena& workspace, Tensor out, MixerState& kept, Tensor x,
                std::int64_t position) override {
        auto& state = static_cast<AttentionState&>(kept);
        const std::size_t mark = workspace.mark();
        const std::int64_t count = x.rows(), seen = position + count;
        const Tensor q = workspace.allocate(type_, {count, model_.width});
        const Tensor y = workspace.allocate(type_, {count, model_.width});
        const Tensor log_sum_exp = workspace.allocate(Type::fp32, {1, model_.heads, count});
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
    AttentionShape attention_shape(std::int64_t batch, std::int64_t queries, std::int64_t keys) const {
        return {batch, queries, keys, heads_, key_heads_, model_.head_width()};
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

}  // namespace

std::unique_ptr<Mixer> make_attention_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                            const config::ModelDescription& model, const Neighbours& neighbours) {
    return std::make_unique<AttentionMixer>(backend, parameters, block_prefix(number), model, neighbours.group);
}

}  // namespace lockstep::model
