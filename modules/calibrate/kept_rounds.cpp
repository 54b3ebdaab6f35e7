#include "calibrate/kept_rounds.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/whole_file.hpp"

namespace lockstep::calibrate {

using Json = nlohmann::json;

std::string rounds_file(const std::string& machine_file) {
    return machine_file + ".rounds";
}

KeptRounds read_rounds(const std::string& path, const std::string& settings) {
    std::error_code none;
    if (!std::filesystem::exists(path, none)) return {};
    try {
        const auto json = parse_json<Json>(text_of_regular_file(path));
        if (json.at("settings") == settings) {
            KeptRounds kept{json.at("seconds").get<std::vector<std::vector<double>>>(),
                            json.at("busy_share").get<double>()};
            const auto& times = kept.seconds;
            bool alike = !times.empty();
            for (const auto& rounds : times) alike = alike && !rounds.empty() && rounds.size() == times.front().size();
            if (alike) return kept;
        }
    } catch (const Json::exception&) {
        // Left by a killed program, or not ours: start over.
    }
    log::warning("{} is damaged or from other settings; starting over", path);
    return {};
}

void write_rounds(const std::string& path, const std::string& settings, const KeptRounds& rounds) {
    const Json json = {{"settings", settings}, {"busy_share", rounds.busy_share}, {"seconds", rounds.seconds}};
    write_whole_file(path, json.dump() + "\n");
}

}  // namespace lockstep::calibrate
