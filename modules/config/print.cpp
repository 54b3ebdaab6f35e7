#include <fmt/format.h>

#include "config/keys.hpp"

namespace lockstep::config {

namespace {

// The sections of registered kinds of which something would be lost: the chosen kind's, and those with other values
// than the defaults.
bool is_wanted(const Key& key, const std::vector<Key>& keys, const std::vector<Key>& defaults,
               const RunDescription& description) {
    if (!key.given) return true;
    const std::string section = key.section();
    for (const Kind* mixer : mixers_of(description.model))
        if (section == "model." + mixer->section()) return true;
    if (const Kind* optimizer = find_kind(Family::optimizer, description.optimizer.kind))
        if (section == "optimizer." + optimizer->section()) return true;
    for (std::size_t i = 0; i < keys.size(); ++i)
        if (keys[i].section() == section && value_of(keys[i]) != value_of(defaults[i])) return true;
    return false;
}

}  // namespace

std::string print_keys(const std::vector<Key>& keys, bool meanings) {
    std::string text, section;
    for (const Key& key : keys) {
        if (std::holds_alternative<std::monostate>(key.member)) continue;
        if (key.section() != section) {
            section = key.section();
            text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
        }
        text += fmt::format("{} = {}{}\n", key.last_part(), value_of(key), meanings ? "  # " + key.meaning : "");
    }
    return text;
}

std::string to_toml(const RunDescription& description, const std::string& section) {
    RunDescription copy = description, plain;
    const std::vector<Key> keys = keys_of(copy), defaults = keys_of(plain);
    std::vector<Key> printed;
    for (const Key& key : keys) {
        if (!section.empty() && !key.path.starts_with(section + ".")) continue;
        if (is_wanted(key, keys, defaults, description) && (key.section() != "batch.ramp" || description.batch.ramp))
            printed.push_back(key);
    }
    return print_keys(printed, false);
}

std::vector<std::string> differences(const RunDescription& now, const RunDescription& before,
                                     const std::string& section) {
    RunDescription now_copy = now, before_copy = before;
    const std::vector<Key> now_keys = keys_of(now_copy), before_keys = keys_of(before_copy);
    std::vector<std::string> list;
    for (std::size_t i = 0; i < now_keys.size(); ++i) {
        if (!section.empty() && !now_keys[i].path.starts_with(section + ".")) continue;
        const std::string is = value_of(now_keys[i]), was = value_of(before_keys[i]);
        if (is != was) list.push_back(now_keys[i].path + " is " + is + ", was " + was);
    }
    return list;
}

}  // namespace lockstep::config
