#include "analysis/load/settings.hpp"

#include <fmt/format.h>

#include <limits>
#include <set>

#include "analysis/load/description.hpp"
#include "base/error.hpp"
#include "config/run_description.hpp"

namespace lockstep::analysis {
namespace {

std::string words_of(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* whole = node.as_integer()) return fmt::format("{}", whole->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
    if (const auto* list = node.as_array()) {
        std::string words;
        for (const auto& element : *list) words += (words.empty() ? "" : ", ") + words_of(element);
        return words;
    }
    return "";
}

void flatten(const toml::table& table, const std::string& above, Settings& settings) {
    for (const auto& [key, node] : table) {
        const std::string name = above + std::string(key.str());
        if (name == "imported") continue;
        if (const auto* below = node.as_table())
            flatten(*below, name + ".", settings);
        else
            settings[name] = words_of(node);
    }
}

// An older program wrote fewer keys. What it did is today's default, or follows from the others; a missing key would
// tell its run from today's.
Settings with_todays_keys(const std::string& description) {
    Settings settings;
    try {
        flatten(description_table(config::to_toml(config::parse_foreign_description(description, "the trace"))), "",
                settings);
    } catch (const Error&) {
    }  // none of ours: its own keys are all there is
    return settings;
}

std::string list_of(const std::set<std::string>& values) {
    std::string list;
    for (const std::string& value : values)
        if (!value.empty()) list += (list.empty() ? "" : ", ") + value;
    return list;
}

// "NVIDIA H100 0000:1b:00.0" → "NVIDIA H100": which one of the node's it is tells no runs apart.
std::string model_of(const std::string& gpu) {
    const auto space = gpu.rfind(' ');
    if (space == std::string::npos || gpu.find(':', space) == std::string::npos) return gpu;
    return gpu.substr(0, space);
}

// A list or a single number; what is none of these is unknown (NaN).
std::vector<double> numbers_of(const toml::table& table, const char* key) {
    std::vector<double> numbers;
    const auto take = [&](const toml::node& node) {
        numbers.push_back(node.value<double>().value_or(std::numeric_limits<double>::quiet_NaN()));
    };
    const toml::node* node = table.get(key);
    if (!node) return numbers;
    if (const auto* list = node->as_array())
        for (const auto& element : *list) take(element);
    else
        take(*node);
    return numbers;
}

}  // namespace

std::int64_t host_count(const trace::Header& header) {
    std::set<std::string> hosts;
    for (const auto& rank : header.ranks) hosts.insert(rank.host);
    return static_cast<std::int64_t>(hosts.size());
}

Settings settings_of(const trace::Header& header) {
    const bool imported = header.is_imported();
    Settings settings = imported ? Settings() : with_todays_keys(header.description);
    flatten(description_table(header.description), "", settings);
    std::set<std::string> threads, gpus;
    for (const auto& rank : header.ranks) {
        threads.insert(fmt::format("{}", rank.threads));
        gpus.insert(model_of(rank.gpu));
    }
    settings["ranks"] = fmt::format("{}", header.ranks.size());
    if (imported) return settings;  // the table tells nothing of the machine
    settings["hosts"] = fmt::format("{}", host_count(header));
    settings["threads"] = list_of(threads);
    settings["gpu"] = list_of(gpus);
    settings["program_version"] = header.program_version;
    settings["commit"] = header.commit;
    return settings;
}

Imported imported_of(const trace::Header& header) {
    Imported imported;
    const toml::table description = description_table(header.description);
    const toml::table* table = description["imported"].as_table();
    if (!table) return imported;
    imported.imported = true;
    imported.whole = (*table)["whole"].value_or(false);
    imported.total = numbers_of(*table, "total");
    imported.tokens_per_second = numbers_of(*table, "tokens_per_second");
    if (const auto* remarks = (*table)["remarks"].as_array())
        for (const auto& remark : *remarks)
            if (const auto* text = remark.as_string()) imported.remarks.push_back(text->get());
    return imported;
}

}  // namespace lockstep::analysis
