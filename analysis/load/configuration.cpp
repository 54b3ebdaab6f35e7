#include "analysis/load/configuration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "analysis/load/description.hpp"
#include "analysis/load/settings.hpp"
#include "base/clock.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {
namespace {

// A value of the description; nothing where it is missing.
Cell at(const toml::table& table, std::string_view path) {
    const auto node = table.at_path(path);
    if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
    if (const auto number = node.value_exact<double>()) return *number;
    if (const auto words = node.value_exact<std::string>()) return *words;
    if (const toml::array* list = node.as_array()) {
        std::vector<std::string> texts;
        for (const toml::node& item : *list)
            if (const auto text = item.value<std::string>()) texts.push_back(*text);
        return fmt::format("[{}]", fmt::join(texts, ", "));
    }
    return {};
}

// What one launch was; of threads, a value for each rank.
struct Values {
    std::string key, title;
    std::vector<Cell> values;
};

std::vector<Values> values_of(const trace::Header& header) {
    const toml::table description = description_table(header.description);
    std::vector<Cell> threads;
    for (const auto& rank : header.ranks) threads.emplace_back(rank.threads);
    constexpr std::int64_t damaged = 1 << 30;  // no coordinate is larger
    std::array<std::int64_t, 4> grid{};        // the largest coordinates
    for (const auto& rank : header.ranks) {
        const std::array<std::int64_t, 4> own = {rank.data, rank.tensor, rank.pipeline, rank.context};
        for (std::size_t i = 0; i < grid.size(); ++i) grid[i] = std::max(grid[i], std::min(own[i], damaged));
    }
    // Of an imported run the table tells the numbers alone.
    const bool imported = header.is_imported();
    if (imported) threads.clear();
    const auto of_machine = [imported](const Cell& value) { return imported ? Cell() : value; };
    return {
        {"name", "run", {header.run_name}},
        {"preset", "preset", {at(description, "model.preset")}},
        {"mixer", "mixer", {at(description, "model.mixer")}},
        {"width", "width", {at(description, "model.width")}},
        {"layers", "layers", {at(description, "model.layers")}},
        {"vocabulary", "vocabulary", {at(description, "model.vocabulary")}},
        {"ranks", "ranks", {static_cast<std::int64_t>(header.ranks.size())}},
        {"grid",
         "grid, data x tensor x pipeline x context",
         {of_machine(fmt::format("{} x {} x {} x {}", grid[0] + 1, grid[1] + 1, grid[2] + 1, grid[3] + 1))}},
        {"hosts", "hosts", {of_machine(host_count(header))}},
        {"threads", "threads per rank", threads},
        {"batch", "batch, sequences per step", {at(description, "batch.global")}},
        {"micro_batch", "micro-batch, sequences", {at(description, "batch.micro")}},
        {"length", "length, tokens per sequence", {at(description, "batch.length")}},
        {"data", "data parallel", {at(description, "parallel.data")}},
        {"tensor", "tensor parallel", {at(description, "parallel.tensor")}},
        {"pipeline", "pipeline parallel", {at(description, "parallel.pipeline")}},
        {"context", "context parallel", {at(description, "parallel.context")}},
        {"interleave", "chunks per pipeline stage", {at(description, "parallel.interleave")}},
        {"zero", "ZeRO stage", {at(description, "parallel.zero")}},
        {"lanes", "lanes", {at(description, "parallel.lanes")}},
        {"recompute", "recomputation", {at(description, "parallel.recompute")}},
        {"precision", "precision", {at(description, "precision.compute")}},
        {"device", "device", {at(description, "run.device")}},
        {"program_version", "program version", {of_machine(header.program_version)}},
        {"commit", "commit", {of_machine(header.commit)}},
        {"detail", "trace detail", {header.detail}},
    };
}

}  // namespace

Cell one_or_list(const std::vector<Cell>& values) {
    std::vector<Cell> distinct;
    for (const Cell& value : values)
        if (!std::holds_alternative<std::monostate>(value) &&
            std::find(distinct.begin(), distinct.end(), value) == distinct.end())
            distinct.push_back(value);
    if (distinct.empty()) return {};
    if (distinct.size() == 1) return distinct.front();
    std::string list;
    for (const Cell& value : distinct) {
        if (!list.empty()) list += ", ";
        if (const auto* whole = std::get_if<std::int64_t>(&value)) list += fmt::format("{}", *whole);
        if (const auto* number = std::get_if<double>(&value)) list += fmt::format("{}", *number);
        if (const auto* words = std::get_if<std::string>(&value)) list += *words;
    }
    return list;
}

std::vector<Setting> configuration_of(const trace::Run& run) {
    const bool any = std::any_of(run.parts.begin(), run.parts.end(), [](const auto& part) { return part.rows > 0; });
    std::vector<Values> all;
    for (const auto& part : run.parts) {
        if (any && part.rows == 0) continue;  // nothing of it is in the figures
        const std::vector<Values> own = values_of(part.file.header());
        if (all.empty()) {
            all = own;
            continue;
        }
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].values.insert(all[i].values.end(), own[i].values.begin(), own[i].values.end());
    }
    std::vector<Setting> settings;
    for (const Values& one : all) settings.push_back({one.key, one.title, one_or_list(one.values)});
    settings.push_back({"started", "started", calendar_time(run.parts.front().file.header().start_time)});
    settings.push_back({"launches", "launches", run.launches});
    return settings;
}

std::vector<Launch> launches_of(const trace::Run& run) {
    std::vector<Launch> launches;
    for (const auto& part : run.parts) {
        if (!launches.empty() && launches.back().number == part.launch) continue;
        const trace::Header& header = part.file.header();
        Launch launch{part.launch, {{"started", calendar_time(header.start_time)}}};
        for (const Values& one : values_of(header)) launch.settings[one.key] = one_or_list(one.values);
        launches.push_back(std::move(launch));
    }
    return launches;
}

std::string status_of(const trace::Run& run) {
    std::error_code ignored;
    std::filesystem::path folder = run.path;
    if (!std::filesystem::is_directory(folder, ignored)) folder = folder.parent_path();
    return text_of_regular_file((folder / "status.json").string());
}

}  // namespace lockstep::analysis
