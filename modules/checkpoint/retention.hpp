// Names of checkpoint files, and which of them are removed. Only checkpoint/ includes this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

std::optional<std::int64_t> step_of(std::string_view name);  // empty unless file_name() made the name

// Removes what a killed run left unfinished. Returns what was removed.
std::vector<std::string> remove_unfinished(const std::string& folder);
// Keeps the newest `keep` checkpoints up to `step`. Later ones stay: the run was resumed before them and replaces them
// when it gets there.
std::vector<std::string> remove_older(const std::string& folder, std::int64_t step, std::int64_t keep);

}  // namespace lockstep::checkpoint
