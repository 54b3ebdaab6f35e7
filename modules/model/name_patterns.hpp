// Patterns of parameter names, of model.frozen and optimizer.groups.
#pragma once

#include <string>
#include <vector>

#include "model/parameter_description.hpp"

namespace lockstep::model {

// `*` matches any text, including `/`; `?` one character; `[…]` a character class (POSIX fnmatch).
bool matches(const std::string& pattern, const std::string& name);

// Usage error if the pattern, given at `key`, matches no parameter; it names the nearest. `what`: what they are.
void check_pattern(const std::string& pattern, const std::string& key,
                   const std::vector<ParameterDescription>& parameters, const std::string& what = "parameter");

}  // namespace lockstep::model
