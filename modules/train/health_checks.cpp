#include "train/health_checks.hpp"

#include <string>
#include <vector>

#include "cluster/nodes.hpp"
#include "train/replica_check.hpp"

namespace lockstep::train {
namespace {

doctor::LinkProbe make_probe(const Launch& launch) {
    const std::vector<std::string>& hosts = launch.session.place().hosts;
    const std::vector<int> node_of_rank = cluster::number_nodes(hosts);
    // They would measure each other.
    const bool share_cores = launch.control->all_maximum(launch.devices.placement.seat().shares_cores ? 1 : 0) != 0;
    std::vector<std::string> host_of_node;
    for (const std::vector<int>& ranks : cluster::ranks_of_nodes(node_of_rank))
        host_of_node.push_back(hosts[static_cast<std::size_t>(ranks.front())]);
    return {*launch.control, launch.grid, node_of_rank, std::move(host_of_node),
            share_cores ? 0 : launch.description.watchdog.link_seconds};
}

}  // namespace

HealthChecks::HealthChecks(const Launch& launch, const TrainingState& state, trace::Tracer& tracer,
                           const CommunicationRegions& regions)
    : launch_(launch), state_(state), tracer_(tracer), regions_(regions), links_(make_probe(launch)) {}

bool HealthChecks::replicas_due(std::int64_t step) const {
    return step % replica_check_every == 0;
}

void HealthChecks::compare_replicas(std::int64_t step) {
    if (launch_.grid.replicas() == 1) return;
    const trace::Scope timed(tracer_, regions_.all);
    const trace::Scope within(tracer_, regions_.control);
    check_replicas(launch_, state_, step);
}

void HealthChecks::probe_links() {
    const trace::Scope timed(tracer_, regions_.all);
    const trace::Scope within(tracer_, regions_.control);
    links_.probe();
}

}  // namespace lockstep::train
