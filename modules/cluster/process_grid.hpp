// The process grid: each rank's coordinates on four axes. Tensor varies fastest, since ranks that share a layer
// communicate most and belong on one node; then context, data, and pipeline.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "cluster/communicator.hpp"
#include "config/grid.hpp"

namespace lockstep::cluster {

enum class Axis { tensor, context, data, pipeline };

struct GridPlace {
    std::int64_t tensor = 0, context = 0, data = 0, pipeline = 0;
    // among the ranks with the same parameters
    std::int64_t replica(const config::Grid& grid) const { return context + grid.context * data; }
};
GridPlace grid_place(int rank, const config::Grid& grid);
int grid_rank(const GridPlace& place, const config::Grid& grid);
// The ranks that differ from `rank` only along the given axes, itself included, ascending.
std::vector<int> ranks_along(int rank, const config::Grid& grid, std::initializer_list<Axis> axes);

// One rank's communicators for device tensors. Groups of one rank have one too, a no-op.
struct ProcessGroups {
    GridPlace place;
    std::unique_ptr<Communicator> tensor;    // ranks that share each layer
    std::unique_ptr<Communicator> replicas;  // ranks with the same parameters: data and context
    std::unique_ptr<Communicator> gathers;   // the same, for parameters gathered beside other collectives; may be null
    std::unique_ptr<Communicator> model;     // ranks of one model replica: tensor and pipeline
    std::unique_ptr<Communicator> context;   // ranks along a sequence; point-to-point
    // Along the pipeline, point-to-point. Separate communicators: the directions between two stages are independent.
    std::unique_ptr<Communicator> activations, gradients;
    std::unique_ptr<Communicator> ends;  // first and last stage; null on the others
};
// What a run sends beside collectives and messages between neighbours.
struct MessagesUsed {
    bool ring = false;      // pipelines pass messages from the last stage to the first, too
    bool exchange = false;  // context ranks exchange messages with each other
    bool replicas = false;  // so do replicas
    bool gathers = false;   // replicas gather parameters beside other collectives
};
// Collective over all ranks.
ProcessGroups make_groups(CommunicatorSource& source, int rank, const config::Grid& grid, const MessagesUsed& used);

// Collective over all ranks: one short collective, or a message to each neighbour, in every group, and what `used`
// says, since transports allocate buffers at first use. `sent` and `received`: tensors of one element on the groups'
// device, overwritten.
void use_once(const ProcessGroups& groups, const MessagesUsed& used, Tensor sent, Tensor received);

}  // namespace lockstep::cluster
