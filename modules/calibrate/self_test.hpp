// Before the first step: are matrix products, reductions and messages correct on every rank, can checkpoints be
// written, and how fast is each.
#pragma once

#include <string>

#include "calibrate/rates.hpp"
#include "cluster/process_grid.hpp"
#include "cluster/session.hpp"
#include "layout/devices.hpp"

namespace lockstep::calibrate {

struct FolderTest {
    MeasuredRate measured;  // empty on ranks that do not write
    double seconds = 0;     // duration of the test
};
// Collective. One rank of every node writes to the folder. If one cannot: a usage error, the same on all ranks, that
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
    std::string run_path;  // rank 0 keeps rates.json there
    FolderTest folder;
};
// Collective: all ranks measure the same kinds in the same order. Rank 0 logs the rates and warns of those far below
// the others or below the previous launch; before it warns, all is measured again, up to twice. A wrong result is a
// fault, the same on all ranks. Returns this rank's rate of matrix products, FLOP/s.
double run_self_test(const SelfTest& test);

}  // namespace lockstep::calibrate
