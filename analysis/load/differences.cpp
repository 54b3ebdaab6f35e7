#include "analysis/load/differences.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace lockstep::analysis {
namespace {

bool is_name_or_folder(const std::string& key) {
    constexpr std::array<const char*, 3> names = {"run.name", "run.folder", "checkpoint.folder"};
    return std::find(names.begin(), names.end(), key) != names.end();
}

}  // namespace

std::vector<Difference> differences_of(const std::vector<const Measurement*>& runs) {
    std::set<std::string> keys;
    for (const Measurement* run : runs)
        for (const auto& [key, value] : run->settings) keys.insert(key);
    std::vector<Difference> all;
    for (const std::string& key : keys) {
        if (is_name_or_folder(key)) continue;
        Difference difference{key, {}};
        for (const Measurement* run : runs) {
            const std::string value = run->setting(key);
            auto& values = difference.values;
            if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
        }
        if (difference.values.size() > 1) all.push_back(std::move(difference));
    }
    return all;
}

}  // namespace lockstep::analysis
