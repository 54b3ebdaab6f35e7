#include "watch/watch_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/json_text.hpp"
#include "base/plural.hpp"
#include "base/table.hpp"
#include "cluster/rank_list.hpp"
#include "watch/blame.hpp"

namespace lockstep::watch {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FlightOperation, number, group, kind, bytes, peer, on_device, done, begun_ago,
                                   seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FlightGroup, name, members, collectives, messages)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FlightState, rank, ranks, host, process, stage, step, region, quiet_seconds, groups,
                                   operations)

namespace {

using Json = nlohmann::json;

// Only times are fractions. Converting another one to the number that it should be is undefined beyond that's range.
void check_numbers(const Json& json) {
    for (const auto& [key, value] : json.items())
        if (value.is_number_float() && key != "begun_ago" && key != "seconds" && key != "quiet_seconds")
            throw damaged_error("a node's part of the report is damaged: {} is {}", key, value.dump());
}

RankReport rank_from(const Json& json) {
    check_numbers(json);
    check_numbers(json.at("waiting"));
    for (const char* list : {"groups", "operations"})
        for (const Json& each : json.at(list)) check_numbers(each);
    RankReport report;
    json.get_to(report.flight);
    json.at("alive").get_to(report.alive);
    json.at("stopped").get_to(report.stopped);
    if (!json.at("waiting").is_null()) report.flight.waiting = json.at("waiting").get<FlightOperation>();
    return report;
}

bool is_gone(const RankReport& report) {
    return !report.alive;
}
bool is_stopped(const RankReport& report) {
    return report.alive && report.stopped;
}

std::map<int, const RankReport*> by_rank(const std::vector<RankReport>& ranks) {
    std::map<int, const RankReport*> known;
    for (const RankReport& report : ranks) known[report.flight.rank] = &report;
    return known;
}

// How many of a group's collectives each rank has begun, and who is waited for. Groups are equal if names and members
// are.
class Waits {
  public:
    explicit Waits(const std::vector<RankReport>& ranks) : known_(by_rank(ranks)) {
        for (const RankReport& report : ranks)
            for (const auto& group : report.flight.groups)
                begun_[{group.name, group.members}][report.flight.rank] = group.collectives;
    }

    // The ranks that a rank waits for, ascending; empty if it does not wait.
    const std::vector<int>& of(const RankReport& report) {
        static const std::vector<int> nobody;
        const FlightState& state = report.flight;
        if (!state.waiting || is_gone(report) || is_stopped(report)) return nobody;
        const FlightOperation& operation = *state.waiting;
        if (cluster::is_message(operation.kind)) {
            std::vector<int>& peer = messages_[operation.peer];
            peer = {operation.peer};
            return peer;
        }
        for (const auto& group : state.groups)
            if (group.name == operation.group && group.collectives >= operation.number)
                return missing({group.name, group.members}, operation.number);
        return nobody;
    }

    // Ranks that have begun fewer collectives of a group than others without waiting themselves: all that is known of
    // ranks whose GPUs wait.
    std::map<int, std::string> behind() const {
        std::map<int, std::string> ranks;
        for (const auto& [group, begun] : begun_) {
            std::uint64_t most = 0;
            for (const auto& [rank, count] : begun) most = std::max(most, count);
            for (const auto& [rank, count] : begun)
                if (count < most && !known_.at(rank)->flight.waiting)
                    ranks.emplace(rank, fmt::format("collective {} of {}", count + 1, group.first));
        }
        return ranks;
    }

  private:
    using Group = std::pair<std::string, std::string>;  // name and members
    const std::vector<int>& missing(const Group& group, std::uint64_t number) {
        const auto [entry, is_new] = missing_.try_emplace({group, number});
        if (!is_new) return entry->second;
        const std::map<int, std::uint64_t>& begun = begun_[group];
        for (const int member : cluster::rank_list_from(group.second)) {
            const auto count = begun.find(member);
            const bool behind = count == begun.end() || count->second < number;
            // A stopped or dead member holds up the others too.
            if (behind || is_stopped(*known_.at(member)) || is_gone(*known_.at(member)))
                entry->second.push_back(member);
        }
        return entry->second;
    }

