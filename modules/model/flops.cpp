#include "model/flops.hpp"

#include "model/parameters.hpp"

namespace lockstep::model {

double forward_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    double weights = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model))) {
        const bool looked_up = parameter.name == "embedding/weight" || parameter.name == "position/weight";
        const bool inner = parameter.name.find("/inner/") != std::string::npos;
        if (parameter.matrix && !looked_up && !inner) weights += static_cast<double>(element_count(parameter.shape));
    }
    if (model.tied_head) weights += static_cast<double>(model.vocabulary * model.width);

    const auto layers = static_cast<double>(model.layers), heads = static_cast<double>(model.heads);
    const auto f = static_cast<double>(model.head_width()), b = static_cast<double>(model.ttt.mini_batch);
    double mixing = 2 * static_cast<double>(length) * heads * f;
    if (model.mixer == "ttt-linear") mixing = heads * (6 * f * f + 4 * b * f);
    if (model.mixer == "ttt-mlp") mixing = heads * (56 * f * f + 20 * b * f);
    return 2 * weights + layers * mixing;
}

// All of the blocks but the product that ends each.
double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    const auto width = static_cast<double>(model.width);
    const double head = 2 * width * static_cast<double>(model.vocabulary);
    const double last = 2 * width * static_cast<double>(model.mlp_width) * static_cast<double>(model.layers);
    return forward_flop_per_token(model, length) - head - last;
}

double training_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    return 3 * forward_flop_per_token(model, length);
}

}  // namespace lockstep::model
