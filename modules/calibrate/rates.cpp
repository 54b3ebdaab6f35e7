#include "calibrate/rates.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::calibrate {
namespace {

using cluster::Axis;

constexpr double slow_share = 0.7, slower_than_before_share = 0.6;
constexpr std::size_t most_sentences = 8, most_named = 8;

struct KindText {
    const char* name;
    const char* unit;
    double shortest_seconds;  // a measurement that took less says little
    const char* look_at;
};
constexpr const char* links = "the links between their nodes and other traffic on them";
constexpr std::array<KindText, rate_kinds> kind_texts = {
    {{"matrix products", "FLOP", 1e-5, "its node: clock, temperature, other jobs"},
     {"all-reduce of tensor", "B", 1e-4, links},
     {"all-reduce of replicas", "B", 1e-4, links},
     {"all-reduce of model", "B", 1e-4, links},
     {"all-reduce of ends", "B", 1e-4, links},
     {"messages of context", "B", 1e-4, links},
     {"messages of activations", "B", 1e-4, links},
     {"messages of gradients", "B", 1e-4, links},
     {"checkpoint folder", "B", 2e-2, "its node's path to the file system"}}};

std::string rate_text(RateKind kind, double per_second) {
    return human_rate(per_second, kind_texts[kind].unit);
}

// Of an even number the faster one of the two in the middle.
double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end(), std::greater<>());
    return *middle;
}

template <class Value>
std::string some_of(const std::vector<Value>& values) {
    const std::vector<Value> named(values.begin(),
                                   values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), most_named)));
    const std::string rest = values.size() > most_named ? fmt::format(" and {} more", values.size() - most_named) : "";
    return fmt::format("{}{}", fmt::join(named, ", "), rest);
}

std::vector<std::string> each_once(const std::vector<std::string>& hosts) {
    std::vector<std::string> once;
    for (const std::string& host : hosts)
        if (std::find(once.begin(), once.end(), host) == once.end()) once.push_back(host);
    return once;
}

std::string who(const MeasuredGroup& group, const RateTable& table) {
    std::vector<std::string> hosts;
    for (const int rank : group.ranks) hosts.push_back(table.hosts[static_cast<std::size_t>(rank)]);
    hosts = each_once(hosts);
    return fmt::format("rank{} {} (host{} {})", plural(group.ranks.size()), some_of(group.ranks), plural(hosts.size()),
                       some_of(hosts));
}

}  // namespace

const char* rate_name(RateKind kind) {
    return kind_texts[kind].name;
}

const char* rate_unit(RateKind kind) {
    return kind_texts[kind].unit;
}

std::vector<int> measured_together(RateKind kind, int rank, const config::Grid& shape) {
    switch (kind) {
        case tensor_reduction:
            return cluster::ranks_along(rank, shape, {Axis::tensor});
        case replica_reduction:
            return cluster::ranks_along(rank, shape, {Axis::data, Axis::context});
        case model_reduction:
            return cluster::ranks_along(rank, shape, {Axis::tensor, Axis::pipeline});
        case context_messages:
            return cluster::ranks_along(rank, shape, {Axis::context});
        case activation_messages:
        case gradient_messages:
            return cluster::ranks_along(rank, shape, {Axis::pipeline});
        case end_reduction: {
            const std::vector<int> column = cluster::ranks_along(rank, shape, {Axis::pipeline});
            const bool at_an_end = rank == column.front() || rank == column.back();
            if (at_an_end && column.size() > 1) return {column.front(), column.back()};
            return {rank};
        }
        case product_rate:
        case folder_rate:
        case rate_kinds:
            break;
    }
    return {rank};
}

RateTable make_table(const std::vector<RankRates>& of_ranks, std::vector<std::string> hosts,
                     const config::Grid& shape) {
    RateTable table;
    table.hosts = std::move(hosts);
    for (std::size_t kind = 0; kind < rate_kinds; ++kind) {
        std::vector<bool> known(of_ranks.size());
        for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
            const MeasuredRate& measured = of_ranks[rank][kind];
            if (measured.per_second <= 0 || known[rank]) continue;  // the members of a group agree
            std::vector<int> ranks = measured_together(static_cast<RateKind>(kind), static_cast<int>(rank), shape);
            for (const int member : ranks) known[static_cast<std::size_t>(member)] = true;
            table.groups[kind].push_back({std::move(ranks), measured});
        }
    }
    return table;
}

