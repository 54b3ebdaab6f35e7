// The memory of one rank of our own program, planned by the code that allocates it, without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cluster/process_grid.hpp"
#include "config/run_description.hpp"
#include "device/memory.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::layout {

// Bytes of the device, unless said otherwise.
struct MemoryPlan {
    std::size_t parameters = 0;  // fp32 values and working copies
    std::size_t gradients = 0;   // with those of lanes:
    std::size_t lanes = 0;       // sums that wait to be added up, and what other replicas send
    std::size_t optimizer_state = 0;
    std::size_t offloaded = 0;    // of the host: what the CPU updates for a GPU
    std::size_t activations = 0;  // of all micro-batches in flight
    std::size_t workspace = 0;
    std::size_t tables = 0;                     // not in the printed plan: rotary positions, tokens, losses
    std::size_t kernels = 0;                    // nor this: what a GPU's kernels work in, where it is large
    std::size_t communication = 0;              // what MPI may allocate while gradients are on their way
    std::size_t checkpoint = 0;                 // of the host while a checkpoint is written
    std::size_t local_checkpoint = 0;           // of the host while a local one is: this rank's share and its partner's
    std::int64_t under_way = 0;                 // micro-batches whose activations are kept at one time, over all chunks
    std::int64_t micro = 0, micro_batches = 0;  // sequences of one, and how many a step has
    std::vector<model::StageRange> chunks;      // of the model
    std::size_t planned() const { return parameters + gradients + optimizer_state + activations + workspace; }
};

// Exact, for the program's own trainer in precision.compute on `device` (which need not be there). Usage error where
// the batch cannot be divided so; whether the grid is possible is why_impossible's.
MemoryPlan plan_memory(const config::RunDescription& description, const config::Grid& grid,
                       const cluster::GridPlace& place, DeviceKind device);

// "blocks 0 to 11; parameters 710 MiB, …, together 3.1 GiB".
std::string memory_text(const MemoryPlan& plan);

// Bytes that this process had taken before main began: the program and its libraries. A build for GPUs has some 150 MiB
// more than one for CPUs, whatever it runs on.
std::size_t bytes_at_start();

// What a rank's process takes beyond its plan, from the peaks of runs on Debian 12 with MPICH on one node.
struct ProcessOverhead {
    std::size_t libraries = bytes_at_start();
    std::size_t program = std::size_t{36} << 20;     // what it takes later: MPI and its shared memory, threads
    std::size_t checkpoint = std::size_t{14} << 20;  // more once a checkpoint was begun: HDF5, threads, tables
    std::size_t data = 0;                            // of the files of tokens, as far as they are read
};

// An estimate of the largest resident set of a rank on a CPU, in bytes: the plan; the program; what kernels work in
// with so many threads; what MPI allocates while it reduces gradients; and, with a checkpoint, what is copied of the
// rank's share, which is there when the next step's gradients were reduced, and the copies for local checkpoints.
std::size_t process_bytes(const config::RunDescription& description, const config::Grid& grid,
                          const cluster::GridPlace& place, const ProcessOverhead& overhead = {}, int threads = 1,
                          bool with_checkpoint = true);

// For a plan that does not fit: its largest part, and the keys of the run description that shrink it.
std::string memory_advice(const MemoryPlan& plan, const config::RunDescription& description);

}  // namespace lockstep::layout
