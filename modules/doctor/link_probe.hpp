// A light probe of the links between nodes that training uses, between two of its steps. Its messages go through MPI,
// also where training's own go through NCCL.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "config/grid.hpp"
#include "doctor/link_judgement.hpp"
#include "doctor/links.hpp"
#include "doctor/schedule.hpp"

namespace lockstep::doctor {

// Neighbours along each axis of the grid, in a ring, that are on different nodes: of each two nodes one pair of ranks,
// in rounds in which no node has two links.
std::vector<std::vector<Link>> training_links(const config::Grid& grid, const std::vector<int>& node_of_rank);

// A link is named when it was slow (link_judgement.hpp) in three probes in a row, and again after as many in which it
// was not. A node all of whose links are slow is named in their place.
class SlowLinkRule {
  public:
    struct Remark {
        bool slow = false;  // false: it has recovered
        std::string sentence;
    };
    SlowLinkRule(const std::vector<int>& node_of_rank, std::vector<std::string> host_of_node);
    std::vector<Remark> judge(const std::vector<LinkRate>& rates);

  private:
    struct Watched {
        int slow_in_a_row = 0, good_in_a_row = 0;
        bool named = false;
    };
    int node_of(int rank) const;
    const std::string& host_of(int rank) const;
    LinkJudgement to_name(const std::vector<LinkRate>& rates, double usual, const std::set<Pair>& now_named) const;
    std::vector<RankSite> sites_;
    std::vector<std::string> hosts_;
    std::map<Pair, Watched> watched_;  // by their ranks
};

class LinkProbe {
  public:
    // `control` outlives this. Two probes are at least `seconds` apart, and a thousand
    // times as long as one takes, so that they cost 0.1 % of the time at most. 0: none.
    LinkProbe(cluster::HostGroup& control, const config::Grid& grid, const std::vector<int>& node_of_rank,
              std::vector<std::string> host_of_node, double seconds);
    bool due() const;  // by rank 0's clock; false on the others
    void probe();      // collective; rank 0 may warn

  private:
    cluster::HostGroup& control_;
    std::vector<std::vector<Link>> rounds_;
    SlowLinkRule rule_;
    double seconds_, next_;
};

}  // namespace lockstep::doctor
