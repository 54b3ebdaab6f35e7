#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"
#include "config/plain_value.hpp"

namespace lockstep::config {

namespace {

// The known key a misspelt or misplaced one most likely means, or "".
std::string suggestion(const std::string& path, const std::vector<Key>& keys) {
    const std::size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
    std::vector<std::string> full, lasts, section_lasts;
    for (const Key& key : keys) {
        full.push_back(key.path);
        lasts.push_back(key.last_part());
        if (key.section() == section) section_lasts.push_back(key.last_part());
    }
    if (const std::string near = nearest_name(last, section_lasts); !near.empty()) return section + "." + near;
    if (const std::string near = nearest_name(last, lasts); !near.empty()) {
        std::vector<std::string>
            same;  // several sections may have a key of that name: the one whose section is nearest
        for (const Key& key : keys)
            if (key.last_part() == near) same.push_back(key.path);
        const std::string nearest = nearest_name(path, same);
        return nearest.empty() ? same.front() : nearest;
    }
    // One word of a key: "lr" is learning_rate's in peak_lr. The required one is meant more often.
    const Key* whole_word = nullptr;
    for (const Key& key : keys) {
        const std::string part = "_" + key.last_part() + "_";
        if (part.find("_" + last + "_") == std::string::npos) continue;
        if (!whole_word || (key.required && !whole_word->required)) whole_word = &key;
    }
    if (whole_word) return whole_word->path;
    return nearest_name(path, full);
}

}  // namespace

bool is_section(const std::string& path, const std::vector<Key>& keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const Key& key) { return key.path.compare(0, path.size() + 1, path + ".") == 0; });
}

void refuse_unknown_key(const std::string& path, const std::string& place, const std::vector<Key>& keys) {
    if (is_section(path, keys))
        throw usage_error("{}{} is a section: it holds keys and has no value itself", place, path);
    const std::string near = suggestion(path, keys);
    if (near.empty())
        throw usage_error("{}unknown key {}; docs/run-description.md and docs/planner.md list the keys", place, path);
    throw usage_error("{}unknown key {} (did you mean {}?)", place, path, near);
}

std::string plain_value(const RunDescription& description, const std::string& path) {
    RunDescription copy = description;
    const std::vector<Key> keys = keys_of(copy);
    for (const Key& key : keys) {
        if (key.path != path) continue;
        if (key.section() == "batch.ramp" && !description.batch.ramp) return "";
        if (const auto* text = std::get_if<std::string*>(&key.member)) return **text;
        const std::string value = value_of(key);
        if (value == "[]") return "";
        return value.starts_with('"') ? value.substr(1, value.size() - 2) : value;  // a word: nothing is escaped
    }
    refuse_unknown_key(path, "", keys);
}

}  // namespace lockstep::config
