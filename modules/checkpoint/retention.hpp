// Names of checkpoint files, and which of them go. Only checkpoint/ includes this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

std::optional<std::int64_t> step_of(std::string_view name);  // nothing for names that file_name() does not make
std::string unfinished_name(const std::string& path);        // what it is called until it is committed

// Removes what a run that was killed while it wrote has left. Returns what was removed.
std::vector<std::string> remove_unfinished(const std::string& folder);
// Keeps the newest `keep` of the checkpoints up to `step`. Later ones stay: a run that was resumed before them has not
// reached them again, and replaces them when it does.
std::vector<std::string> remove_older(const std::string& folder, std::int64_t step, std::int64_t keep);

}  // namespace lockstep::checkpoint
