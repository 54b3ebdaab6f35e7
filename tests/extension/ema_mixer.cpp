#include "extension/ema_mixer.hpp"

#include <cmath>

#include "base/error.hpp"
#include "model/layers.hpp"
#include "model/mixer.hpp"

namespace lockstep::test {
namespace {

using kernels::Accumulate;
using kernels::Backend;
using kernels::CustomWork;
using model::Direction;
using model::Neighbours;
using model::PassShape;
using model::Recompute;

struct EmaSaved final : model::MixerSaved {
    Tensor projected;         // [N, d] of the compute type: the values, then the averages
    Tensor values, averages;  // fp32 [N, d]
};

struct EmaState final : model::MixerState {
    Tensor average;  // fp32 [1, d]
};

class EmaMixer final : public model::Mixer {
  public:
    EmaMixer(const model::ParameterSet& parameters, const std::string& prefix, const config::LayerShape& layer,
             double floor, const Neighbours& neighbours)
        : heads_(neighbours.group.part().count(layer.heads)),
          head_width_(layer.head_width),
          floor_(floor),
          type_(parameters.compute_type()),
          value_(parameters, prefix + "value"),
          output_(parameters, prefix + "output"),
          rate_(parameters.value(prefix + "rate")),
          drate_(parameters.gradient_or_spare(prefix + "rate")) {}

    std::unique_ptr<model::MixerSaved> plan(Arena& arena, const PassShape& shape, bool, Recompute) const override {
        auto saved = std::make_unique<EmaSaved>();
        saved->projected = arena.allocate(type_, rows(shape));
        saved->values = arena.allocate(Type::fp32, rows(shape));
        saved->averages = arena.allocate(Type::fp32, rows(shape));
        return saved;
    }

    void plan_workspace(Arena& arena, const PassShape& shape, Recompute, Direction direction) const override {
        if (direction == Direction::forward) return;
        const std::size_t mark = arena.mark();
        allocate_gradients(arena, shape);
        arena.release(mark);
    }

    void forward(Backend& backend, Arena&, Tensor y, model::MixerSaved& kept, model::MixerCarry*, Tensor x,
                 const PassShape& shape, bool) override {
        auto& saved = static_cast<EmaSaved&>(kept);
        project(backend, saved, x);
        backend.custom(work("ema_forward", shape, 3, 2), [=, this] {
            for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
                const std::int64_t first = sequence * shape.length;
                average(saved.averages.slice(first, shape.length), saved.values.slice(first, shape.length), nullptr);
            }
        });
        backend.copy(saved.projected, saved.averages);
        output_.forward(backend, y, saved.projected);
    }

    void backward(Backend& backend, Arena& workspace, model::InputGradient& dx, Tensor dy, model::MixerSaved& kept,
                  model::MixerCarry*, Tensor x, const PassShape& shape) override {
        auto& saved = static_cast<EmaSaved&>(kept);
        const std::size_t mark = workspace.mark();
        const auto [dprojected, daverages] = allocate_gradients(workspace, shape);
        output_.backward_input(backend, dprojected, dy, Accumulate::no);
        backend.copy(daverages, dprojected);
        backend.custom(work("ema_backward", shape, 7, 4), [=, this, gradient = daverages] {
            for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence) {
                const std::int64_t first = sequence * shape.length;
                differentiate(gradient.slice(first, shape.length), saved.averages.slice(first, shape.length),
                              saved.values.slice(first, shape.length));
            }
        });
        backend.copy(dprojected, daverages);  // now the gradient of the values
        value_.backward_input(backend, dx.part(), dprojected, Accumulate::no);
        dx.complete();
        value_.backward_parameters(backend, dprojected, x);
        output_.backward_parameters(backend, dy, saved.projected);
        workspace.release(mark);
    }

    std::unique_ptr<model::MixerState> plan_state(Arena& arena, std::int64_t, std::int64_t) const override {
        auto state = std::make_unique<EmaState>();
        state->average = arena.allocate(Type::fp32, {1, heads_ * head_width_});
        return state;
    }

    void plan_decoding(Arena& arena, std::int64_t tokens) const override {
        const std::size_t mark = arena.mark();
        plan(arena, {1, tokens}, false, Recompute::none);
        arena.release(mark);
    }

    void start_sequence(Backend& backend, model::MixerState& state) const override {
        backend.fill(static_cast<EmaState&>(state).average, 0);
    }

