// Measured steps of one program on a few numbers of ranks in, strong and weak scaling curves to many ranks out, with
// intervals. docs/scaling-prediction.md has the method and its sources.
#pragma once

#include <string>
#include <vector>

#include "analysis/predict/scaling_model.hpp"

namespace lockstep::analysis {

// One run. What is not known is NaN.
struct MeasuredSteps {
    double ranks = 1, nodes = 1;
    double batch = 1;               // sequences of a step
    double seconds = 0;             // of a step, the slowest rank's
    double deviation = 0;           // standard error of `seconds`, as a share of it
    std::vector<double> work;       // seconds of each term, mean over ranks
    double wait = 0, exchange = 0;  // seconds, mean over ranks
};

struct Range {
    double low = 0, median = 0, high = 0;
};

enum class CurveKind { strong, weak };

struct CurveRequest {
    CurveKind kind = CurveKind::strong;
    double batch = 1;              // sequences of a step; weak: of a replica
    double tokens_a_sequence = 0;  // 0: unknown
    double base_ranks = 1;         // what speedup and efficiency are over
    double base_seconds = 0;       // measured there; 0: predicted
    std::vector<double> ranks;     // ascending
};

struct CurvePoint {
    double ranks = 1, nodes = 1, batch = 1, sequences_per_replica = 1;
    Range seconds, tokens_per_second, speedup, efficiency, communication_share;
    std::vector<std::pair<std::string, double>> parts;  // seconds of the maximum a posteriori step, by term
};

struct PredictedCurve {
    CurveRequest request;  // with the seconds of the base
    std::vector<CurvePoint> points;
    double most_ranks = 0;             // strong: beyond them ranks have no sequence; 0: no limit is known
    std::vector<std::string> remarks;  // numbers of ranks without a point, and why; where it is fastest
};

// A parameter of the model: its prior, and its posterior.
struct LearnedNumber {
    std::string name, title;
    double believed = 0;
    Range value;
    bool measured = false;  // its interval is less than half as wide as its prior's
};

// Leave-one-out: one number of ranks, predicted from the others.
struct LeftOutRun {
    double ranks = 1, batch = 1, measured = 0, predicted = 0;  // seconds
    double error = 0;                                          // predicted ÷ measured − 1
};

struct ScalingPrediction {
    std::vector<PredictedCurve> curves;
    std::vector<LearnedNumber> numbers;
    std::vector<LeftOutRun> left_out;
    double left_out_error = 0;  // their root mean square, with a floor
    std::vector<std::string> remarks;
};

inline constexpr double prediction_level = 0.9;  // of all ranges
// Beyond the measured ranks, a point whose seconds span a larger factor is left out as meaningless.
inline constexpr double widest_interval = 5;

// At least two numbers of ranks, else a usage error; likewise where no point beyond the measured ranks is left of those
// asked for. `terms`: of what `work` holds the seconds.
ScalingPrediction predict_scaling(const ScalingProgram& program, const std::vector<WorkTerm>& terms,
                                  const config::Machine& machine, const std::vector<MeasuredSteps>& runs,
                                  const std::vector<CurveRequest>& curves);

}  // namespace lockstep::analysis
