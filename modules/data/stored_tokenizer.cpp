#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "data/tokenizer_files.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::data {
namespace {

const std::string prefix = "tokenizer/";
constexpr const char* old_model_path = "tokenizer_model";
constexpr std::size_t longest_name = 100;

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

}  // namespace lockstep::data
