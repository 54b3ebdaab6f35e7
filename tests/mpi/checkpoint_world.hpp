// What the tests of checkpoints under MPI share: the session, groups of all ranks, and folders that all of them use.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>

#include "checkpoint_fixture.hpp"
#include "cluster/session.hpp"

namespace lockstep::checkpoint_tests {

inline cluster::Session* session = nullptr;

inline std::unique_ptr<cluster::HostGroup> world() {
    return session->make_world_group();
}

// A folder of this test program's and this number of ranks' own, made by rank 0.
inline std::string shared_folder(const std::string& name) {
    const auto group = world();
    const std::string own = fmt::format("np{}_{}", group->size(), name);
    if (group->rank() == 0) empty_test_folder(own);
    group->barrier();
    return test_folder(own);
}

}  // namespace lockstep::checkpoint_tests
