// A model's parameters by name, for lockstep inspect.
#pragma once

#include <nlohmann/json.hpp>

#include "base/table.hpp"
#include "config/model_description.hpp"

namespace lockstep::commands {

// For each its shape, size, how tensor ranks divide it, and whether it is trained.
Table parameter_table(const config::ModelDescription& model);
nlohmann::ordered_json parameter_list(const config::ModelDescription& model);

}  // namespace lockstep::commands
