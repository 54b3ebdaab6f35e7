#include "model/parameters.hpp"

#include <cmath>

#include "base/random.hpp"
#include "device/parallel.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t convolution_kernel = 4;
constexpr double deviation = 0.02;

class Lister {
  public:
    Lister(const config::ModelDescription& model, std::vector<ParameterDescription>& list)
        : model_(model), list_(list) {}

    void embedding() {
        matrix("embedding/weight", {model_.vocabulary, model_.width}, Split::axis0);
        if (model_.position == "learned") matrix("position/weight", {model_.context, model_.width}, Split::none);
    }

    void head() {
        norm("final_norm");
        if (!model_.tied_head) matrix("head/weight", {model_.vocabulary, model_.width}, Split::axis0);
    }

    void block(std::int64_t number) {
        prefix_ = "blocks/" + std::to_string(number) + "/";
        if (model_.is_ttt() && model_.ttt.pre_conv) {
            norm("pre_convolution_norm");
            convolution("pre_convolution", Split::none);
        }
        norm("mixer_norm");
        model_.is_ttt() ? ttt_mixer() : attention_mixer();
        norm("mlp_norm");
        mlp();
        prefix_.clear();
    }

  private:
    void add(const std::string& name, const Shape& shape, Initial initial, double width, Split split, bool is_matrix) {
        list_.push_back({prefix_ + name, shape, initial, width, split, is_matrix});
    }
    void matrix(const std::string& name, const Shape& shape, Split split, double width = deviation) {
        add(name, shape, Initial::normal, width, split, true);
    }
    void zeros(const std::string& name, const Shape& shape, Split split) {
        add(name, shape, Initial::zero, 0, split, false);
    }
    void ones(const std::string& name, const Shape& shape, Split split) {
        add(name, shape, Initial::one, 0, split, false);
    }

    void norm(const std::string& name) {
        ones(name + "/weight", {model_.width}, Split::none);
        if (model_.norm == "layer") zeros(name + "/bias", {model_.width}, Split::none);
    }

    void convolution(const std::string& name, Split split) {
        add(name + "/weight", {model_.width, 1, convolution_kernel}, Initial::convolution, 0, split, false);
        add(name + "/bias", {model_.width}, Initial::convolution, 0, split, false);
    }

    void linear(const std::string& name, std::int64_t out, std::int64_t in, Split split, bool bias,
                double width = deviation) {
        matrix(name + "/weight", {out, in}, split, width);
        if (bias) zeros(name + "/bias", {out}, split == Split::axis0 ? Split::axis0 : Split::none);
    }

    // GPT-2's scaling of the projections that write to the residual stream; the TTT papers' models do without.
    double residual_deviation() const {
        return model_.is_ttt() ? deviation : deviation / std::sqrt(2.0 * static_cast<double>(model_.layers));
    }

    void attention_mixer() {
        const std::int64_t d = model_.width, key_width = model_.kv_heads * model_.head_width();
        const bool all = model_.bias == "all", qkv = all || model_.bias == "qkv";
        linear("mixer/query", d, d, Split::axis0, qkv);
        linear("mixer/key", key_width, d, Split::axis0, qkv);
        linear("mixer/value", key_width, d, Split::axis0, qkv);
        linear("mixer/output", d, d, Split::axis1, all, residual_deviation());
    }

    void ttt_mixer() {
        const std::int64_t d = model_.width, heads = model_.heads, f = model_.head_width();
        const bool mlp_inner = model_.mixer == "ttt-mlp";
        const std::int64_t g = mlp_inner ? 4 * f : f;
        linear("mixer/query", d, d, Split::axis0, false);
        if (model_.ttt.share_qk) {
            convolution("mixer/query_convolution", Split::axis0);
            convolution("mixer/key_convolution", Split::axis0);
        } else {
            linear("mixer/key", d, d, Split::axis0, false);
        }
        linear("mixer/value", d, d, Split::axis0, false);
        if (model_.ttt.gate) linear("mixer/gate", d, d, Split::axis0, false);
        linear("mixer/output", d, d, Split::axis1, false, residual_deviation());
        matrix("mixer/inner/weight1", {heads, f, g}, Split::axis0);
        zeros("mixer/inner/bias1", {heads, 1, g}, Split::axis0);
        if (mlp_inner) {
            matrix("mixer/inner/weight2", {heads, g, f}, Split::axis0);
            zeros("mixer/inner/bias2", {heads, 1, f}, Split::axis0);
        }
        ones("mixer/inner_norm/weight", {heads, f}, Split::axis0);
        zeros("mixer/inner_norm/bias", {heads, f}, Split::axis0);
        matrix("mixer/step_size/weight", {heads, 1, d}, Split::axis0);
        zeros("mixer/step_size/bias", {heads, 1}, Split::axis0);
        zeros("mixer/token_step", {model_.ttt.mini_batch}, Split::none);
        ones("mixer/post_norm/weight", {d}, Split::axis0);
        zeros("mixer/post_norm/bias", {d}, Split::axis0);
    }

