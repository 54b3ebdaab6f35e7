#include "doctor/link_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
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
    std::map<Pair, Pair> ranks_of;  // of two nodes, the first such pair of ranks
    for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank)
        for (const AxisOfGrid& axis : axes) {
            cluster::GridPlace place = cluster::grid_place(rank, grid);
            place.*axis.place = (place.*axis.place + 1) % (grid.*axis.extent);
            const int next = cluster::grid_rank(place, grid);
            if (node(rank) == node(next)) continue;
            ranks_of.emplace(std::minmax(node(rank), node(next)), std::minmax(rank, next));
        }
    std::vector<Pair> nodes;
    for (const auto& [pair, ranks] : ranks_of) nodes.push_back(pair);
    std::vector<std::vector<Link>> rounds;
    for (const Round& round : in_rounds(nodes)) {
        rounds.emplace_back();
        for (const Pair& pair : round) {
            const auto [first, second] = ranks_of.at(pair);
            rounds.back().push_back({first, second, LinkKind::between_nodes});
        }
    }
    return rounds;
}

SlowLinkRule::SlowLinkRule(const std::vector<int>& node_of_rank, std::vector<std::string> host_of_node)
    : hosts_(std::move(host_of_node)) {
    for (const int node : node_of_rank) sites_.push_back({node, 0});
}

int SlowLinkRule::node_of(int rank) const {
    return sites_[static_cast<std::size_t>(rank)].node;
}

const std::string& SlowLinkRule::host_of(int rank) const {
    return hosts_[static_cast<std::size_t>(node_of(rank))];
}

// A node all of whose links are slow stands for them, if one of them is to be named.
LinkJudgement SlowLinkRule::to_name(const std::vector<LinkRate>& rates, double usual,
                                    const std::set<Pair>& now_named) const {
    const auto as_slow = [&](const LinkRate& rate) { return SlowLink{rate.link, Quantity::rate, rate.rate, usual}; };
    std::map<int, SlowNode> nodes;
    for (const LinkRate& rate : rates)
        for (const int rank : {rate.link.first, rate.link.second}) {
            SlowNode& node = nodes[node_of(rank)];
            node.node = node_of(rank);
            ++node.links;
            if (!watched_.at({rate.link.first, rate.link.second}).named) continue;
            if (node.slow++ == 0 || rate.rate < node.worst.value) node.worst = as_slow(rate);
        }
    LinkJudgement found;
    std::set<int> whole;
    for (const LinkRate& rate : rates) {
        if (!now_named.contains({rate.link.first, rate.link.second})) continue;
        bool of_node = false;
        for (const int rank : {rate.link.first, rate.link.second}) {
            const SlowNode& node = nodes.at(node_of(rank));
            if (node.links < 2 || node.slow < node.links) continue;
            of_node = true;
            if (whole.insert(node.node).second) found.nodes.push_back(node);
        }
        if (!of_node) found.links.push_back(as_slow(rate));
    }
    return found;
}

std::vector<SlowLinkRule::Remark> SlowLinkRule::judge(const std::vector<LinkRate>& rates) {
    if (rates.empty()) return {};
    const double usual = judge_links(rates, sites_, std::vector<std::string>(hosts_.size())).kinds.front().rate;
    std::set<Pair> now_named;
    std::vector<Remark> recovered;
    for (const LinkRate& rate : rates) {
        const Pair pair{rate.link.first, rate.link.second};
        Watched& link = watched_[pair];
        const bool slow = rate.rate < slow_share * usual;
        link.slow_in_a_row = slow ? link.slow_in_a_row + 1 : 0;
        link.good_in_a_row = slow ? 0 : link.good_in_a_row + 1;
        if (!link.named && link.slow_in_a_row >= probes_in_a_row) {
            link.named = true;
            now_named.insert(pair);
        } else if (link.named && link.good_in_a_row >= probes_in_a_row) {
            link.named = false;
            recovered.push_back({false, fmt::format("the link between {} and {} is as fast as the others again",
                                                    host_of(pair.first), host_of(pair.second))});
        }
    }
    std::vector<Remark> remarks;
    for (const Finding& finding : slow_links(to_name(rates, usual, now_named), sites_, hosts_))
        remarks.push_back({true, log_line(finding)});
    remarks.insert(remarks.end(), recovered.begin(), recovered.end());
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
    log::debug("{} links probed in {}", rates.size(), human_seconds(end - start));
    for (const SlowLinkRule::Remark& remark : rule_.judge(rates)) {
        if (remark.slow)
            log::warning("{}", remark.sentence);
        else
            log::info("{}", remark.sentence);
    }
}

}  // namespace lockstep::doctor