    std::map<int, const RankReport*> known_;
    std::map<Group, std::map<int, std::uint64_t>> begun_;
    std::map<std::pair<Group, std::uint64_t>, std::vector<int>> missing_;
    std::map<int, std::vector<int>> messages_;
};

std::string condition(const RankReport& report) {
    const FlightState& state = report.flight;
    std::string text;
    if (is_gone(report))
        text = state.stage == cluster::FlightStage::running ? "is gone" : "has ended";
    else if (is_stopped(report))
        text = "is stopped";
    else
        text = state.waiting ? "waits" : "works";
    return text + fmt::format(" in step {}{}{}", state.step, state.region.empty() ? "" : ", ", state.region);
}

const char* state_word(const RankReport& report) {
    if (is_gone(report)) return report.flight.stage == cluster::FlightStage::running ? "gone" : "ended";
    if (is_stopped(report)) return "stopped";
    return report.flight.waiting ? "waits" : "works";
}

std::string operations_text(const FlightState& state) {
    if (state.operations.empty()) return "  none\n";
    Table table({{"group", "group"},
                 {"number", "number"},
                 {"operation", "operation"},
                 {"peer", "with rank"},
                 {"size", "size"},
                 {"begun_ago", "begun, s ago", 3},
                 {"seconds", "took, s", 6}});
    for (const FlightOperation& operation : state.operations) {
        Cell took = operation.seconds;
        if (!operation.done) took = std::string(operation.on_device ? "on the GPU" : "pending");
        table.add_row({operation.group, static_cast<std::int64_t>(operation.number),
                       std::string(cluster::flight_kind_name(operation.kind)),
                       operation.peer < 0 ? Cell() : Cell(static_cast<std::int64_t>(operation.peer)),
                       human_bytes(static_cast<double>(operation.bytes)), operation.begun_ago, std::move(took)});
    }
    return table.print(TableFormat::text);
}

}  // namespace

std::string operation_text(const FlightOperation& operation) {
    std::string text = cluster::flight_kind_name(operation.kind);
    if (cluster::is_message(operation.kind))
        text += fmt::format(" {} rank {} in {}", operation.kind == cluster::FlightKind::send ? "to" : "from",
                            operation.peer, operation.group);
    else
        text += fmt::format(" {} of {}", operation.number, operation.group);
    if (operation.bytes > 0) text += fmt::format(" ({})", human_bytes(static_cast<double>(operation.bytes)));
    return text;
}

std::string node_report_text(const std::vector<RankReport>& ranks) {
    Json list = Json::array();
    for (const RankReport& report : ranks) {
        Json entry = report.flight;
        entry["alive"] = report.alive;
        entry["stopped"] = report.stopped;
        entry["waiting"] = report.flight.waiting ? Json(*report.flight.waiting) : Json();
        list.push_back(std::move(entry));
    }
    return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<RankReport> node_report_from(const std::string& text) {
    std::vector<RankReport> ranks;
    try {
        if (nests_deeper(text))
            throw damaged_error("a node's part of the report is damaged: it nests deeper than {} levels", deepest_json);
        for (const Json& each : Json::parse(text)) ranks.push_back(rank_from(each));
    } catch (const Json::exception& problem) {
        throw damaged_error("a node's part of the report is damaged: {}", problem.what());
    }
    return ranks;
}

std::vector<Laggard> find_laggards(const std::vector<RankReport>& ranks, int size) {
    struct Wait {
        std::string missing;
        std::vector<int> waiting;
    };
    Waits waits(ranks);
    std::deque<Wait> all;
    std::unordered_map<const std::vector<int>*, Wait*> known;  // by whom they wait for: equal lists are one
    std::map<int, std::vector<const Wait*>> wanted;
    std::unordered_set<int> waiting;
    for (const RankReport& report : ranks) {
        const std::vector<int>& others = waits.of(report);
        if (others.empty()) continue;
        Wait*& wait = known[&others];
        if (wait == nullptr) {
            wait = &all.emplace_back(Wait{operation_text(*report.flight.waiting), {}});
            for (const int other : others) wanted[other].push_back(wait);
        }
        wait->waiting.push_back(report.flight.rank);
        waiting.insert(report.flight.rank);
    }
    std::vector<Laggard> laggards;
    for (const auto& [rank, for_it] : wanted) {
        if (rank < 0 || rank >= size || waiting.contains(rank)) continue;
        Laggard& laggard = laggards.emplace_back(Laggard{rank, for_it.front()->missing, {}});
        if (laggards.size() > most_named_laggards) continue;
        for (const Wait* wait : for_it)
            laggard.waiting.insert(laggard.waiting.end(), wait->waiting.begin(), wait->waiting.end());
        std::sort(laggard.waiting.begin(), laggard.waiting.end());
    }
    const auto add = [&](int rank, const std::string& missing) {
        if (rank >= 0 && rank < size) laggards.push_back({rank, missing, {}});
    };
    if (laggards.empty())
        for (const RankReport& report : ranks)
            if (is_stopped(report) || (is_gone(report) && report.flight.stage == cluster::FlightStage::running))
                add(report.flight.rank, "");
    if (laggards.empty())
        for (const auto& [rank, missing] : waits.behind()) add(rank, missing);
    if (laggards.empty())
        for (const RankReport& report : ranks)
            if (!report.flight.waiting && !is_gone(report)) add(report.flight.rank, "");
    return laggards;
}

double quiet_of_working(const std::vector<RankReport>& ranks) {
    double least = std::numeric_limits<double>::infinity();
    for (const RankReport& report : ranks)
        if (!report.flight.waiting && !is_stopped(report) && !is_gone(report))
            least = std::min(least, report.flight.quiet_seconds);
    return least;
}

std::string laggards_sentence(const std::vector<Laggard>& laggards, const std::vector<RankReport>& ranks, int size,
                              const std::vector<std::string>& hosts) {
    const auto known = by_rank(ranks);
    if (const std::string silence = silence_sentence(find_silence(ranks, size), ranks); !silence.empty())
        return silence;
    if (laggards.empty())
        return size > 1 ? "no rank has recorded what it is waiting for" : "the only rank waits for itself";
    const auto host_of = [&](int rank) {
        const auto index = static_cast<std::size_t>(rank);
        return index < hosts.size() ? fmt::format(" ({})", hosts[index]) : std::string();
    };
    std::string text;
    for (std::size_t i = 0; i < std::min(laggards.size(), most_named_laggards); ++i) {
        const Laggard& laggard = laggards[i];
        const auto found = known.find(laggard.rank);
        if (found == known.end())
            text += fmt::format("{}rank {}{} did not report", i > 0 ? "; " : "", laggard.rank, host_of(laggard.rank));
        else
            text += fmt::format("{}rank {} ({}, process {}) {}", i > 0 ? "; " : "", laggard.rank,
                                found->second->flight.host, found->second->flight.process, condition(*found->second));
        if (!laggard.missing.empty() && laggard.waiting.empty()) text += ", and has not begun " + laggard.missing;
        if (!laggard.waiting.empty())
            text += fmt::format(", and rank{} {} wait{} for it at {}", plural(laggard.waiting.size()),
                                cluster::short_rank_list_text(laggard.waiting), laggard.waiting.size() == 1 ? "s" : "",
                                laggard.missing);
    }
    if (laggards.size() > most_named_laggards)
        text += fmt::format("; and {} more ranks", laggards.size() - most_named_laggards);
    return text;
}

std::string progress_sentence(const std::vector<RankReport>& ranks, int size) {
    constexpr double long_seconds = 2;
    const auto moves = [&](const RankReport& report) {
        return report.flight.quiet_seconds < long_seconds && !is_stopped(report) && !is_gone(report);
    };
    if (static_cast<int>(ranks.size()) < size || !std::all_of(ranks.begin(), ranks.end(), moves))
        return laggards_sentence(find_laggards(ranks, size), ranks, size);
    const auto [least, most] = std::minmax_element(
        ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.flight.step < b.flight.step; });
    const std::string steps = least->flight.step == most->flight.step
                                  ? fmt::format("step {}", least->flight.step)
                                  : fmt::format("steps {} to {}", least->flight.step, most->flight.step);
    return size == 1 ? "the rank is making progress, in " + steps
                     : fmt::format("all {} ranks are making progress, in {}", size, steps);
}