    void mlp() {
        const std::int64_t d = model_.width, hidden = model_.mlp_width;
        const bool bias = model_.bias == "all";
        if (model_.mlp == "swiglu") linear("mlp/gate", hidden, d, Split::axis0, bias);
        linear("mlp/up", hidden, d, Split::axis0, bias);
        linear("mlp/down", d, hidden, Split::axis1, bias, residual_deviation());
    }

    const config::ModelDescription& model_;
    std::vector<ParameterDescription>& list_;
    std::string prefix_;
};

}  // namespace

StageRange whole_model(const config::ModelDescription& model) {
    return {0, model.layers, true, true};
}

std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model, const StageRange& range) {
    std::vector<ParameterDescription> list;
    Lister lister(model, list);
    if (range.embedding || (range.head && model.tied_head)) lister.embedding();
    for (std::int64_t number = range.first_block; number < range.last_block; ++number) lister.block(number);
    if (range.head) lister.head();
    return list;
}

std::int64_t parameter_count(const config::ModelDescription& model) {
    std::int64_t count = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model)))
        count += element_count(parameter.shape);
    return count;
}

ParameterSet::ParameterSet(Device device, std::vector<ParameterDescription> descriptions, bool with_gradients,
                           Type compute)
    : descriptions_(std::move(descriptions)), compute_(compute) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < descriptions_.size(); ++i) {
        index_[descriptions_[i].name] = i;
        offsets_.push_back(total);
        total += (element_count(descriptions_[i].shape) + alignment - 1) / alignment * alignment;
    }
    const auto make = [&](Arena& arena, Type type, const char* name) {
        arena = Arena(device, static_cast<std::size_t>(total) * type_bytes(type) + Arena::device_alignment, name);
        return arena.allocate(type, {total});
    };
    all_values_ = make(values_, Type::fp32, "parameters");
    if (compute_ != Type::fp32) all_working_ = make(working_, compute_, "working parameters");
    if (with_gradients) all_gradients_ = make(gradients_, Type::fp32, "gradients");
}

std::size_t ParameterSet::at(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) throw fault_error("the model has no parameter named {}", name);
    return found->second;
}

Tensor ParameterSet::part(Tensor all, std::size_t index) const {
    if (all.empty()) return {};
    const Shape& shape = descriptions_[index].shape;
    return all.slice(offsets_[index], element_count(shape)).reshaped(shape);
}

Tensor ParameterSet::value(const std::string& name) const {
    return part(all_values_, at(name));
}
Tensor ParameterSet::gradient(const std::string& name) const {
    return part(all_gradients_, at(name));
}

Tensor ParameterSet::working(const std::string& name) const {
    return part(compute_ == Type::fp32 ? all_values_ : all_working_, at(name));
}

void ParameterSet::initialize(kernels::Backend& backend, std::uint64_t seed) {
    std::vector<float> values;
    for (std::size_t i = 0; i < descriptions_.size(); ++i) {
        const ParameterDescription& parameter = descriptions_[i];
        const Tensor tensor = part(all_values_, i);
        values.resize(static_cast<std::size_t>(tensor.count()));
        const RandomStream random(seed, "parameter/" + parameter.name);
        const double bound = 1.0 / std::sqrt(static_cast<double>(convolution_kernel));
        parallel_for(tensor.count(), 4096, [&](std::int64_t first, std::int64_t last, int) {
            for (std::int64_t e = first; e < last; ++e) {
                const auto index = static_cast<std::uint64_t>(e);
                float& value = values[static_cast<std::size_t>(e)];
                switch (parameter.initial) {
                    case Initial::normal:
                        value = static_cast<float>(parameter.deviation * random.normal(index));
                        break;
                    case Initial::zero:
                        value = 0;
                        break;
                    case Initial::one:
                        value = 1;
                        break;
                    case Initial::convolution:
                        value = static_cast<float>(bound * (2 * random.uniform(index) - 1));
                        break;
                }
            }
        });
        backend.upload(tensor, values.data());
    }
    refresh_working(backend);
}

void ParameterSet::refresh_working(kernels::Backend& backend) {
    if (!all_working_.empty()) backend.copy(all_working_, all_values_);
}

}  // namespace lockstep::model
