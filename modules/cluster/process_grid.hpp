// Every rank's place in the process grid. Tensor is fastest, since the ranks that share a layer communicate most and
// belong on one node; then the ranks along a sequence, then the replicas, then the pipeline's stages.
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
    // Among the ranks that hold the same parameters.
    std::int64_t replica(const config::Grid& grid) const { return context + grid.context * data; }
};
GridPlace grid_place(int rank, const config::Grid& grid);
int grid_rank(const GridPlace& place, const config::Grid& grid);
// The ranks that differ from `rank` along the given axes only, itself among them, ascending.
std::vector<int> ranks_along(int rank, const config::Grid& grid, std::initializer_list<Axis> axes);

// One rank's communicators, for tensors of its backend. Groups of one rank have one too, in which nothing happens.
struct ProcessGroups {
    GridPlace place;
    std::unique_ptr<Communicator> tensor;    // share each layer
    std::unique_ptr<Communicator> replicas;  // hold the same parameters: data and context
    std::unique_ptr<Communicator> model;     // hold one replica of the model together: tensor and pipeline
    std::unique_ptr<Communicator> context;   // along a sequence; messages between two ranks
    // Along the pipeline, messages between two ranks. Apart, since between two stages either goes its own way.
    std::unique_ptr<Communicator> activations, gradients;
    std::unique_ptr<Communicator> ends;  // the first and the last stage; null on stages between them
};
// Collective over all ranks.
ProcessGroups make_groups(CommunicatorSource& source, int rank, const config::Grid& grid);

}  // namespace lockstep::cluster
