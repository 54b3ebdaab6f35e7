// The time of a pipeline for a step, by simulating the trainer's schedule.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::cost {

struct PipelineWork {
    std::int64_t micro_batches = 1;
    // Seconds of one micro-batch through each piece, [stage][chunk]: forward (with the loss), backward (with
    // recomputation; 0: it has none and waits for nothing); and of a message between neighbouring pieces.
    std::vector<std::vector<double>> forward, backward;
    double message = 0;
    double cores = 0;  // that the stages share, each needs one; 0: as many as stages
};

// Seconds from the first forward pass to the end of the last backward pass. Stages that share cores get equal parts of
// them while they compute.
double pipeline_seconds(const PipelineWork& work);

}  // namespace lockstep::cost
