// Before the first step: does every rank compute right, do the groups of ranks add up and pass on right, can
// checkpoints be written, and how fast is all that.
#pragma once

#include <string>

#include "calibrate/rates.hpp"
#include "cluster/process_grid.hpp"
#include "cluster/session.hpp"
#include "layout/devices.hpp"

namespace lockstep::calibrate {

struct FolderTest {
    Measurement measured;  // nothing on ranks that do not write
    double seconds = 0;    // that the test took
};
// Collective. One rank of every node writes to the folder. A usage error, the same on all ranks, where one cannot; it
// names the rank and its host.
FolderTest test_checkpoint_folder(const std::string& folder, const cluster::Session& session,
                                  cluster::HostGroup& control);

struct SelfTest {
    const cluster::Session& session;
    cluster::HostGroup& control;
    layout::Devices& devices;
    const config::Grid& grid;
    cluster::ProcessGroups& groups;
    Type compute;
    std::string run_path;  // rates.json is kept there, by rank 0
    FolderTest folder;
};
// Collective: all ranks measure the same kinds in the same order. Rank 0 says what was measured and warns of what is
// far below the rest, or far below the launch before; what looks slow is measured again, up to twice, before that is
// said. A fault, the same on all ranks, where a result is wrong. Returns this rank's rate of matrix products, FLOP/s.
double run_self_test(const SelfTest& test);

}  // namespace lockstep::calibrate
