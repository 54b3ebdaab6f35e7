#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/json_number.hpp"
#include "base/json_text.hpp"
#include "calibrate/rates.hpp"

namespace lockstep::calibrate {

using Json = nlohmann::ordered_json;

std::string to_json(const LaunchRates& rates) {
    Json kinds = Json::object();
    for (std::size_t number = 0; number < rate_kinds; ++number) {
        const LaunchRates::Kind& kind = rates.kinds[number];
        if (kind.groups == 0) continue;
        Json entry = {{"unit", std::string(rate_unit(static_cast<RateKind>(number))) + "/s"},
                      {"median", kind.median},
                      {"lowest", kind.lowest},
                      {"seconds", kind.seconds},
                      {"ranks_of_a_group", kind.ranks},
                      {"groups", kind.groups}};
        if (kind.latency > 0) entry["latency_seconds"] = kind.latency;
        kinds[rate_name(static_cast<RateKind>(number))] = std::move(entry);
    }
    const Json all = {{"time", rates.time},     {"ranks", rates.ranks},         {"hosts", rates.hosts},
                      {"device", rates.device}, {"precision", rates.precision}, {"rates", std::move(kinds)}};
    return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LaunchRates> rates_from_json(const std::string& text) {
    try {
        const auto all = parse_json<Json>(text);
        if (!is_whole<int>(all.at("ranks"))) return std::nullopt;
        LaunchRates rates;
        all.at("time").get_to(rates.time);
        all.at("ranks").get_to(rates.ranks);
        all.at("hosts").get_to(rates.hosts);
        all.at("device").get_to(rates.device);
        all.at("precision").get_to(rates.precision);
        const Json& kinds = all.at("rates");
        for (std::size_t number = 0; number < rate_kinds; ++number) {
            const auto entry = kinds.find(rate_name(static_cast<RateKind>(number)));
            if (entry == kinds.end()) continue;
            if (!is_whole<int>(entry->at("ranks_of_a_group")) || !is_whole<int>(entry->at("groups")))
                return std::nullopt;
            LaunchRates::Kind& kind = rates.kinds[number];
            entry->at("median").get_to(kind.median);
            entry->at("lowest").get_to(kind.lowest);
            entry->at("seconds").get_to(kind.seconds);
            entry->at("ranks_of_a_group").get_to(kind.ranks);
            entry->at("groups").get_to(kind.groups);
            kind.latency = entry->value("latency_seconds", 0.0);
        }
        return rates;
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

}  // namespace lockstep::calibrate
