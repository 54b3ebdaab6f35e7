// Findings about links, in words.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "doctor/link_judgement.hpp"
#include "doctor/node_facts.hpp"

namespace lockstep::doctor {

// `hosts`: by node.
std::vector<Finding> slow_links(const LinkJudgement& judgement, const std::vector<RankSite>& ranks,
                                const std::vector<std::string>& hosts);
// Nodes none of whose links reaches slow_share of the slower of the fastest ports at its two ends. Nodes that are slow
// among the others are left out.
std::vector<Finding> below_ports(const std::vector<LinkRate>& rates, const LinkJudgement& judgement,
                                 const std::vector<RankSite>& ranks, const std::vector<NodeFacts>& nodes);

}  // namespace lockstep::doctor
