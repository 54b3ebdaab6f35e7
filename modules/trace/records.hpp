// What a run tells of its steps and ranks: what the tracer is given and a trace file holds.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::trace {

// What all ranks agree on about one step.
struct StepRecord {
    std::int64_t step = 0;  // counts from 1
    std::int64_t epoch = 0;
    double loss = 0, learning_rate = 0, gradient_norm = 0;
    std::int64_t tokens = 0, batch = 0;  // of this step, all ranks
    double loss_scale = 1;
    std::int64_t skipped = 0;                  // 1 when no update was made
    double seconds = 0;                        // the slowest rank's
    double model_flop = 0, hardware_flop = 0;  // of this step, all ranks
};

// Where a rank runs.
struct RankRecord {
    std::string host, cores, gpu, network;  // cores "0-3,8"; network cards "mlx5_0, mlx5_1"
    std::int64_t numa_node = -1;
    std::int64_t data = 0, tensor = 0, pipeline = 0, context = 0;
    std::int64_t threads = 1;
};

}  // namespace lockstep::trace
