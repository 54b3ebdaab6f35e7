// Files that are put into the program when it is built: the descriptions of machines in hardware/, and the job script.
#pragma once

#include <vector>

namespace lockstep::planner {

struct ShippedHardware {
    const char* name;  // the file's, without .toml
    const char* toml;
};
extern const std::vector<ShippedHardware> shipped_hardware;
extern const char* const shipped_slurm_script;  // jobs/slurm/single

}  // namespace lockstep::planner
