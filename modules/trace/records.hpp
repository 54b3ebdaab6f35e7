// What a run records of its ranks and steps. One object carries a step's numbers from the device to trace,
// metrics.jsonl and log.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::trace {

// A validation after a step; 0 tokens: there was none.
struct ValidationRecord {
    double loss = 0, bits_per_byte = 0;  // loss: mean over tokens, nats; 0 bits: the text's bytes are not known
    std::int64_t tokens = 0;
};

// The columns of the trace's /steps: the global numbers of one step.
struct StepRecord {
    std::int64_t step = 0;  // counts from 1
    std::int64_t epoch = 0;
    double loss = 0, learning_rate = 0, gradient_norm = 0;  // loss: mean over tokens; norm: before clipping
    std::int64_t tokens = 0, batch = 0;                     // of this step, all ranks; batch in sequences
    double loss_scale = 1;                                  // the factor on this step's loss
    std::int64_t skipped = 0;                               // 1 if there was no update
    double seconds = 0;                                     // on the slowest rank
    double model_flop = 0, hardware_flop = 0;               // of this step, all ranks; hardware: including recompute
    ValidationRecord validation;
    // Since the step before ended; 0: not counted. Joules of the nodes that have counters, the others of all ranks'
    // computing threads.
    double joules = 0, instructions = 0, cycles = 0, processor_seconds = 0;

    double per_second(double amount) const { return amount / seconds; }
};

struct StepNumbers : StepRecord {
    double rank_loss = 0;  // the sum over this rank's tokens times ranks over all targets, where it has a loss
    std::int64_t zero_gradients = 0;  // elements, over all ranks
    // Running totals, including this step.
    std::int64_t run_samples = 0, run_tokens = 0, run_skipped = 0;  // over all launches
    std::int64_t launch_not_finite = 0;                             // non-finite losses of this launch
};

struct RankRecord {
    std::string host, cores, gpu, network;  // cores "0-3,8"; network cards "mlx5_0, mlx5_1"
    std::int64_t numa_node = -1;
    std::int64_t data = 0, tensor = 0, pipeline = 0, context = 0;
    std::int64_t threads = 1;
};

struct WriterLimits {
    std::uint64_t file_bytes = std::uint64_t{240} << 20;  // rows of one file
    std::uint64_t event_bytes = std::uint64_t{12} << 20;  // events of one file
    std::uint64_t fewest_rows = 64;
    std::uint64_t background_bytes = std::uint64_t{4} << 20;  // a flush of so many is written by a thread
};

}  // namespace lockstep::trace
