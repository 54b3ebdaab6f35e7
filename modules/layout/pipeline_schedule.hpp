// In which order a stage of a pipeline runs its forward and backward passes: one forward, one backward in turn (1F1B;
// Narayanan et al. 2019, PipeDream), and with several chunks of the model a stage, interleaved (Narayanan et al. 2021,
// arXiv:2104.04473), which divides the time that stages stand idle by the number of chunks.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::layout {

struct PipelineShape {
    std::int64_t stages = 1;         // p
    std::int64_t chunks = 1;         // v, pieces of the model on every stage; with more than one, p divides m
    std::int64_t micro_batches = 1;  // m
};

struct PipelineStep {
    bool forward = true;
    std::int64_t chunk = 0, micro_batch = 0;
    int slot = 0;  // which of the chunk's sets of activations holds the micro-batch from its forward to its backward
};

// The steps of one stage, in order. `ahead`: micro-batches begun earlier than the pipeline needs, so that the ranks
// along a divided sequence need not wait for each other between micro-batches.
std::vector<PipelineStep> pipeline_schedule(const PipelineShape& shape, std::int64_t stage, std::int64_t ahead = 0);

// Slots that `steps` use of a chunk: how many of its micro-batches are under way at most.
int slots_of(const std::vector<PipelineStep>& steps, std::int64_t chunk);

// The model is cut into p·v pieces; a stage has every p-th of them.
inline std::int64_t piece_of(const PipelineShape& shape, std::int64_t stage, std::int64_t chunk) {
    return chunk * shape.stages + stage;
}

}  // namespace lockstep::layout
