// The watchdog's report about ranks that stand still, on the node that writes it.
#include "base/clock.hpp"
#include "base/error.hpp"
#include "cluster/rank_list.hpp"
#include "many_ranks/parts.hpp"
#include "watch/blame.hpp"
#include "watch/watch_report.hpp"

namespace lockstep::bench {
namespace {

std::vector<int> every(int stride, int first, int ranks) {
    std::vector<int> members;
    for (int rank = first; rank < ranks; rank += stride) members.push_back(rank);
    return members;
}

// All wait in an all-reduce of all ranks, which those behind have not begun.
watch::RankReport report_of(int rank, int ranks, bool behind, const std::string& everyone) {
    constexpr int operations = 20;
    constexpr std::uint64_t begun = 4711;
    watch::RankReport report;
    watch::FlightState& state = report.flight;
    state.rank = rank;
    state.ranks = ranks;
    state.process = 1000 + rank % ranks_per_node;
    state.host = host_of(rank);
    state.step = 100;
    state.region = "epoch/step/communication/control";
    state.quiet_seconds = 600;
    const int group = tensor_ranks * stages;
    state.groups = {{"control", everyone, begun - behind, 0},
                    {"replicas", cluster::rank_list_text(every(group, rank % group, ranks)), 300, 0}};
    for (int i = 0; i < operations; ++i) {
        watch::FlightOperation operation;
        operation.number = begun - operations + 1 + static_cast<std::uint64_t>(i) - behind;
        operation.group = "control";
        operation.kind = cluster::FlightKind::all_reduce;
        operation.bytes = 48;
        operation.done = behind || i + 1 < operations;
        operation.begun_ago = operation.seconds = 600;
        state.operations.push_back(operation);
    }
    if (!behind) state.waiting = state.operations.back();
    return report;
}

// Nodes write their parts, one reads them all, says who is behind and writes the report.
template <class Behind>
Cost report(int ranks, Behind&& behind) {
    const std::string everyone = cluster::rank_list_text(every(1, 0, ranks));
    std::vector<watch::RankReport> all;
    std::vector<std::string> hosts;
    Cost cost;
    for (int first = 0; first < ranks; first += ranks_per_node) {
        std::vector<watch::RankReport> node;
        for (int rank = first; rank < first + ranks_per_node; ++rank) {
            node.push_back(report_of(rank, ranks, behind(rank), everyone));
            hosts.push_back(host_of(rank));
        }
        const std::string text = watch::node_report_text(node);
        cost.received += static_cast<double>(text.size());
        const double start = seconds_now();
        for (watch::RankReport& one : watch::node_report_from(text)) all.push_back(std::move(one));
        cost.seconds += seconds_now() - start;
    }
    const double start = seconds_now();
    const auto laggards = watch::find_laggards(all, ranks);
    const std::string sentence = watch::laggards_sentence(laggards, all, ranks, hosts);
    const watch::NodeBlame blame = watch::blamed_nodes(all, hosts);
    const std::string text = watch::watch_report_text("No progress", sentence, all, ranks);
    cost.seconds += seconds_now() - start;
    if (laggards.empty() || !blame.lost.empty() || text.size() < static_cast<std::size_t>(ranks))
        throw fault_error("nobody was found behind, or somebody lost");
    return cost;
}

}  // namespace

Cost report_one_behind(int ranks) {
    return report(ranks, [](int rank) { return rank == 2; });
}

Cost report_half_behind(int ranks) {
    // Which ones follows no rule, so that they are a long list.
    return report(ranks, [](int rank) { return (static_cast<std::uint32_t>(rank) * 2654435761u >> 16) % 2 == 1; });
}

}  // namespace lockstep::bench
