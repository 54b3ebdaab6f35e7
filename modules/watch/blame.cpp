#include "watch/blame.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "cluster/rank_list.hpp"

namespace lockstep::watch {
namespace {

using ByRank = std::map<int, const RankReport*>;

bool waits(const RankReport& report) {
    return report.flight.waiting && report.alive && !report.stopped;
}

bool holds_up(const Laggard& laggard, const ByRank& known) {
    const auto found = known.find(laggard.rank);
    return found == known.end() || !waits(*found->second);
}

// Has begun this collective, and its recorder does not show it as pending.
bool has_left(const RankReport& report, const FlightGroup& group, std::uint64_t number) {
    const FlightState& state = report.flight;
    const bool begun = std::any_of(state.groups.begin(), state.groups.end(), [&](const FlightGroup& other) {
        return other.name == group.name && other.members == group.members && other.collectives >= number;
    });
    return begun && std::none_of(state.operations.begin(), state.operations.end(), [&](const FlightOperation& other) {
               return other.group == group.name && other.number == number && !is_message(other.kind) && !other.done;
           });
}

std::vector<std::string> hosts_of(const std::vector<int>& ranks, const ByRank& known) {
    std::set<std::string> hosts;
    for (const int rank : ranks)
        if (const auto found = known.find(rank); found != known.end()) hosts.insert(found->second->flight.host);
    return {hosts.begin(), hosts.end()};
}

std::string ranks_text(const std::vector<int>& ranks, const ByRank& known) {
    constexpr std::size_t most_hosts = 4;
    const std::vector<std::string> hosts = hosts_of(ranks, known);
    std::string names = hosts.empty() ? "" : fmt::format(" ({})", fmt::join(hosts, ", "));
    if (hosts.size() > most_hosts) names = fmt::format(" (on {} nodes)", hosts.size());
    return fmt::format("rank{} {}{}", plural(ranks.size()), cluster::short_rank_list_text(ranks), names);
}

ByRank by_rank(const std::vector<RankReport>& ranks) {
    ByRank known;
    for (const RankReport& report : ranks) known[report.flight.rank] = &report;
    return known;
}

std::vector<Silence> silence_among(const std::vector<Laggard>& laggards, const ByRank& known) {
    if (std::any_of(laggards.begin(), laggards.end(), [&](const Laggard& each) { return holds_up(each, known); }))
        return {};
    std::vector<Silence> found;
    std::map<std::tuple<std::string, std::string, std::uint64_t>, Silence> collectives;
    for (const auto& [rank, report] : known) {
        if (!waits(*report)) continue;
        const FlightOperation& operation = *report->flight.waiting;
        const std::string text = operation_text(operation);
        if (cluster::is_message(operation.kind)) {
            const std::vector<int> own = {rank}, peer = {operation.peer};
            const bool sends = operation.kind == cluster::FlightKind::send;
            found.push_back({sends ? own : peer, sends ? peer : own, text, operation.seconds});
            continue;
        }
        for (const FlightGroup& group : report->flight.groups) {
            if (group.name != operation.group || group.collectives < operation.number) continue;
            Silence& silence = collectives[{group.name, group.members, operation.number}];
            silence.operation = text;
            silence.knows_members = !group.members.empty();
            silence.seconds = std::max(silence.seconds, operation.seconds);
            silence.to.push_back(rank);
            if (silence.to.size() > 1) break;
            for (const int member : cluster::rank_list_from(group.members))
                if (const auto other = known.find(member);
                    other != known.end() && has_left(*other->second, group, operation.number))
                    silence.from.push_back(member);
            break;
        }
    }
    for (auto& [key, silence] : collectives) {
        // One that waits in it has not left it, even if its recorder has forgotten the begin.
        const std::set<int> inside(silence.to.begin(), silence.to.end());
        silence.from.erase(
            std::remove_if(silence.from.begin(), silence.from.end(), [&](int rank) { return inside.count(rank) != 0; }),
            silence.from.end());
        found.push_back(std::move(silence));
    }
    // Where some got through, those that nobody got through say no more.
    const auto heard =
        std::stable_partition(found.begin(), found.end(), [](const Silence& silence) { return !silence.from.empty(); });
    if (heard != found.begin()) found.erase(heard, found.end());
    std::stable_sort(found.begin(), found.end(),
                     [](const Silence& a, const Silence& b) { return a.seconds > b.seconds; });
    return found;
}

}  // namespace

std::vector<Silence> find_silence(const std::vector<RankReport>& ranks, int size) {
    if (size < 2) return {};
    return silence_among(find_laggards(ranks, size), by_rank(ranks));
}

std::string silence_sentence(const std::vector<Silence>& silence, const std::vector<RankReport>& ranks) {
    constexpr std::size_t most_named = 4;
    const ByRank known = by_rank(ranks);
    std::string text;
    for (std::size_t i = 0; i < std::min(silence.size(), most_named); ++i) {
        const Silence& each = silence[i];
        if (i > 0) text += "; ";
        if (each.from.empty()) {
            const bool one = each.to.size() == 1;
            text += fmt::format("{} ha{} been in {} for {}", ranks_text(each.to, known), one ? "s" : "ve",
                                each.operation, human_seconds(each.seconds));
            if (each.knows_members) text += one ? ", and no rank has left it" : ", and none has left it";
        } else {
            text += fmt::format("nothing from {} has reached {} for {}, in {}", ranks_text(each.from, known),
                                ranks_text(each.to, known), human_seconds(each.seconds), each.operation);
        }
    }
    if (silence.size() > most_named) text += fmt::format("; and {} more", silence.size() - most_named);
    return text;
}

NodeBlame blamed_nodes(const std::vector<RankReport>& ranks, const std::vector<std::string>& hosts) {
    const ByRank known = by_rank(ranks);
    std::set<std::string> all(hosts.begin(), hosts.end()), alive, suspected;
    for (const RankReport& report : ranks)
        if (report.alive) alive.insert(report.flight.host);
    NodeBlame blame;
    if (!alive.empty())
        std::set_difference(all.begin(), all.end(), alive.begin(), alive.end(), std::back_inserter(blame.lost));

    const std::vector<Laggard> laggards = find_laggards(ranks, static_cast<int>(hosts.size()));
    for (const Laggard& laggard : laggards)
        if (holds_up(laggard, known)) suspected.insert(hosts.at(static_cast<std::size_t>(laggard.rank)));
    for (const Silence& silence : silence_among(laggards, known)) {
        const std::vector<std::string> from = hosts_of(silence.from, known), to = hosts_of(silence.to, known);
        if (from.empty() || from.size() == to.size()) continue;
        const auto& fewer = from.size() < to.size() ? from : to;
        suspected.insert(fewer.begin(), fewer.end());
    }
    for (const std::string& host : blame.lost) suspected.erase(host);
    // Of all that are left it says nothing.
    if (suspected.size() < all.size() - blame.lost.size()) blame.suspected.assign(suspected.begin(), suspected.end());
    return blame;
}

}  // namespace lockstep::watch
