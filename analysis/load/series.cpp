#include "analysis/load/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::size_t most_compared = 64;

bool begins_with(const std::string& text, const char* start) {
    return text.rfind(start, 0) == 0;
}

std::string shown(const std::string& value) {
    return value.empty() ? "not given" : value;
}

std::string per_rank(const Measurement& run) {
    if (run.batch == 0 || run.ranks == 0) return "";
    return fmt::format("{:.9g}", static_cast<double>(run.batch) / static_cast<double>(run.ranks));
}

// All that must be the same within a series, as one text.
std::string fingerprint(const Measurement& run, Kind kind, const std::vector<std::string>& ignored) {
    std::string all = run.imported ? "imported\n" : "";
    for (const auto& [key, value] : run.settings) {
        if (tells_no_runs_apart(key) || is_only_marked(key) || value.empty()) continue;
        if (std::find(ignored.begin(), ignored.end(), key) != ignored.end()) continue;
        if (key == "batch.global") continue;
        all += key + "=" + value + "\n";
    }
    const bool batch_ignored = std::find(ignored.begin(), ignored.end(), "batch.global") != ignored.end();
    if (!batch_ignored) all += kind == Kind::strong ? run.setting("batch.global") : "per rank " + per_rank(run);
    return all;
}

std::size_t distinct_ranks(const std::vector<Measurement>& all, const std::vector<std::size_t>& runs) {
    std::set<std::int64_t> ranks;
    for (const std::size_t run : runs) ranks.insert(all[run].ranks);
    return ranks.size();
}

std::map<std::string, std::vector<std::size_t>> by_fingerprint(const std::vector<Measurement>& all, Kind kind,
                                                               const std::vector<std::string>& ignored) {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < all.size(); ++i) groups[fingerprint(all[i], kind, ignored)].push_back(i);
    return groups;
}

Group make_group(const std::vector<Measurement>& all, std::vector<std::size_t> runs, Kind kind, bool given,
                 const std::vector<std::string>& ignored) {
    Group group;
    group.kind = kind;
    std::stable_sort(runs.begin(), runs.end(), [&](auto a, auto b) { return all[a].ranks < all[b].ranks; });
    group.runs = std::move(runs);
    const Measurement& first = all[group.runs.front()];
    const bool known = first.batch > 0;
    if (kind == Kind::strong) {
        group.title = known ? fmt::format("batch {}", first.batch) : "the same work";
        group.kind_reason = known ? fmt::format("the batch is {} in all of them", with_commas(first.batch))
                                  : "no batch is known, so the same work is assumed";
    } else {
        group.title = known ? fmt::format("batch {} per rank", per_rank(first)) : "work that grows with the ranks";
        group.kind_reason = known ? fmt::format("the batch is {} sequences per rank in all of them", per_rank(first))
                                  : "no batch is known, so work that grows with the ranks is assumed";
    }
    if (given) group.kind_reason = "as given";
    std::vector<const Measurement*> members;
    for (const std::size_t run : group.runs) members.push_back(&all[run]);
    for (const Difference& difference : differences(members)) {
        const bool asked = std::find(ignored.begin(), ignored.end(), difference.key) != ignored.end();
        if (!is_only_marked(difference.key) && !asked) continue;
        std::vector<std::string> values;
        for (const std::string& value : difference.values) values.push_back(shown(value));
        group.remarks.push_back(
            fmt::format("The runs also differ in {}: {}.", difference.key, fmt::join(values, "; ")));
    }
    return group;
}

}  // namespace

bool tells_no_runs_apart(const std::string& key) {
    constexpr std::array<const char*, 12> exact = {
        "ranks",         "hosts",    "accumulation", "micro_batch",   "batch.micro", "batch.accumulation",
        "parallel.data", "run.name", "run.folder",   "run.self_test", "run.bind",    "run.peak_tflops"};
    for (const char* name : exact)
        if (key == name) return true;
    for (const char* start : {"checkpoint.", "trace.", "watchdog.", "validation."})
        if (begins_with(key, start)) return true;
    return false;
}

