// Measures links by messages between two ranks.
#pragma once

#include <vector>

#include "cluster/communicator.hpp"
#include "cluster/host_group.hpp"
#include "doctor/links.hpp"
#include "kernels/backend.hpp"

namespace lockstep::doctor {

// What messages go through. GPU memory is measured too where `gpus` is given: all ranks, made for transfers.
struct Carriers {
    cluster::HostGroup& control;  // all ranks
    cluster::Communicator* gpus = nullptr;
    kernels::Backend* backend = nullptr;  // of the GPUs
};

// light: only the rate, and of host memory alone, by messages of about 1 ms.
enum class Effort { full, light };

// Collective: round by round, with all ranks waiting for the end of each. Returns what all ranks have measured, in the
// order of the first rank of each link.
std::vector<LinkRate> measure_links(const std::vector<std::vector<Link>>& rounds, const Carriers& carriers,
                                    Effort effort = Effort::full);

// The better of two measurements of one link: other programs may have disturbed one.
LinkRate better(const LinkRate& a, const LinkRate& b);

}  // namespace lockstep::doctor
