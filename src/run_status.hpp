// status.json of a run folder, as `lockstep inspect` prints it.
#pragma once

#include <string>
#include <vector>

#include "base/table.hpp"

namespace lockstep::commands {

// One line each; "" for a single empty one.
std::string lines_of(const std::vector<std::string>& values);
// Whole, as text or JSON, or with `keys` only lines_of() their values. Usage errors for keys that are not
// there and for folders without the file, a damaged error for one that is no JSON object.
std::string run_status(const std::string& path, const std::vector<std::string>& keys, TableFormat format);

}  // namespace lockstep::commands
