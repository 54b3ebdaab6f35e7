// A Slurm job script for a planned run: the one in jobs/slurm, with its block filled in.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::plan {

struct JobScript {
    std::string run_file;  // as the script names it
    std::int64_t nodes = 1, ranks_per_node = 1;
    bool gpus = true;
    std::int64_t cores_per_rank = 0;  // 0: as the script has it
    double seconds = 0;               // of the job's time limit
};
std::string slurm_script(const JobScript& job);

extern const char* const shipped_slurm_script;  // jobs/slurm/single, built into the program

}  // namespace lockstep::plan
