// How a run was configured, where it ran and how it ended: what the tables show.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/table.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

struct Setting {
    std::string key, title;
    Cell value;
};

// What differs between launches is a list of the values, each once, in the order in which they came: "2, 3, 1".
std::vector<Setting> configuration_of(const trace::Run& run);

struct Launch {
    std::int64_t number = 1;               // from 1
    std::map<std::string, Cell> settings;  // those of configuration_of by key, with "started"
};
// All of them, also those none of whose steps count.
std::vector<Launch> launches_of(const trace::Run& run);

// The only value, or a list as above; empty for no values.
Cell one_or_list(const std::vector<Cell>& values);

// status.json of the run's folder, as it stands there; "" where there is none.
std::string status_of(const trace::Run& run);

}  // namespace lockstep::analysis
