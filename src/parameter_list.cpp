#include "parameter_list.hpp"

#include "model/parameters.hpp"

namespace lockstep::commands {
namespace {

const char* split_word(model::Split split) {
    switch (split) {
        case model::Split::none:
            return "whole";
        case model::Split::axis0:
            return "rows";
        case model::Split::axis1:
            return "columns";
    }
    return "?";
}

}  // namespace

Table parameter_table(const config::ModelDescription& model) {
    Table table({{"name", "tensor"},
                 {"shape", "shape"},
                 {"parameters", "parameters"},
                 {"split", "tensor-parallel split"},
                 {"trained", "trained"}});
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        table.add_row({parameter.name, shape_text(parameter.shape), element_count(parameter.shape),
                       std::string(split_word(parameter.split)), std::string(parameter.trained ? "yes" : "no")});
    return table;
}

nlohmann::ordered_json parameter_list(const config::ModelDescription& model) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model)))
        list.push_back({{"name", parameter.name},
                        {"shape", parameter.shape},
                        {"parameters", element_count(parameter.shape)},
                        {"split", split_word(parameter.split)},
                        {"trained", parameter.trained}});
    return list;
}

}  // namespace lockstep::commands
