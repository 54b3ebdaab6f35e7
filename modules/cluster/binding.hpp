// Binds this process's threads and memory as the rank map says.
#pragma once

#include <memory>

#include "cluster/rank_map.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

// Binds the process and its memory to `seat`. On a CPU with one thread per core, each compute thread
// (device/parallel.hpp) but the first is pinned to a core; the first keeps the whole seat, since library threads
// inherit its mask. On a GPU, and where ranks share cores, all threads may use the whole seat, on a GPU also the helper
// units. Call it after set_threads() and before other threads start. If the system refuses, logs a warning and runs
// unbound. Does nothing when the topology is not this machine's.
void bind_process(const std::shared_ptr<const Topology>& topology, const RankSeat& seat, bool on_gpu);

// Moves the calling thread to the helper units, no-op without bind_process(). Called by writer and monitoring threads
// at their start. Never throws.
void bind_helper_thread() noexcept;

}  // namespace lockstep::cluster
