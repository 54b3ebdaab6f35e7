#include "doctor/link_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/process_grid.hpp"
#include "doctor/link_findings.hpp"
#include "doctor/measure_links.hpp"
#include "doctor/report.hpp"

namespace lockstep::doctor {
namespace {

constexpr int probes_in_a_row = 3;
constexpr double least_times_its_cost = 1000;

struct AxisOfGrid {
    std::int64_t cluster::GridPlace::*place;
    std::int64_t config::Grid::*extent;
};
constexpr AxisOfGrid axes[] = {{&cluster::GridPlace::tensor, &config::Grid::tensor},
                               {&cluster::GridPlace::context, &config::Grid::context},
                               {&cluster::GridPlace::data, &config::Grid::data},
                               {&cluster::GridPlace::pipeline, &config::Grid::pipeline}};

}  // namespace

std::vector<std::vector<Link>> training_links(const config::Grid& grid, const std::vector<int>& node_of_rank) {
    const auto node = [&](int rank) { return node_of_rank[static_cast<std::size_t>(rank)]; };
    std::set<Pair> pairs;
    for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank)
        for (const AxisOfGrid& axis : axes) {
            cluster::GridPlace place = cluster::grid_place(rank, grid);
            place.*axis.place = (place.*axis.place + 1) % (grid.*axis.extent);
            const int next = cluster::grid_rank(place, grid);
            if (node(rank) != node(next)) pairs.emplace(std::min(rank, next), std::max(rank, next));
        }
    std::vector<std::vector<Link>> rounds;
    for (const Round& round : in_rounds({pairs.begin(), pairs.end()})) {
        rounds.emplace_back();
        for (const auto& [first, second] : round) rounds.back().push_back({first, second, LinkKind::between_nodes});
    }
    return rounds;
}

SlowLinkRule::SlowLinkRule(const std::vector<int>& node_of_rank, std::vector<std::string> host_of_node)
    : hosts_(std::move(host_of_node)) {
    for (const int node : node_of_rank) sites_.push_back({node, 0});
}

bool SlowLinkRule::is_to_be_named(const std::string& name) {
    Watched& one = watched_[name];
    one.good_in_a_row = 0;
    ++one.slow_in_a_row;
    if (one.named || one.slow_in_a_row < probes_in_a_row) return false;
    one.named = true;
    return true;
}

std::vector<SlowLinkRule::Remark> SlowLinkRule::judge(const std::vector<LinkRate>& rates) {
    const LinkJudgement all = judge_links(rates, sites_, std::vector<std::string>(hosts_.size()));
    const auto host = [&](int rank) {
        return hosts_[static_cast<std::size_t>(sites_[static_cast<std::size_t>(rank)].node)];
    };
    LinkJudgement to_name;
    std::set<std::string> slow;
    for (const SlowNode& node : all.nodes) {
        const std::string name = "the links of " + hosts_[static_cast<std::size_t>(node.node)] + " are";
        slow.insert(name);
        if (is_to_be_named(name)) to_name.nodes.push_back(node);
    }
    for (const SlowLink& link : all.links) {
        const std::string name =
            fmt::format("the link between {} and {} is", host(link.link.first), host(link.link.second));
        // Several ranks of the two nodes may use it.
        if (slow.insert(name).second && is_to_be_named(name)) to_name.links.push_back(link);
    }
    std::vector<Remark> remarks;
    for (const Finding& finding : slow_links(to_name, sites_, hosts_)) remarks.push_back({true, log_line(finding)});
    for (auto& [name, one] : watched_) {
        if (slow.contains(name)) continue;
        one.slow_in_a_row = 0;
        if (!one.named || ++one.good_in_a_row < probes_in_a_row) continue;
        one.named = false;
        remarks.push_back({false, name + " as fast as the others again"});
    }
    return remarks;
}

LinkProbe::LinkProbe(cluster::HostGroup& control, const config::Grid& grid, const std::vector<int>& node_of_rank,
                     std::vector<std::string> host_of_node, double seconds)
    : control_(control),
      rule_(node_of_rank, std::move(host_of_node)),
      seconds_(seconds),
      next_(seconds_now() + seconds) {
    if (seconds > 0) rounds_ = training_links(grid, node_of_rank);
}

bool LinkProbe::due() const {
    return control_.rank() == 0 && !rounds_.empty() && seconds_now() >= next_;
}

void LinkProbe::probe() {
    const double start = seconds_now();
    const std::vector<LinkRate> rates = measure_links(rounds_, {control_}, Effort::light);
    const double end = seconds_now();
    next_ = end + std::max(seconds_, least_times_its_cost * (end - start));
    if (control_.rank() != 0) return;
    for (const LinkRate& rate : rates)
        log::debug("link of the ranks {} and {}: {}", rate.link.first, rate.link.second, human_rate(rate.rate, "B"));
    log::debug("{} probed in {}", rates.size(), human_seconds(end - start));
    for (const SlowLinkRule::Remark& remark : rule_.judge(rates)) {
        if (remark.slow)
            log::warning("{}", remark.sentence);
        else
            log::info("{}", remark.sentence);
    }
}

}  // namespace lockstep::doctor
