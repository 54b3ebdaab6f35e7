#include "model/flops.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "model/frozen.hpp"
#include "model/mixers/registry.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {

namespace {

double mixing_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    return mixer_type(model).mixing_flop(model, length);
}

// Weights of matrix products: those of the inner models are counted with the mixing.
double product_weights(const ParameterDescription& parameter) {
    const bool looked_up = parameter.name == "embedding/weight" || parameter.name == "position/weight";
    const bool inner = parameter.name.find("/inner/") != std::string::npos;
    return parameter.matrix && !looked_up && !inner ? static_cast<double>(element_count(parameter.shape)) : 0;
}

// The layers of a model from below, in the order of their parameters.
struct Walk {
    double flop = 0;
    bool trains_below = false;

    // A norm and what reads its rows. Of the weights, those of the last product are not multiplied with the input.
    void layer(const std::vector<ParameterDescription>& parameters, const std::string& norm, const std::string& layer,
               const std::string& last, double mixing) {
        double weights = 0, trained_weights = 0, last_weights = 0;
        bool to_input = trains_below, back = false;
        for (const auto& parameter : parameters) {
            if (parameter.name.starts_with(norm)) to_input = to_input || parameter.trained;
            if (!parameter.name.starts_with(layer)) continue;
            back = back || parameter.trained;
            const double count = product_weights(parameter);
            weights += count;
            if (parameter.trained) trained_weights += count;
            if (parameter.name == last) last_weights += count;
        }
        back = back || to_input;
        flop += 2 * (weights + trained_weights) + mixing;
        if (back) flop += 2 * last_weights + 2 * mixing;
        if (to_input) flop += 2 * (weights - last_weights);
        trains_below = back;
    }
};

bool any_trained(const std::vector<ParameterDescription>& parameters) {
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; });
}

std::vector<ParameterDescription> parameters_of_block(const config::ModelDescription& model, std::int64_t number) {
    return describe_parameters(model, {number, number + 1, false, false});
}

}  // namespace

double forward_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    double weights = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model))) weights += product_weights(parameter);
    if (model.tied_head) weights += static_cast<double>(model.vocabulary * model.width);
    return 2 * weights + static_cast<double>(model.layers) * mixing_flop_per_token(model, length);
}

// All of the blocks but the product that ends each.
double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    const auto width = static_cast<double>(model.width), layers = static_cast<double>(model.layers);
    const double head = 2 * width * static_cast<double>(model.vocabulary);
    const double last = 2 * width * static_cast<double>(model.mlp_width) * layers;
    std::int64_t lowest = 0;  // block that is passed backward
    if (!trains_before(model, 0))
        while (lowest < model.layers && !any_trained(parameters_of_block(model, lowest))) ++lowest;
    return (forward_flop_per_token(model, length) - head - last) * static_cast<double>(model.layers - lowest) / layers;
}

double training_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    if (model.frozen.empty()) return 3 * forward_flop_per_token(model, length);
    const double mixing = mixing_flop_per_token(model, length);
    Walk walk;
    walk.trains_below = trains_before(model, 0);
    for (std::int64_t number = 0; number < model.layers; ++number) {
        const auto parameters = parameters_of_block(model, number);
        const std::string prefix = "blocks/" + std::to_string(number) + "/";
        walk.layer(parameters, prefix + "pre_convolution_norm/", prefix + "pre_convolution/", "", 0);
        walk.layer(parameters, prefix + "mixer_norm/", prefix + "mixer/", prefix + "mixer/output/weight", mixing);
        walk.layer(parameters, prefix + "mlp_norm/", prefix + "mlp/", prefix + "mlp/down/weight", 0);
    }
    auto head = describe_parameters(model, {0, 0, false, true});
    if (model.tied_head) {  // the table, as a matrix
        head.front().name = "head/weight";
        head.front().matrix = true;
    }
    walk.layer(head, "final_norm/", "head/", "", 0);
    return walk.flop;
}

}  // namespace lockstep::model
