// What a run was: the parts of its description, of the machine and of its end that a reader of a table asks for.
#pragma once

#include <string>
#include <vector>

#include "base/table.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

struct Setting {
    std::string key, title;
    Cell value;
};

std::vector<Setting> configuration_of(const trace::Run& run);

// status.json of the run's folder, as it stands there; "" where there is none.
std::string status_of(const trace::Run& run);

}  // namespace lockstep::analysis
