// Keeps this process's threads and memory where the map of ranks says.
#pragma once

#include <memory>

#include "cluster/rank_map.hpp"
#include "cluster/topology.hpp"

namespace lockstep::cluster {

// Binds the process and its memory to `seat`, and on a CPU with one thread for each of the rank's cores the compute
// threads (device/parallel.hpp) to a core each, all but the first: threads of libraries inherit from that one, so it
// may use all cores of the seat. On a GPU, and where ranks share cores, all threads may use the whole seat, helpers'
// units included on a GPU. Call it after set_threads(), before other threads start. What the system refuses is a
// warning: the run goes on unbound. Does nothing when the topology is not of this machine.
void bind_process(const std::shared_ptr<const Topology>& topology, const RankSeat& seat, bool on_gpu);

// Moves the calling thread to the units for helpers; nothing where bind_process() was not called. For threads that
// write files or keep watch, at their start. Never throws.
void bind_helper_thread() noexcept;

}  // namespace lockstep::cluster
