// Texts of many ranks that are mostly the same texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"

namespace lockstep::cluster {

struct DistinctTexts {
    std::vector<std::string> texts;                   // each once, in the order of the first ranks that have them
    std::vector<std::vector<std::uint32_t>> of_rank;  // by rank: its texts, as indices
};

// What a rank tells of its texts first, and how it then adds one that no lower rank has.
std::string hashes_of(const std::vector<std::string>& texts);
void add_text(std::string& message, const std::string& text);

// Collective; the same on every rank. What each rank receives: 16 bytes for each text of each rank, and each distinct
// text once.
DistinctTexts gather_distinct_texts(const std::vector<std::string>& own, HostGroup& group);

}  // namespace lockstep::cluster
