#include "plan/job_script.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"

namespace lockstep::plan {
namespace {

// Replaces the line that begins with `start`.
void replace_line(std::string& text, const std::string& start, const std::string& line) {
    const std::size_t at = text.find("\n" + start);
    LOCKSTEP_ASSERT(at != std::string::npos);
    const std::size_t end = text.find('\n', at + 1);
    text.replace(at + 1, end - at - 1, line);
}

}  // namespace

std::string slurm_script(const JobScript& job) {
    std::string text = shipped_slurm_script;
    const auto minutes = static_cast<std::int64_t>(std::ceil(job.seconds / 60));
    replace_line(text, "#SBATCH --time=", fmt::format("#SBATCH --time={:02}:{:02}:00", minutes / 60, minutes % 60));
    replace_line(text, "#SBATCH --nodes=", fmt::format("#SBATCH --nodes={}", job.nodes));
    replace_line(text, "#SBATCH --ntasks-per-node=", fmt::format("#SBATCH --ntasks-per-node={}", job.ranks_per_node));
    replace_line(text, "##SBATCH --gpus-per-node=",
                 fmt::format("{}#SBATCH --gpus-per-node={}", job.gpus ? "" : "#", job.ranks_per_node));
    if (job.cores_per_rank > 0)
        replace_line(text, "#SBATCH --cpus-per-task=", fmt::format("#SBATCH --cpus-per-task={}", job.cores_per_rank));
    replace_line(text, "runs=", fmt::format("runs=({})", job.run_file));
    replace_line(text, "settings=", "settings=()");
    return text;
}

}  // namespace lockstep::plan
