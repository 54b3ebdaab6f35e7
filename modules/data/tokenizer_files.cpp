#include "data/tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace lockstep::data {
namespace {

const std::string prefix = "tokenizer/";
constexpr const char* old_model_path = "tokenizer_model";
constexpr std::size_t longest_name = 100;
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

bool is_tokenizer_file_name(std::string_view name) {
    return !name.empty() && name.size() <= longest_name && name.front() != '.' &&
           std::all_of(name.begin(), name.end(),
                       [](char byte) { return byte >= ' ' && byte <= '~' && byte != '/' && byte != '\\'; });
}

std::string tokenizer_file_path(const std::string& name) {
    return prefix + name;
}

std::string tokenizer_file_name(const std::string& path) {
    if (path == old_model_path) return sentencepiece_file_name;
    return path.starts_with(prefix) ? path.substr(prefix.size()) : "";
}

std::vector<std::string> tokenizer_file_paths(const hdf5::File& file) {
    std::vector<std::string> paths;
    const bool of_old_form = file.exists(old_model_path);
    if (file.exists("tokenizer")) paths = file.datasets("tokenizer");
    if (of_old_form && !paths.empty())
        throw damaged_error("{} is damaged: it has both /{} and /tokenizer", file.path(), old_model_path);
    if (of_old_form) paths.emplace_back(old_model_path);
    if (paths.size() > most_tokenizer_files)
        throw damaged_error("{} is damaged: /tokenizer has {} files; the limit is {}", file.path(), paths.size(),
                            most_tokenizer_files);
    std::uint64_t bytes = 0;
    const std::uint64_t file_size = paths.empty() ? 0 : file_bytes(file.path());
    for (const auto& path : paths) {
        if (!is_tokenizer_file_name(tokenizer_file_name(path)))
            throw damaged_error("{} is damaged: a file of its tokenizer has an impossible name, /{}", file.path(),
                                path);
        const auto about = file.info(path);
        if (about.type_name != "uint8" || !about.contiguous || about.dimensions.size() != 1)
            throw damaged_error("{}: /{} is not a contiguous uint8 dataset", file.path(), path);
        if (about.bytes > file_size)  // before memory is taken for it
            throw damaged_error("{} is truncated: /{} extends past its end", file.path(), path);
        if (about.bytes > most_tokenizer_bytes - bytes)
            throw damaged_error("{} is damaged: the files of its tokenizer exceed {} bytes", file.path(),
                                most_tokenizer_bytes);
        bytes += about.bytes;
    }
    return paths;
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
