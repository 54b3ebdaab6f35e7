// The processor cores this process may use, by hwloc: what the job launcher and cgroups allow, never more.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cluster {

struct AllowedCores {
    std::string text;        // processing units as a list, "0-3,8"
    std::vector<int> units;  // their operating-system numbers
    int cores = 1;           // physical cores with at least one allowed unit
};

AllowedCores allowed_cores();

}  // namespace lockstep::cluster
