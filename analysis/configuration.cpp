#include "analysis/configuration.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

namespace lockstep::analysis {
namespace {

// A value of the description; nothing where it is missing.
Cell at(const toml::table& table, std::string_view path) {
    const auto node = table.at_path(path);
    if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
    if (const auto number = node.value_exact<double>()) return *number;
    if (const auto words = node.value_exact<std::string>()) return *words;
    return {};
}

// One number, or all of them in the order they came: "2, 4".
Cell one_or_list(const std::vector<std::int64_t>& values) {
    std::string list;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (i == 0 || values[i] != values[i - 1]) list += (list.empty() ? "" : ", ") + std::to_string(values[i]);
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end()) return values.front();
    return list;
}

std::string calendar_time(double seconds) {
    const auto whole = static_cast<std::time_t>(seconds);
    std::tm parts{};
    gmtime_r(&whole, &parts);
    char text[32] = "";
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace

std::vector<Setting> configuration_of(const trace::Run& run) {
    const trace::Header& header = run.header();
    toml::table description;
    try {
        description = toml::parse(header.description);
    } catch (const toml::parse_error&) {
        // An imported or foreign description: what it says stays unknown, the figures do not depend on it.
    }
    std::vector<std::int64_t> ranks, threads;
    for (const auto& part : run.parts) ranks.push_back(static_cast<std::int64_t>(part.file.ranks()));
    std::set<std::string> hosts;
    for (const auto& rank : header.ranks) {
        threads.push_back(rank.threads);
        hosts.insert(rank.host);
    }
    return {
        {"name", "run", header.run_name},
        {"preset", "preset", at(description, "model.preset")},
        {"mixer", "mixer", at(description, "model.mixer")},
        {"width", "width", at(description, "model.width")},
        {"layers", "layers", at(description, "model.layers")},
        {"vocabulary", "vocabulary", at(description, "model.vocabulary")},
        {"ranks", "ranks", one_or_list(ranks)},
        {"hosts", "hosts", static_cast<std::int64_t>(hosts.size())},
        {"threads", "threads per rank", one_or_list(threads)},
        {"batch", "batch, sequences a step", at(description, "batch.global")},
        {"micro_batch", "micro-batch, sequences", at(description, "batch.micro")},
        {"length", "length, tokens a sequence", at(description, "batch.length")},
        {"tensor", "tensor parallel", at(description, "parallel.tensor")},
        {"pipeline", "pipeline parallel", at(description, "parallel.pipeline")},
        {"precision", "precision", at(description, "precision.compute")},
        {"device", "device", at(description, "run.device")},
        {"program_version", "program version", header.program_version},
        {"commit", "commit", header.commit},
        {"started", "started", calendar_time(run.parts.front().file.header().start_time)},
        {"launches", "launches", run.launches},
        {"detail", "trace detail", header.detail},
    };
}

std::string status_of(const trace::Run& run) {
    std::error_code ignored;
    std::filesystem::path folder = run.path;
    if (!std::filesystem::is_directory(folder, ignored)) folder = folder.parent_path();
    std::ifstream stream(folder / "status.json");
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace lockstep::analysis
