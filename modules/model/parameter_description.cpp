#include "model/parameter_description.hpp"

#include <algorithm>
#include <cmath>

#include "model/frozen.hpp"

namespace lockstep::model {
namespace {

constexpr std::int64_t convolution_kernel = 4;
constexpr double deviation = 0.02;

class Lister {
  public:
    Lister(const config::ModelDescription& model, std::vector<ParameterDescription>& list)
        : model_(model), list_(list) {}

    void table() { matrix("embedding/weight", {model_.vocabulary, model_.width}, Split::axis0); }
    void position() {
        if (model_.position == config::Position::learned)
            matrix("position/weight", {model_.context, model_.width}, Split::none);
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
    ParameterDescription& add(const std::string& name, const Shape& shape, Initial initial, Split split) {
        ParameterDescription parameter;
        parameter.name = prefix_ + name;
        parameter.trained = !is_frozen(model_, parameter.name);
        parameter.shape = shape;
        parameter.initial = initial;
        parameter.split = split;
        list_.push_back(std::move(parameter));
        return list_.back();
    }
    ParameterDescription& matrix(const std::string& name, const Shape& shape, Split split, double width = deviation) {
        ParameterDescription& added = add(name, shape, Initial::normal, split);
        added.deviation = width;
        added.matrix = true;
        return added;
    }
    // Vectors that kernels take in fp32.
    ParameterDescription& exact(const std::string& name, const Shape& shape, Initial initial, Split split) {
        ParameterDescription& added = add(name, shape, initial, split);
        added.exact = true;
        return added;
    }

    void norm(const std::string& name) {
        exact(name + "/weight", {model_.width}, Initial::one, Split::none).gradient_part = GradientPart::of_the_rows;
        if (model_.norm == config::NormKind::layer)
            exact(name + "/bias", {model_.width}, Initial::zero, Split::none).gradient_part = GradientPart::of_the_rows;
    }

    void convolution(const std::string& name, Split split) {
        exact(name + "/weight", {model_.width, 1, convolution_kernel}, Initial::convolution, split);
        exact(name + "/bias", {model_.width}, Initial::convolution, split);
    }

    void linear(const std::string& name, std::int64_t out, std::int64_t in, Split split, bool bias,
                double width = deviation) {
        matrix(name + "/weight", {out, in}, split, width);
        if (bias) add(name + "/bias", {out}, Initial::zero, split == Split::axis0 ? Split::axis0 : Split::none);
    }

    // GPT-2's scaling of the projections that write to the residual stream; the TTT papers' models do without.
    double residual_deviation() const {
        return model_.is_ttt() ? deviation : deviation / std::sqrt(2.0 * static_cast<double>(model_.layers));
    }

    void attention_mixer() {
        const std::int64_t d = model_.width, key_width = model_.kv_heads * model_.head_width();
        const bool all = model_.bias == config::Bias::all, qkv = all || model_.bias == config::Bias::qkv;
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
        matrix("mixer/inner/weight1", {heads, f, g}, Split::axis0).exact = true;
        exact("mixer/inner/bias1", {heads, 1, g}, Initial::zero, Split::axis0);
        if (mlp_inner) {
            matrix("mixer/inner/weight2", {heads, g, f}, Split::axis0).exact = true;
            exact("mixer/inner/bias2", {heads, 1, f}, Initial::zero, Split::axis0);
        }
        exact("mixer/inner_norm/weight", {heads, f}, Initial::one, Split::axis0);
        exact("mixer/inner_norm/bias", {heads, f}, Initial::zero, Split::axis0);
        matrix("mixer/step_size/weight", {heads, 1, d}, Split::axis0);
        exact("mixer/step_size/bias", {heads, 1}, Initial::zero, Split::axis0);
        exact("mixer/token_step", {model_.ttt.mini_batch}, Initial::zero, Split::none).gradient_part =
            GradientPart::of_heads;
        exact("mixer/post_norm/weight", {d}, Initial::one, Split::axis0);
        exact("mixer/post_norm/bias", {d}, Initial::zero, Split::axis0);
    }

    void mlp() {
        const std::int64_t d = model_.width, hidden = model_.mlp_width;
        const bool bias = model_.bias == config::Bias::all;
        if (model_.mlp == config::MlpKind::swiglu) linear("mlp/gate", hidden, d, Split::axis0, bias);
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

std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model,
                                                      const std::vector<StageRange>& ranges) {
    const auto any = [&](bool StageRange::*end) {
        return std::any_of(ranges.begin(), ranges.end(), [&](const StageRange& range) { return range.*end; });
    };
    const bool embedding = any(&StageRange::embedding), head = any(&StageRange::head);
    std::vector<ParameterDescription> list;
    Lister lister(model, list);
    if (embedding || (head && model.tied_head)) lister.table();
    if (embedding) lister.position();
    for (const StageRange& range : ranges)
        for (std::int64_t number = range.first_block; number < range.last_block; ++number) lister.block(number);
    if (head) lister.head();
    return list;
}

std::vector<ParameterDescription> describe_parameters(const config::ModelDescription& model, const StageRange& range) {
    return describe_parameters(model, std::vector<StageRange>{range});
}

std::int64_t parameter_count(const config::ModelDescription& model) {
    std::int64_t count = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model)))
        count += element_count(parameter.shape);
    return count;
}

Slice slice_of(const ParameterDescription& parameter, const Part& part) {
    Slice slice;
    slice.axis = parameter.split == Split::axis1 ? 1 : 0;
    slice.shape = parameter.shape;
    const Part taken = parameter.split == Split::none ? Part{} : part;
    std::int64_t& extent = slice.shape[static_cast<std::size_t>(slice.axis)];
    slice.offset = taken.first(extent);
    slice.extent = extent = taken.count(extent);
    return slice;
}

ParameterLayout::ParameterLayout(std::vector<ParameterDescription> descriptions, Part part)
    : descriptions_(std::move(descriptions)) {
    std::stable_partition(descriptions_.begin(), descriptions_.end(),
                          [](const ParameterDescription& parameter) { return parameter.trained; });
    for (const ParameterDescription& parameter : descriptions_) {
        slices_.push_back(slice_of(parameter, part));
        offsets_.push_back(total_);
        const Slice& slice = slices_.back();
        // Room for the largest part, so that all ranks of a tensor group have one layout.
        Shape largest = slice.shape;
        auto& extent = largest[static_cast<std::size_t>(slice.axis)];
        if (parameter.split != Split::none) {
            const std::int64_t whole = parameter.shape[static_cast<std::size_t>(slice.axis)];
            extent = (whole + part.size - 1) / part.size;
        }
        total_ += (element_count(largest) + alignment - 1) / alignment * alignment;
        if (parameter.trained) trained_total_ = total_;
    }
}

std::size_t ParameterLayout::at(std::int64_t position) const {
    const auto behind = std::upper_bound(offsets_.begin(), offsets_.end(), position);
    LOCKSTEP_ASSERT(behind != offsets_.begin());
    return static_cast<std::size_t>(behind - offsets_.begin()) - 1;
}

}  // namespace lockstep::model