std::string watch_report_text(const std::string& title, const std::string& sentence,
                              const std::vector<RankReport>& ranks, int size) {
    std::string text = title + "\n" + sentence + "\n\n";
    Table table({{"rank", "rank"},
                 {"host", "host"},
                 {"process", "process"},
                 {"state", "state"},
                 {"step", "step"},
                 {"region", "region"},
                 {"quiet", "quiet, s", 1},
                 {"waits_for", "waits for"}});
    const auto known = by_rank(ranks);
    Waits waited_for(ranks);
    std::vector<int> silent;
    std::unordered_map<const std::vector<int>*, std::string> lists;
    for (int rank = 0; rank < size; ++rank) {
        const auto found = known.find(rank);
        if (found == known.end()) {
            silent.push_back(rank);
            continue;
        }
        const FlightState& state = found->second->flight;
        std::string waits;
        if (state.waiting) {
            waits = operation_text(*state.waiting);
            const std::vector<int>& missing = waited_for.of(*found->second);
            if (!missing.empty() && !cluster::is_message(state.waiting->kind)) {
                std::string& list = lists[&missing];
                if (list.empty()) list = cluster::short_rank_list_text(missing);
                waits += ", not begun by " + list;
            }
        }
        table.add_row({static_cast<std::int64_t>(rank), state.host, std::to_string(state.process),
                       std::string(state_word(*found->second)), state.step, state.region, state.quiet_seconds, waits});
    }
    text += table.print(TableFormat::text);
    if (!silent.empty())
        text += fmt::format("\nNo report from rank{} {}.\n", plural(silent.size()), cluster::rank_list_text(silent));
    for (const auto& [rank, report] : known)
        text += fmt::format("\nThe last communications of rank {}, oldest first:\n{}", rank,
                            operations_text(report->flight));
    return text;
}

}  // namespace lockstep::watch
