// The input of a prediction, from measured runs: one program, its terms, the seconds of each run.
#pragma once

#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"
#include "analysis/predict/scaling_prediction.hpp"

namespace lockstep::analysis {

struct PredictOptions {
    std::vector<double> ranks;  // to predict at; empty: doublings up to `to`
    double to = 10000;
    bool strong = true, weak = true;
    std::int64_t batch = 0;            // strong: sequences a step; 0: each measured on two numbers of ranks or more
    std::int64_t ranks_per_node = 0;   // 0: as many as the node has places for
    std::vector<std::string> ignored;  // settings that may differ between the runs
};

struct Observations {
    ScalingProgram program;
    std::vector<WorkTerm> terms;
    std::vector<MeasuredSteps> steps;  // by ranks
    std::vector<std::size_t> runs;     // of each of them: index into the measurements
    std::vector<CurveRequest> curves;
    std::string unit;  // what the seconds are of: "step" or "run"
    std::vector<std::string> remarks;
};

// Usage errors: runs of more than one program, of one number of ranks, without times.
Observations observe(const std::vector<Measurement>& all, const config::Machine& machine,
                     const PredictOptions& options);

}  // namespace lockstep::analysis
