// Inputs to begin with for what is written in TOML: run descriptions, machine files, the section [plan].
#pragma once

#include <string>
#include <vector>

namespace lockstep::fuzz {

using Inputs = std::vector<std::string>;

// The files of a folder of the sources whose names end so, by name.
Inputs contents_of(const std::string& folder, const std::string& ending);
std::string joined(const Inputs& parts);  // into one input

Inputs run_descriptions();
Inputs machines();
Inputs plan_requests();

}  // namespace lockstep::fuzz
