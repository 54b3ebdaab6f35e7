// Inputs to begin with: what the project's own writers make, and files of its tests and examples.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::fuzz {

// By target.
std::map<std::string, std::vector<std::string>> seeds();

}  // namespace lockstep::fuzz
