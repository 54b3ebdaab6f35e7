// One value of a run description by its key, as scripts want it.
#pragma once

#include <string>

#include "config/run_description.hpp"

namespace lockstep::config {

// A text without quotation marks, numbers and lists as TOML; "" where there is none. Unknown key: a usage error that
// names the nearest.
std::string plain_value(const RunDescription& description, const std::string& key);

}  // namespace lockstep::config
