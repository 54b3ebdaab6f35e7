// The process grid: every rank has a place along four axes. Tensor is fastest, since the ranks that share a layer speak
// most and belong into one node; then the ranks along a sequence, then the replicas, then the pipeline's stages.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "cluster/communicator.hpp"

namespace lockstep::cluster {

enum class Axis { tensor, context, data, pipeline };

struct GridShape {
    int tensor = 1, context = 1, data = 1, pipeline = 1;
    int ranks() const { return tensor * context * data * pipeline; }
    int replicas() const { return data * context; }  // ranks that hold the same parameters
};
struct GridPlace {
    int tensor = 0, context = 0, data = 0, pipeline = 0;
    // Among the ranks that hold the same parameters.
    int replica(const GridShape& shape) const { return context + shape.context * data; }
};
GridPlace grid_place(int rank, const GridShape& shape);
int grid_rank(const GridPlace& place, const GridShape& shape);
// The ranks that differ from `rank` along the given axes only, itself among them, ascending.
std::vector<int> ranks_along(int rank, const GridShape& shape, std::initializer_list<Axis> axes);

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
ProcessGroups make_groups(CommunicatorSource& source, int rank, const GridShape& shape);

}  // namespace lockstep::cluster
