// Tests whether a folder can take checkpoints, and how fast it is.
#pragma once

#include <string>

namespace lockstep::checkpoint {

struct FolderRate {
    double bytes_per_second = 0;  // the best of a few writes, sync included
    double seconds = 0;           // of that write
};

// Writes up to a few MiB to a new file `name` in the folder, syncs, reads back and removes it, repeatedly for about 0.2
// s; on a slow disk only one write of 256 KiB. Usage error if the folder is not writable; fault error if other bytes
// come back.
FolderRate probe_folder(const std::string& folder, const std::string& name);

}  // namespace lockstep::checkpoint