    void decode(Backend& backend, Arena& workspace, Tensor y, model::MixerState& kept, Tensor x,
                std::int64_t) override {
        const Tensor last = static_cast<EmaState&>(kept).average;
        const std::size_t mark = workspace.mark();
        const PassShape shape{1, x.rows()};
        const auto planned = plan(workspace, shape, false, Recompute::none);
        auto& saved = static_cast<EmaSaved&>(*planned);
        project(backend, saved, x);
        backend.custom(work("ema_decode", shape, 3, 2),
                       [=, this] { average(saved.averages, saved.values, last.fp32()); });
        backend.copy(last, saved.averages.slice(shape.length - 1, 1));
        backend.copy(saved.projected, saved.averages);
        output_.forward(backend, y, saved.projected);
        workspace.release(mark);
    }

  private:
    struct Gradients {
        Tensor projected, averages;
    };
    Gradients allocate_gradients(Arena& arena, const PassShape& shape) const {
        return {arena.allocate(type_, rows(shape)), arena.allocate(Type::fp32, rows(shape))};
    }

    Shape rows(const PassShape& shape) const { return {shape.rows(), heads_ * head_width_}; }

    CustomWork work(const char* name, const PassShape& shape, double flop, double moved) const {
        const auto elements = static_cast<double>(element_count(rows(shape)));
        return {name, flop * elements, moved * elements * sizeof(float)};
    }

    void project(Backend& backend, const EmaSaved& saved, Tensor x) const {
        value_.forward(backend, saved.projected, x);
        backend.copy(saved.values, saved.projected);
    }

    float sigmoid(std::int64_t column) const { return 1 / (1 + std::exp(-rate_.fp32()[column / head_width_])); }
    float share_kept(std::int64_t column) const {
        const auto floor = static_cast<float>(floor_);
        return floor + (1 - floor) * sigmoid(column);
    }

    // One sequence; `before` [d]: the average before its first token, null for zeros.
    void average(Tensor averages, Tensor values, const float* before) const {
        const std::int64_t length = values.size(0), width = values.size(1);
        for (std::int64_t column = 0; column < width; ++column) {
            const float kept = share_kept(column);
            float state = before ? before[column] : 0;
            for (std::int64_t token = 0; token < length; ++token) {
                state = kept * state + (1 - kept) * values.fp32()[token * width + column];
                averages.fp32()[token * width + column] = state;
            }
        }
    }

    // gradient: in, that of the averages; out, that of the values.
    void differentiate(Tensor gradient, Tensor averages, Tensor values) const {
        const std::int64_t length = values.size(0), width = values.size(1);
        for (std::int64_t column = 0; column < width; ++column) {
            const float kept = share_kept(column), share = sigmoid(column);
            float of_state = 0;
            double of_kept = 0;
            for (std::int64_t token = length - 1; token >= 0; --token) {
                const std::int64_t at = token * width + column;
                of_state = gradient.fp32()[at] + kept * of_state;
                const float before = token > 0 ? averages.fp32()[at - width] : 0;
                of_kept += of_state * (before - values.fp32()[at]);
                gradient.fp32()[at] = (1 - kept) * of_state;
            }
            drate_.fp32()[column / head_width_] += static_cast<float>(of_kept * (1 - floor_)) * share * (1 - share);
        }
    }

    std::int64_t heads_, head_width_;  // heads of this rank
    double floor_;
    Type type_;
    model::Linear value_, output_;
    Tensor rate_, drate_;
};

class EmaType final : public model::MixerType {
  public:
    EmaType() : MixerType("ema", "ema", {{"floor", 0.0, "Least share of the average that a token leaves.", 0, 1}}) {}

    void check(const config::ModelDescription& model, const config::LayerShape&) const override {
        if (floor(model) == 1) throw usage_error("model.ema.floor = 1: the average would never change; lower it");
    }

    void describe(const config::ModelDescription& model, const config::LayerShape& layer,
                  model::ParameterLister& lister) const override {
        const std::int64_t d = model.width;
        lister.linear("value", d, d, model::Split::axis0, false);
        lister.linear("output", d, d, model::Split::axis1, false, lister.residual_deviation());
        lister.exact("rate", {layer.heads}, model::Initial::zero, model::Split::axis0);
    }

    std::unique_ptr<model::Mixer> make(Backend& backend, const model::ParameterSet& parameters,
                                       const config::ModelDescription& model, const config::LayerShape& layer,
                                       const Neighbours& neighbours) const override {
        if (backend.device().kind == DeviceKind::cuda && !backend.device().imaginary)
            throw usage_error("model.mixer = \"ema\" computes on CPUs only; set run.device = \"cpu\"");
        return std::make_unique<EmaMixer>(parameters, model::mixer_prefix(layer.number), layer, floor(model),
                                          neighbours);
    }

  private:
    static double floor(const config::ModelDescription& model) { return model.options.at("ema").number("floor"); }
};

const bool registered = model::register_mixer(ema_type());

}  // namespace

std::unique_ptr<model::MixerType> ema_type() {
    return std::make_unique<EmaType>();
}

}  // namespace lockstep::test
