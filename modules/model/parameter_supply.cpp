#include "model/parameter_supply.hpp"

namespace lockstep::model {

std::vector<ModelPart> parts_with(const config::ModelDescription& model, const std::string& parameter) {
    const std::string blocks = "blocks/";
    if (parameter.starts_with(blocks)) return {ModelPart::block(std::stoll(parameter.substr(blocks.size())))};
    if (parameter == "embedding/weight" && model.tied_head)
        return {ModelPart::embedding(), ModelPart::head(model.layers)};
    if (parameter == "embedding/weight" || parameter == "position/weight") return {ModelPart::embedding()};
    return {ModelPart::head(model.layers)};
}

}  // namespace lockstep::model
