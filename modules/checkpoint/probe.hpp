// Whether a folder takes checkpoints, and how fast.
#pragma once

#include <string>

namespace lockstep::checkpoint {

struct FolderRate {
    double bytes_per_second = 0;  // the best of a few writes, each with what it takes to reach the disk
    double seconds = 0;           // of that write
};

// Writes up to a few MiB to a new file `name` of the folder, syncs it, reads it back and removes it, several times in
// about 0.2 s; a slow disk sees one write of 256 KiB only. A usage error where the folder cannot be written, a fault
// where other bytes come back.
FolderRate probe_folder(const std::string& folder, const std::string& name);

}  // namespace lockstep::checkpoint
