#include "data/tokenizer_files.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

const std::string prefix = "tokenizer/";
constexpr const char* old_model_path = "tokenizer_model";
constexpr std::size_t longest_name = 100;

const std::string* contents_of(const TokenizerFiles& files, std::string_view name) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
    return found == files.end() ? nullptr : &found->contents;
}

}  // namespace

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
    for (const auto& path : paths) {
        if (!is_tokenizer_file_name(tokenizer_file_name(path)))
            throw damaged_error("{} is damaged: a file of its tokenizer has an impossible name, /{}", file.path(),
                                path);
        const auto about = file.info(path);
        if (about.type_name != "uint8" || !about.contiguous || about.dimensions.size() != 1)
            throw damaged_error("{}: /{} is not a contiguous uint8 dataset", file.path(), path);
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
    const char* deciding = kind == "huggingface"     ? "tokenizer.json"
                           : kind == "sentencepiece" ? sentencepiece_file_name
                                                     : nullptr;
    if (!deciding) return files == other_files;
    const std::string *own = contents_of(files, deciding), *other = contents_of(other_files, deciding);
    return own && other && *own == *other;
}

}  // namespace lockstep::data
