// A process on each node that outlives its ranks: when a rank dies without a message, the launcher kills the others
// within a millisecond, and nobody is left to report which one it was and what it did last.
#pragma once

#include <string>

namespace lockstep::watch {

// Starts `program` (this one) as the witness of the ranks in `node_folder`. A run works without it, but explains its
// death less well: failing to start it is a debug message.
void start_witness(const std::string& program, const std::string& node_folder, const std::string& run_path,
                   const std::string& key);

// The witness itself: returns when all ranks of the node have ended, and removes their files.
void run_witness(const std::string& node_folder, const std::string& run_path, const std::string& key);

}  // namespace lockstep::watch