LaunchRates summarize(const RateTable& table) {
    LaunchRates rates;
    rates.ranks = static_cast<int>(table.hosts.size());
    rates.hosts = each_once(table.hosts);
    for (std::size_t kind = 0; kind < rate_kinds; ++kind) {
        const auto& groups = table.groups[kind];
        if (groups.empty()) continue;
        std::vector<double> per_second, latencies, seconds;
        for (const MeasuredGroup& group : groups) {
            per_second.push_back(group.measured.per_second);
            latencies.push_back(group.measured.latency);
            seconds.push_back(group.measured.seconds);
        }
        LaunchRates::Kind& summary = rates.kinds[kind];
        summary.lowest = *std::min_element(per_second.begin(), per_second.end());
        summary.median = median(std::move(per_second));
        summary.latency = median(std::move(latencies));
        summary.seconds = *std::min_element(seconds.begin(), seconds.end());
        summary.ranks = static_cast<int>(groups.front().ranks.size());
        summary.groups = static_cast<int>(groups.size());
    }
    return rates;
}

std::string rates_text(const RateTable& table) {
    const LaunchRates rates = summarize(table);
    std::vector<std::string> parts;
    for (std::size_t number = 0; number < rate_kinds; ++number) {
        const auto kind = static_cast<RateKind>(number);
        const LaunchRates::Kind& summary = rates.kinds[kind];
        if (summary.groups == 0) continue;
        std::string part = fmt::format("{} {}", rate_name(kind), rate_text(kind, summary.median));
        if (kind == product_rate) part += " per rank";
        if (summary.groups > 1) part += fmt::format(" (lowest {})", rate_text(kind, summary.lowest));
        if (summary.latency > 0) part += fmt::format(", {:.0f} us", summary.latency * 1e6);
        parts.push_back(std::move(part));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> slow_ones(const RateTable& table) {
    const LaunchRates rates = summarize(table);
    std::vector<std::string> sentences;
    std::size_t slow = 0;
    for (std::size_t number = 0; number < rate_kinds; ++number) {
        const auto kind = static_cast<RateKind>(number);
        for (const MeasuredGroup& group : table.groups[kind]) {
            const double share = group.measured.per_second / rates.kinds[kind].median;
            if (share >= slow_share || group.measured.seconds < kind_texts[kind].shortest_seconds) continue;
            if (++slow > most_sentences) continue;
            sentences.push_back(fmt::format(
                "{}: {} at {}, {:.0f} % of the median of {} {} ({}); check {}", who(group, table), rate_name(kind),
                rate_text(kind, group.measured.per_second), 100 * share, table.groups[kind].size(),
                group.ranks.size() > 1 ? "such groups" : (kind == folder_rate ? "nodes" : "ranks"),
                rate_text(kind, rates.kinds[kind].median), kind_texts[kind].look_at));
        }
    }
    if (slow > most_sentences)
        sentences.push_back(fmt::format("{} more ranks or groups are below {:.0f} % of the median of their kind",
                                        slow - most_sentences, 100 * slow_share));
    return sentences;
}

std::vector<std::string> slower_than_before(const LaunchRates& now, const LaunchRates& before) {
    std::vector<std::string> sentences;
    if (now.ranks != before.ranks || now.device != before.device || now.precision != before.precision) return sentences;
    for (std::size_t number = 0; number < rate_kinds; ++number) {
        const auto kind = static_cast<RateKind>(number);
        const LaunchRates::Kind &here = now.kinds[kind], &there = before.kinds[kind];
        if (here.groups == 0 || here.ranks != there.ranks || here.groups != there.groups || there.median <= 0) continue;
        const double share = here.median / there.median;
        if (share >= slower_than_before_share || here.seconds < kind_texts[kind].shortest_seconds) continue;
        sentences.push_back(fmt::format(
            "{}: {}, {:.0f} % of the {} at the launch of {}; check whether other jobs share the nodes, or whether "
            "clocks, links or the file system have changed",
            rate_name(kind), rate_text(kind, here.median), 100 * share, rate_text(kind, there.median), before.time));
    }
    return sentences;
}

}  // namespace lockstep::calibrate
