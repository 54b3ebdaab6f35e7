// Agreement before throwing: a rank that throws alone leaves the others hanging in their next collective.
#pragma once

#include <functional>
#include <optional>

#include "base/error.hpp"
#include "cluster/host_group.hpp"

namespace lockstep::cluster {

// Runs `work` and returns its error, if any.
std::optional<Error> caught(const std::function<void()>& work);

// The error that all ranks agree on: that of the lowest rank that failed, if possible by more than a lost connection.
struct Failure {
    Error error;
    int rank;
};
// Collective; nothing if no rank failed.
std::optional<Failure> agree(const std::optional<Error>& own, HostGroup& group);

// Collective. Runs `work` on rank 0 only; if it throws, every rank throws the same Error.
void on_root(HostGroup& group, const std::function<void()>& work);

// Collective. Runs `work` on every rank; if any throws, every rank throws the Error agreed on.
void together(HostGroup& group, const std::function<void()>& work);

}  // namespace lockstep::cluster
