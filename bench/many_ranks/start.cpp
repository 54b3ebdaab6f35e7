// What the start of a run costs a rank for being one of many.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cluster/agree.hpp"
#include "cluster/nodes.hpp"
#include "cluster/placement.hpp"
#include "cluster/process_grid.hpp"
#include "doctor/schedule.hpp"
#include "layout/memory_plan.hpp"
#include "layout/rank_share.hpp"
#include "many_ranks/parts.hpp"
#include "simulated_group.hpp"

namespace lockstep::bench {
namespace {

// Communicators that carry nothing; counts how many a rank makes.
class CountingSource final : public cluster::CommunicatorSource {
  public:
    std::unique_ptr<cluster::Communicator> make(const std::vector<int>& ranks, cluster::Use,
                                                const std::string&) override {
        if (ranks.size() > 1) ++made;
        return cluster::make_solo_communicator();
    }
    const std::string& carrier() const override { return carrier_; }
    int made = 0;

  private:
    std::string carrier_ = "none";
};

}  // namespace

config::RunDescription description_of(int ranks) {
    config::RunDescription run = config::parse_run_description(
        "[model]\nwidth = 256\nlayers = 24\nheads = 4\nvocabulary = 8192\ncontext = 128\n[batch]\nlength = 128\n"
        "micro = 1\n[parallel]\nzero = 1\n[data]\ntrain = \"none.h5\"\n[schedule]\nsteps = 10\n",
        "the description", {});
    run.parallel.tensor = tensor_ranks;
    run.parallel.pipeline = stages;
    run.batch.global = ranks / (tensor_ranks * stages);
    return run;
}

config::Grid grid_of(int ranks) {
    config::Grid grid;
    grid.tensor = tensor_ranks;
    grid.pipeline = stages;
    grid.data = ranks / (tensor_ranks * stages);
    return grid;
}

std::string host_of(int rank) {
    return fmt::format("node{:06}", rank / ranks_per_node);
}

// What the last rank does in an all-gather of the hosts' names, and after it.
Cost find_nodes(int ranks) {
    constexpr std::size_t width = 256;
    SimulatedGroup group(ranks - 1, ranks);
    group.vary([](int rank, std::string& block) { block.replace(0, host_of(rank).size(), host_of(rank)); });
    std::string own = host_of(ranks - 1);
    own.resize(width, '\0');
    const double start = seconds_now();
    std::vector<std::string> hosts;
    {
        const std::vector<char> all = group.all_gather_bytes(own.data(), width);
        for (std::size_t at = 0; at < all.size(); at += width)
            hosts.emplace_back(all.data() + at, strnlen(all.data() + at, width));
    }
    const cluster::RankPlace place = cluster::place_among(std::move(hosts), ranks - 1);
    if (place.local_ranks != ranks_per_node || place.node != ranks / ranks_per_node - 1)
        throw fault_error("the nodes were not found");
    return {seconds_now() - start, static_cast<double>(group.bytes_received()), static_cast<double>(group.calls())};
}

Cost make_grid(int ranks) {
    const double start = seconds_now();
    CountingSource source;
    const config::RunDescription run = description_of(ranks);
    cluster::make_groups(source, ranks / 2, grid_of(ranks), layout::messages_used(run));
    return {seconds_now() - start, 0, static_cast<double>(source.made)};
}

Cost log_rank_map(int ranks) {
    const cluster::Placement placement = cluster::place_alone({});
    SimulatedGroup group(0, ranks);
    group.vary([](int rank, std::string& block) {
        const auto at = block.find(host_of(0));
        if (at != std::string::npos) block.replace(at, host_of(rank).size(), host_of(rank));
    });
    log::show_from(log::Level::error);
    const double start = seconds_now();
    cluster::log_placement(placement, host_of(0), group);
    return {seconds_now() - start, static_cast<double>(group.bytes_received()), static_cast<double>(group.calls())};
}

Cost plan_memory(int ranks) {
    const config::RunDescription run = description_of(ranks);
    const double start = seconds_now();
    layout::plan_memory(run, grid_of(ranks), cluster::grid_place(ranks / 2, grid_of(ranks)), DeviceKind::cuda);
    return {seconds_now() - start};
}

Cost agree_on_a_failure(int ranks) {
    SimulatedGroup group(0, ranks);
    const double start = seconds_now();
    if (!cluster::agree(usage_error("a sentence of a hundred bytes, as most are that a user reads in such a case"),
                        group))
        throw fault_error("the failure was overlooked");
    return {seconds_now() - start, static_cast<double>(group.bytes_received()), static_cast<double>(group.calls())};
}

Cost pair_nodes(int ranks) {
    const double start = seconds_now();
    const auto rounds = doctor::enough_pairs(ranks / ranks_per_node);
    return {seconds_now() - start, 0, static_cast<double>(rounds.size())};
}

}  // namespace lockstep::bench
