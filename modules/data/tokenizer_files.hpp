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

// Under these names the file that decides is kept, whatever it was called.
inline constexpr const char *huggingface_file_name = "tokenizer.json", *sentencepiece_file_name = "tokenizer.model";
inline constexpr std::size_t most_tokenizer_files = 16;
inline constexpr std::uint64_t most_tokenizer_bytes = std::uint64_t{256} << 20;  // of all together

// The file of this name; null where there is none.
const TokenizerFile* find_file(const TokenizerFiles& files, std::string_view name);

// A file of at most most_tokenizer_bytes. Usage error for a larger one.
std::string read_tokenizer_file(const std::string& path);
// The files of a folder as transformers writes it that belong to the tokenizer, or go with it like
// generation_config.json, without those that are empty. `json`: a file that stands for its tokenizer.json. Usage error
// for more than most_tokenizer_bytes.
TokenizerFiles read_tokenizer_files(const std::string& folder, const std::string& json = "");

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
