#include "data/tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::data {
namespace {

// Of transformers, in the order of their names.
constexpr std::array<const char*, 9> names_in_folders = {
    "added_tokens.json",   "chat_template.jinja",   "generation_config.json", "merges.txt", "special_tokens_map.json",
    huggingface_file_name, sentencepiece_file_name, "tokenizer_config.json",  "vocab.json"};

}  // namespace

const TokenizerFile* find_file(const TokenizerFiles& files, std::string_view name) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
    return found == files.end() ? nullptr : &*found;
}

std::string read_tokenizer_file(const std::string& path) {
    const OpenFile file = OpenFile::for_reading(path);
    const std::uint64_t bytes = file.bytes();
    if (bytes > most_tokenizer_bytes)
        throw usage_error("{} has {} bytes, too many for a tokenizer; the limit is {}", path, bytes,
                          most_tokenizer_bytes);
    std::string contents(bytes, '\0');
    file.read(contents.data(), bytes, 0);
    return contents;
}

TokenizerFiles read_tokenizer_files(const std::string& folder, const std::string& json) {
    TokenizerFiles files;
    std::uint64_t bytes = 0;
    for (const char* name : names_in_folders) {
        const bool given = !json.empty() && std::string_view(name) == huggingface_file_name;
        const std::string path = given ? json : (std::filesystem::path(folder) / name).string();
        std::error_code ignored;
        if (!given && !std::filesystem::is_regular_file(path, ignored)) continue;
        std::string contents = read_tokenizer_file(path);
        bytes += contents.size();
        if (bytes > most_tokenizer_bytes)
            throw usage_error("the tokenizer's files in {} have more than {} bytes", folder.empty() ? "." : folder,
                              most_tokenizer_bytes);
        if (given || !contents.empty()) files.push_back({name, std::move(contents)});
    }
    return files;
}

bool same_tokenizer(const std::string& kind, const TokenizerFiles& files, const std::string& other_kind,
                    const TokenizerFiles& other_files) {
    if (kind != other_kind) return false;
    const char* deciding = kind == "huggingface"     ? huggingface_file_name
                           : kind == "sentencepiece" ? sentencepiece_file_name
                                                     : nullptr;
    if (!deciding) return files == other_files;
    const TokenizerFile *own = find_file(files, deciding), *other = find_file(other_files, deciding);
    return own && other && *own == *other;
}

}  // namespace lockstep::data