bool is_only_marked(const std::string& key) {
    for (const char* name :
         {"run.seed", "threads", "program_version", "commit", "data.train", "data.validation", "data.order"})
        if (key == name) return true;
    return begins_with(key, "schedule.") || begins_with(key, "optimizer.");
}

std::vector<Difference> differences_of(const std::vector<const Measurement*>& runs) {
    std::set<std::string> keys;
    for (const Measurement* run : runs)
        for (const auto& [key, value] : run->settings) keys.insert(key);
    std::vector<Difference> all;
    for (const std::string& key : keys) {
        if (key == "run.name" || key == "run.folder" || key == "checkpoint.folder") continue;
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

std::vector<Difference> differences(const std::vector<const Measurement*>& runs) {
    std::vector<Difference> all = differences_of(runs);
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto& one) { return tells_no_runs_apart(one.key); }),
              all.end());
    return all;
}

std::string words_of(const Difference& difference) {
    std::vector<std::string> values;
    for (const std::string& value : difference.values) values.push_back(shown(value));
    return fmt::format("{} ({})", difference.key, fmt::join(values, ", "));
}

Grouping group_runs(const std::vector<Measurement>& all, const std::string& kind,
                    const std::vector<std::string>& ignored) {
    Grouping result;
    std::vector<bool> placed(all.size(), false);
    for (const Kind one : {Kind::strong, Kind::weak}) {
        const std::string name = one == Kind::strong ? "strong" : "weak";
        if (kind != "auto" && kind != name) continue;
        for (const auto& [print, runs] : by_fingerprint(all, one, ignored)) {
            if (distinct_ranks(all, runs) < 2) continue;
            // Runs of a strong series may be the base of a weak one, but do not make one by themselves.
            const bool news = std::any_of(runs.begin(), runs.end(), [&](auto run) { return !placed[run]; });
            if (!news) continue;
            result.groups.push_back(make_group(all, runs, one, kind != "auto", ignored));
            for (const std::size_t run : runs) placed[run] = true;
        }
    }
    const auto order = [&](const Group& a, const Group& b) { return a.runs.front() < b.runs.front(); };
    std::stable_sort(result.groups.begin(), result.groups.end(), order);
    std::string first_why;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (placed[i]) continue;
        std::string why;
        // What keeps it from the run that it is most like, of another number of ranks if there is one.
        std::size_t nearest = all.size();
        // Of very many runs a few are enough to say why.
        for (std::size_t j = 0; j < std::min(all.size(), most_compared); ++j) {
            if (j == i) continue;
            const auto rank = [&](std::size_t k) {
                return std::pair(all[k].ranks == all[i].ranks, differences({&all[i], &all[k]}).size());
            };
            if (nearest == all.size() || rank(j) < rank(nearest)) nearest = j;
        }
        if (nearest == all.size()) {
            why = fmt::format("{} is the only run", all[i].name);
        } else if (all[nearest].ranks == all[i].ranks) {
            why = fmt::format("{} and the other runs have {} rank{} each", all[i].name, all[i].ranks,
                              plural(all[i].ranks));
        } else {
            std::vector<std::string> settings;
            for (const Difference& difference : differences({&all[i], &all[nearest]}))
                if (!is_only_marked(difference.key) &&
                    std::find(ignored.begin(), ignored.end(), difference.key) == ignored.end())
                    settings.push_back(words_of(difference));
            if (all[i].imported != all[nearest].imported) settings.emplace_back("their source (table or trace)");
            why = settings.empty() ? fmt::format("the batch per rank is {} in {} and {} in {}", per_rank(all[i]),
                                                 all[i].name, per_rank(all[nearest]), all[nearest].name)
                                   : fmt::format("{} and {} differ in more than the ranks: {}", all[i].name,
                                                 all[nearest].name, fmt::join(settings, ", "));
        }
        if (first_why.empty()) first_why = why;
        result.remarks.push_back(fmt::format("{} belongs to no series: {}.", all[i].name, why));
    }
    if (result.groups.empty())
        throw usage_error(
            "no two of these runs form a scaling series: {}; give runs that differ in the number of ranks, or name "
            "what else may differ with --ignore KEY",
            first_why.empty() ? "no run was given" : first_why);
    return result;
}

}  // namespace lockstep::analysis
