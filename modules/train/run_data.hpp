// The data a launch trains on and validates with, and how many steps that makes.
#pragma once

#include <cstdint>
#include <optional>

#include "cluster/host_group.hpp"
#include "config/run_description.hpp"
#include "data/dataset.hpp"

namespace lockstep::train {

struct RunData {
    std::optional<data::Dataset> training, validation;
    std::int64_t steps = 0;  // of the whole schedule
};

// Collective. Usage error where the data does not fit the model or the schedule, or where ranks see different data.
RunData open_run_data(const config::RunDescription& description, cluster::HostGroup& control);

}  // namespace lockstep::train
