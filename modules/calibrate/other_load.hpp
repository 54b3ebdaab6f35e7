// What other programs do on the cores that a measurement is about to use.
#pragma once

#include <optional>
#include <string>

#include "cluster/cpu_set.hpp"

namespace lockstep::calibrate {

// Between two readings of /proc/stat: how many of these cores were busy, 1.5 for one and a half. None where a reading
// lacks one of them.
std::optional<double> busy_cores(const std::string& before, const std::string& after, const cluster::CpuSet& cores);

// The same now, watched for `seconds`, in which this process and its neighbours must do nothing. None without
// /proc/stat.
std::optional<double> busy_cores_now(const cluster::CpuSet& cores, double seconds);

}  // namespace lockstep::calibrate
