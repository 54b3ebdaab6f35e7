// What one rank found out, made known to all. Only checkpoint/ includes this.
#pragma once

#include <functional>
#include <optional>

#include "base/error.hpp"
#include "cluster/communicator.hpp"

namespace lockstep::checkpoint {

// Runs `body`; what it throws comes back instead.
std::optional<Error> caught(const std::function<void()>& body);

// A failure as all ranks see it: of the lowest rank that had one.
struct Failure {
    Error error;
    int rank;
};
// Collective: nothing when no rank has one.
std::optional<Failure> agree(const std::optional<Error>& own, cluster::Communicator& communicator);

}  // namespace lockstep::checkpoint
