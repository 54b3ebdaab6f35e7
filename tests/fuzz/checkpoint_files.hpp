// Small whole checkpoints, and right checksums for those that were edited.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace lockstep::fuzz {

// The tensors of all of them.
std::vector<checkpoint::TensorInfo> small_tensors();
// A resumable one with the files of a tokenizer, one of another optimizer, one of adapters alone, and the second of two
// parts of a local one.
const std::vector<std::string>& small_checkpoints();

// Gives the file the checksums that its blocks and its header have, as far as it still has places for them, as
// checkpoints/README.md describes them.
void forge_checksums(const std::string& path);

}  // namespace lockstep::fuzz
