// A run's description and machine as names and values, to tell runs apart by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trace/reader.hpp"

namespace lockstep::analysis {

using Settings = std::map<std::string, std::string>;

// The description flattened ("batch.global" → "64"; lists as "a, b"), without the table [imported], and what the trace
// says of the machine: ranks, hosts, threads (a rank; a list where ranks differ), gpu (models), program_version,
// commit.
Settings settings_of(const trace::Header& header);

std::int64_t host_count(const trace::Header& header);

// What the table [imported] of a description says; `imported` is false where there is none.
struct Imported {
    bool imported = false;
    bool whole = false;                     // the run's numbers stand on all ranks alike
    std::vector<double> total;              // seconds of each rank, NaN where not known; one number where `whole`
    std::vector<double> tokens_per_second;  // of each rank; of all together where `whole`
    std::vector<std::string> remarks;
};
Imported imported_of(const trace::Header& header);

}  // namespace lockstep::analysis
