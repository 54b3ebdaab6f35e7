// The parts of local checkpoints: their names, what lies in a node's folder, and which of them belong together. The
// format is in checkpoints/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

struct PartName {
    std::int64_t step = 0;
    int part = 0, parts = 0;
    bool copy = false;  // a partner's
    bool operator==(const PartName&) const = default;
};
std::string part_file_name(const PartName& name);  // "step-00000100.h5.part-0003-of-0008", of a copy with ".copy"
std::optional<PartName> part_of(const std::string& path);  // empty unless part_file_name() made the file's name
// "part 3 (of 0 to 7) of a local checkpoint of step 100, a partner's copy"
std::string part_text(const PartName& name);

// A part that lies on a node: of which file, by the checksum of its header.
struct PartFile {
    PartName name;
    std::uint64_t header = 0;
    int node = 0;
};

// Where a part can be read.
struct PartSource {
    int node = 0;
    bool copy = false;
    bool operator==(const PartSource&) const = default;
};
// A local checkpoint of which every part lies somewhere.
struct PartSet {
    std::int64_t step = 0;
    int parts = 0;
    std::uint64_t header = 0;
    std::vector<std::vector<PartSource>> sources;  // per part: own files before copies, then by node
};
struct PartSets {
    std::vector<PartSet> complete, incomplete;  // newest first
};
PartSets part_sets(const std::vector<PartFile>& files);

// Files in a folder whose names are a part's, and those that were not finished. A folder that is not there has none.
std::vector<std::string> list_parts(const std::string& folder);
std::vector<std::string> list_unfinished_parts(const std::string& folder);

// Who keeps a copy of each rank's part: the rank with the same place on the next node, in a ring; where that has fewer
// ranks, modulo their number. -1: nobody, on one node alone.
std::vector<int> partners(const std::vector<int>& nodes);

}  // namespace lockstep::checkpoint
