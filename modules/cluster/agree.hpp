// Agreement before anyone throws: a rank that throws alone would leave the others waiting in their next collective.
#pragma once

#include <functional>
#include <optional>

#include "base/error.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::cluster {

// Runs `work`; what it throws comes back instead.
std::optional<Error> caught(const std::function<void()>& work);

// A failure as all ranks see it: of the lowest rank that had one.
struct Failure {
    Error error;
    int rank;
};
// Collective: nothing when no rank has one.
std::optional<Failure> agree(const std::optional<Error>& own, HostGroup& group);

// Collective. Runs `work` on rank 0 only; when it throws, every rank throws the same Error.
void on_root(HostGroup& group, const std::function<void()>& work);

// Collective. Runs `work` on every rank; when any throws, every rank throws the Error of the lowest rank that did.
void together(HostGroup& group, const std::function<void()>& work);

}  // namespace lockstep::cluster
