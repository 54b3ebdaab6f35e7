// The files that a tokenizer was made from, as token files and checkpoints keep them: byte for byte, each a dataset
// /tokenizer/NAME of uint8. Older files keep one sentencepiece model as /tokenizer_model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5/hdf5.hpp"

namespace lockstep::data {

struct TokenizerFile {
    std::string name, contents;
    bool operator==(const TokenizerFile&) const = default;
};
using TokenizerFiles = std::vector<TokenizerFile>;  // by name

// Under this name a sentencepiece model is kept, whatever its file was called.
inline constexpr const char* sentencepiece_file_name = "tokenizer.model";
inline constexpr std::size_t most_tokenizer_files = 16;
inline constexpr std::uint64_t most_tokenizer_bytes = std::uint64_t{256} << 20;  // of all together

// 1 to 100 printable characters of ASCII without slashes and backslashes, the first no dot: safe to name a file with.
bool is_tokenizer_file_name(std::string_view name);

// Where a file of this name is kept, and the name of what is kept there; "" if that is no tokenizer's file.
std::string tokenizer_file_path(const std::string& name);
std::string tokenizer_file_name(const std::string& path);

// The datasets that hold the tokenizer's files, by name. Names, number, types and sizes are checked: damaged error.
std::vector<std::string> tokenizer_file_paths(const hdf5::File& file);

// Whether token numbers mean the same text: of huggingface only tokenizer.json counts, of sentencepiece only
// tokenizer.model.
bool same_tokenizer(const std::string& kind, const TokenizerFiles& files, const std::string& other_kind,
                    const TokenizerFiles& other_files);

}  // namespace lockstep::data
