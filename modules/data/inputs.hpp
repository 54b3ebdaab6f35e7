// Internal: what the paths of a data list stand for, in order: patterns, folders of shards and pairs of files resolved.
#pragma once

#include <string>
#include <vector>

namespace lockstep::data {

enum class InputKind { text, token_file, flat_file, megatron };

struct Input {
    InputKind kind;
    std::string path;        // of Megatron's, the .bin file
    std::string index = {};  // of Megatron's alone: the .idx file
};

// - A path that does not exist and holds *, ? or [ is a pattern for files and folders: its matches in byte order.
// - A folder with token files (.h5, .bin, Megatron's pairs) and no text: these files in byte order; not those of
//   folders inside. With text, raw .bin files without a header are skipped, as other files are.
// - Every other folder, and every file that is not known as tokens: text.
// Usage errors: a missing path, a pattern without matches, a folder with text and known token files, or with token
// files for training and for validation.
std::vector<Input> find_inputs(const std::vector<std::string>& paths);

}  // namespace lockstep::data
