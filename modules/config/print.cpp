#include "config/keys.hpp"

namespace lockstep::config {

std::string to_toml(const RunDescription& description) {
    RunDescription copy = description;
    std::string text, section;
    for (const Key& key : keys_of(copy)) {
        if (key.section() == "batch.ramp" && !description.batch.ramp) continue;
        if (key.section() != section) {
            text += (section.empty() ? "[" : "\n[") + key.section() + "]\n";
            section = key.section();
        }
        text += key.last_part() + " = " + value_of(key) + "\n";
    }
    return text;
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
