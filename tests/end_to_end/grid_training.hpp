// The small model that is laid out over ranks in many ways, and how it is trained.
#pragma once

#include "end_to_end/command.hpp"
#include "end_to_end/grid_cases.hpp"

namespace lockstep::tests {

constexpr double loss_tolerance = 2e-6;  // of layouts, against one rank

// The vocabulary divides by no number of ranks, and sequences are whole mini-batches of TTT on four.
inline const std::string model =
    " --set model.width=32 --set model.layers=4 --set model.heads=4 --set model.mlp_width=48 --set model.vocabulary=259"
    " --set model.context=32 --set model.ttt.mini_batch=4 --set batch.global=12 --set batch.micro=0"
    " --set schedule.steps=10 --set schedule.warmup=2 --set schedule.peak_lr=1e-3 --set checkpoint.every=0"
    " --set run.self_test=false --device cpu";
// Reliance on buffered messages hangs at once.
inline const std::string environment = "LOCKSTEP_SYNCHRONOUS_SENDS=1 OMP_NUM_THREADS=1";

inline Result train(const fs::path& folder, const std::string& name, const GridCase& grid,
                    const std::string& more = "") {
    return run("train run.toml --set run.name=" + name + model + grid.settings() + " " + more, folder, grid.ranks(),
               environment);
}

inline GridCase layout(int data, int tensor, int pipeline, int context = 1, int zero = 0, int interleave = 1) {
    GridCase made;
    made.data = data;
    made.tensor = tensor;
    made.pipeline = pipeline;
    made.context = context;
    made.zero = zero;
    made.interleave = interleave;
    return made;
}

}  // namespace lockstep::tests
