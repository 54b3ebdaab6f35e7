// A process on each node that outlives its ranks: when one of them dies without a word, the launcher kills the others
// within a millisecond, and nobody else is left to say which rank it was and what it did last.
#pragma once

#include <string>

namespace lockstep::watch {

// Starts `program` (this one) as the witness of the ranks in `node_folder`. Without one a run is as good, and says less
// of how it died: a failure is a debug line.
void start_witness(const std::string& program, const std::string& node_folder, const std::string& run_path,
                   const std::string& key);

// The witness itself: returns when all ranks of the node have ended, and removes what they left.
void be_witness(const std::string& node_folder, const std::string& run_path, const std::string& key);

}  // namespace lockstep::watch
