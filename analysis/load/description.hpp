// The run description that a trace carries, as TOML.
#pragma once

#include <toml++/toml.h>

#include <string>

namespace lockstep::analysis {

// Empty for a text that is none: a foreign description; what it says stays unknown, no figure depends on it.
toml::table description_table(const std::string& text);

}  // namespace lockstep::analysis
