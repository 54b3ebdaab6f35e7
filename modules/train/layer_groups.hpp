// The ranks that this rank's layers communicate with, timed in the trace.
#pragma once

#include "cluster/process_grid.hpp"
#include "model/context_chain.hpp"
#include "model/mixer.hpp"
#include "model/tensor_group.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

struct LayerGroups {
    LayerGroups(cluster::ProcessGroups& groups, bool sequence_parallel, trace::Tracer* tracer,
                const CommunicationRegions& regions)
        : tensor(*groups.tensor, sequence_parallel, tracer, regions.tensor),
          context(*groups.context, tracer, regions.context) {}
    LayerGroups(const LayerGroups&) = delete;
    LayerGroups& operator=(const LayerGroups&) = delete;

    void set_timed(bool timed) {
        tensor.set_timed(timed);
        context.set_timed(timed);
    }

    model::TensorGroup tensor;
    model::ContextChain context;
    model::Neighbours neighbours{tensor, context};
};

}  // namespace lockstep::train
