// The process grid: each rank's coordinates on four axes. Tensor varies fastest, since ranks that share a layer
// communicate most and belong on one node; then context, data, and pipeline.
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
    int replicas() const { return data * context; }  // ranks with the same parameters
};
struct GridPlace {
    int tensor = 0, context = 0, data = 0, pipeline = 0;
    // among the ranks with the same parameters
    int replica(const GridShape& shape) const { return context + shape.context * data; }
};
GridPlace grid_place(int rank, const GridShape& shape);
int grid_rank(const GridPlace& place, const GridShape& shape);
// The ranks that differ from `rank` only along the given axes, itself included, ascending.
std::vector<int> ranks_along(int rank, const GridShape& shape, std::initializer_list<Axis> axes);

// One rank's communicators for device tensors. Groups of one rank have one too, a no-op.
struct ProcessGroups {
    GridPlace place;
    std::unique_ptr<Communicator> tensor;    // ranks that share each layer
    std::unique_ptr<Communicator> replicas;  // ranks with the same parameters: data and context
    std::unique_ptr<Communicator> model;     // ranks of one model replica: tensor and pipeline
    std::unique_ptr<Communicator> context;   // ranks along a sequence; point-to-point
    // Along the pipeline, point-to-point. Separate communicators: the directions between two stages are independent.
    std::unique_ptr<Communicator> activations, gradients;
    std::unique_ptr<Communicator> ends;  // first and last stage; null on the others
};
// Collective over all ranks.
ProcessGroups make_groups(CommunicatorSource& source, int rank, const GridShape& shape);

}  // namespace lockstep::cluster
