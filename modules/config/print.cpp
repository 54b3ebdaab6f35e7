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

}  // namespace lockstep::config
