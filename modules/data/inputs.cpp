#include "data/inputs.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "data/dataset.hpp"
#include "data/megatron.hpp"
#include "data/text_files.hpp"
#include "data/token_file.hpp"
#include "data/token_shards.hpp"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

bool is_hdf5_by_name(std::string_view path) {
    return path.ends_with(".h5") || path.ends_with(".hdf5");
}

// A pattern's matches.
std::vector<std::string> matches_of(const std::string& pattern) {
    ::glob_t found{};
    const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    if (result == GLOB_NOMATCH) throw usage_error("{} matches no file", pattern);
    if (result != 0) throw usage_error("cannot list the files that match {}", pattern);
    std::sort(paths.begin(), paths.end());  // by bytes, whatever the locale
    return paths;
}

bool exists(const std::string& path) {
    std::error_code problem;
    if (fs::exists(path, problem)) return true;
    if (problem && problem != std::errc::no_such_file_or_directory)
        throw usage_error("{} cannot be read: {}", path, problem.message());
    return false;
}

bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

// Whether one of the words stands in the name with no letter beside it: "test" in "web_test1.bin", not in "latest.bin".
bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
        for (auto at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
            const std::size_t end = at + word.size();
            if ((at == 0 || !is_letter(name[at - 1])) && (end == name.size() || !is_letter(name[end]))) return true;
        }
        return false;
    });
}

// "train" in the name of one file and "val" or "test" in another's: sets that no one wants to mix.
void check_one_set(const std::string& folder, const std::vector<Input>& shards) {
    std::string training, other;
    for (const Input& shard : shards) {
        const std::string name = fs::path(shard.path).filename().string();
        if (has_word(name, {"train", "training"}))
            training = name;
        else if (has_word(name, {"val", "valid", "validation", "test"}))
            other = name;
    }
    if (!training.empty() && !other.empty())
        throw usage_error("the folder {} holds {} and {}; select files with a pattern such as {}/*train*", folder,
                          training, other, folder);
}

struct Folder {
    std::vector<Input> shards;  // everything that may be tokens
    std::string known;          // one that has a header that says so
};

Folder look_into(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code problem;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
        const std::string name = entry->path().filename().native();
        std::error_code ignored;
        if (name.front() != '.' && entry->is_regular_file(ignored)) names.push_back(name);
    }
    if (problem) throw usage_error("the folder {} cannot be read: {}", folder, problem.message());
    std::sort(names.begin(), names.end());
    Folder found;
    for (const std::string& name : names) {
        const std::string path = (fs::path(folder) / name).string();
        const bool is_raw = name.ends_with(".bin");
        if (const auto pair = is_raw ? find_megatron(path) : std::nullopt) {
            found.shards.push_back({InputKind::megatron, pair->tokens, pair->index});
            found.known = name;
        } else if (is_raw) {
            found.shards.push_back({InputKind::flat_file, path});
            if (has_shard_header(path)) found.known = name;
        } else if (is_hdf5_by_name(name) && is_token_file(path)) {
            found.shards.push_back({InputKind::token_file, path});
            found.known = name;
        }
    }
    return found;
}

void add_folder(const std::string& folder, std::vector<Input>& inputs) {
    const Folder found = look_into(folder);
    if (found.shards.empty() || (found.known.empty() && has_text_files(folder))) {
        inputs.push_back({InputKind::text, folder});
        return;
    }
    if (!found.known.empty() && has_text_files(folder))
        throw usage_error(
            "the folder {} holds both text and token files, such as {}; select files with a pattern such as "
            "{}/*{}",
            folder, found.known, folder, fs::path(found.known).extension().string());
    check_one_set(folder, found.shards);
    inputs.insert(inputs.end(), found.shards.begin(), found.shards.end());
}

// `pairs`: those that the pattern has matched so far, since it may match both files of a pair; null outside a pattern.
void add(const std::string& path, std::set<std::string>* pairs, std::vector<Input>& inputs) {
    if (const auto pair = find_megatron(path)) {
        if (!pairs || pairs->insert(pair->tokens).second)
            inputs.push_back({InputKind::megatron, pair->tokens, pair->index});
        return;
    }
    if (!exists(path)) {
        if (pairs || path.find_first_of("*?[") == std::string::npos) throw usage_error("{} does not exist", path);
        std::set<std::string> of_pattern;
        for (const std::string& match : matches_of(path)) add(match, &of_pattern, inputs);
        return;
    }
    std::error_code problem;
    if (fs::is_directory(path, problem))
        add_folder(path, inputs);
    else if (!fs::is_regular_file(path, problem))
        inputs.push_back({InputKind::text, path});  // refused there
    else if (path.ends_with(".bin"))
        inputs.push_back({InputKind::flat_file, path});
    // Also by name: a token file with a damaged beginning must not pass for text.
    else if (is_hdf5_by_name(path) || is_token_file(path))
        inputs.push_back({InputKind::token_file, path});
    else
        inputs.push_back({InputKind::text, path});
}

}  // namespace

std::vector<Input> find_inputs(const std::vector<std::string>& paths) {
    std::vector<Input> inputs;
    for (const std::string& path : paths) add(path, nullptr, inputs);
    return inputs;
}

namespace {

bool has_kind(const std::vector<std::string>& paths, std::initializer_list<InputKind> kinds) {
    try {
        const std::vector<Input> inputs = find_inputs(paths);
        return std::any_of(inputs.begin(), inputs.end(), [&](const Input& input) {
            return std::find(kinds.begin(), kinds.end(), input.kind) != kinds.end();
        });
    } catch (const Error&) {
        return false;  // said where the data are opened
    }
}

}  // namespace

bool has_plain_text(const std::vector<std::string>& paths) {
    return has_kind(paths, {InputKind::text});
}

bool names_all_tokenizers(const std::vector<std::string>& paths) {
    return !has_kind(paths, {InputKind::text, InputKind::flat_file, InputKind::megatron});
}

}  // namespace lockstep::data
