#include "checkpoint/part_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/format.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/retention.hpp"
#include "cluster/nodes.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view part_word = ".part-", of_word = "-of-", copy_suffix = ".copy";

std::optional<int> number_in(std::string_view digits) {
    int number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return number;
}

std::string name_in(const std::string& path) {
    return std::filesystem::path(path).filename().string();
}

template <class Wanted>
std::vector<std::string> files_in(const std::string& folder, const Wanted& wanted) {
    std::vector<std::string> paths;
    std::error_code error;
    std::filesystem::directory_iterator at(folder, error), end;
    if (error == std::errc::no_such_file_or_directory) return paths;
    for (; !error && at != end; at.increment(error))
        if (wanted(at->path().filename().string())) paths.push_back(at->path().string());
    if (error) throw usage_error("the folder {} cannot be read: {}", folder, error.message());
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

std::string part_file_name(const PartName& name) {
    return fmt::format("{}{}{:04}{}{:04}{}", file_name(name.step), part_word, name.part, of_word, name.parts,
                       name.copy ? copy_suffix : "");
}

std::optional<PartName> part_of(const std::string& path) {
    const std::string whole = name_in(path);
    std::string_view text = whole;
    PartName name;
    name.copy = text.ends_with(copy_suffix);
    if (name.copy) text.remove_suffix(copy_suffix.size());
    const std::size_t part = text.rfind(part_word), of = text.rfind(of_word);
    if (part == std::string_view::npos || of == std::string_view::npos || of < part + part_word.size())
        return std::nullopt;
    const auto step = step_of(text.substr(0, part));
    const auto number = number_in(text.substr(part + part_word.size(), of - part - part_word.size()));
    const auto parts = number_in(text.substr(of + of_word.size()));
    if (!step || !number || !parts || *number < 0 || *number >= *parts) return std::nullopt;
    name = {*step, *number, *parts, name.copy};
    return part_file_name(name) == whole ? std::optional(name) : std::nullopt;
}

std::string part_text(const PartName& name) {
    return fmt::format("part {} (of 0 to {}) of a local checkpoint of step {}{}", name.part, name.parts - 1,
                       with_commas(name.step), name.copy ? ", a partner's copy" : "");
}

PartSets part_sets(const std::vector<PartFile>& files) {
    // By step, number of parts and header.
    std::map<std::tuple<std::int64_t, int, std::uint64_t>, PartSet> sets;
    for (const PartFile& file : files) {
        const PartName& name = file.name;
        PartSet& set = sets[{name.step, name.parts, file.header}];
        set.step = name.step;
        set.parts = name.parts;
        set.header = file.header;
        set.sources.resize(static_cast<std::size_t>(name.parts));
        set.sources[static_cast<std::size_t>(name.part)].push_back({file.node, name.copy});
    }
    PartSets found;
    for (auto& [key, set] : sets) {
        const bool whole =
            std::none_of(set.sources.begin(), set.sources.end(), [](const auto& of_part) { return of_part.empty(); });
        for (auto& of_part : set.sources)
            std::sort(of_part.begin(), of_part.end(), [](const PartSource& a, const PartSource& b) {
                return std::pair(a.copy, a.node) < std::pair(b.copy, b.node);
            });
        (whole ? found.complete : found.incomplete).push_back(std::move(set));
    }
    std::reverse(found.complete.begin(), found.complete.end());
    std::reverse(found.incomplete.begin(), found.incomplete.end());
    return found;
}

std::vector<std::string> list_parts(const std::string& folder) {
    return files_in(folder, [](const std::string& name) { return part_of(name).has_value(); });
}

std::vector<std::string> list_unfinished_parts(const std::string& folder) {
    return files_in(folder, [](const std::string& name) {
        const std::string suffix = unfinished_name("");
        return name.ends_with(suffix) && part_of(name.substr(0, name.size() - suffix.size())).has_value();
    });
}

std::vector<int> partners(const std::vector<int>& nodes) {
    const auto ranks = cluster::ranks_of_nodes(nodes);
    std::vector<int> partners(nodes.size(), -1);
    if (ranks.size() < 2) return partners;
    for (std::size_t node = 0; node < ranks.size(); ++node) {
        const auto& next = ranks[(node + 1) % ranks.size()];
        for (std::size_t place = 0; place < ranks[node].size(); ++place)
            partners[static_cast<std::size_t>(ranks[node][place])] = next[place % next.size()];
    }
    return partners;
}

}  // namespace lockstep::checkpoint
