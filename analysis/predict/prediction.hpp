// A prediction as a file keeps it, and its comparison with measurements. docs/scaling-prediction.md describes the
// file.
#pragma once

#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"
#include "analysis/output/values.hpp"
#include "analysis/predict/scaling_prediction.hpp"
#include "base/table.hpp"

namespace lockstep::analysis {

// One that the prediction was made from.
struct PredictionRun {
    std::string name, path;
    double ranks = 0, nodes = 0, batch = 0, seconds = 0, started = unknown;
};

struct PredictionFile {
    std::string made, program_version, commit, command_line;  // made: UTC
    std::string unit;                                         // "step" or "run"
    std::string hardware, hardware_origin;
    std::vector<std::pair<std::string, double>> hardware_numbers;
    double model_ranks = 1, ranks_per_node = 1;
    Settings settings;  // of the run with the most ranks
    std::vector<PredictionRun> runs;
    ScalingPrediction scaling;
    std::vector<std::string> remarks;
};

// The figures of a point that have a range, by their names in files.
struct CurveFigure {
    const char* name;
    Range CurvePoint::*range;
};
inline constexpr CurveFigure curve_figures[] = {{"seconds", &CurvePoint::seconds},
                                                {"tokens_per_second", &CurvePoint::tokens_per_second},
                                                {"speedup", &CurvePoint::speedup},
                                                {"efficiency", &CurvePoint::efficiency},
                                                {"communication_share", &CurvePoint::communication_share}};

Json json_of(const PredictionFile& prediction);
// Usage error: not a prediction. Damaged: one that is cut short.
PredictionFile read_prediction(const std::string& path);

// A number of ranks that was predicted and measured.
struct ComparedPoint {
    std::vector<std::string> runs;
    double ranks = 0, batch = 0;
    double measured = 0;  // seconds, the median over the runs
    Interval interval;    // of one run's median step
    Range predicted;      // seconds
    double error = 0;     // predicted median ÷ measured − 1
    bool inside = false;  // measured lies between low and high
    bool used = false;    // the prediction was made from it
};

struct ComparedCurve {
    std::size_t curve = 0;  // of the prediction
    std::string title;      // "Strong scaling, batch 64"
    std::vector<ComparedPoint> points;
};

struct PredictionComparison {
    std::vector<ComparedCurve> curves;  // each of the prediction's, also without points
    std::vector<std::string> remarks;   // runs that are of another program, and why
};

// Settings in `ignored` may differ.
PredictionComparison compare_prediction(const PredictionFile& prediction, const std::vector<Measurement>& measured,
                                        const std::vector<std::string>& ignored);
Json json_of(const PredictionComparison& comparison, const PredictionFile& prediction);

std::string curve_title(const PredictedCurve& curve, double model_ranks);
// "5 of 6 measured times lie in the 90 % interval; mean error 3.2 %, largest 7.0 %; of those not used …"
std::string comparison_sentence(const ComparedCurve& curve);

// For reading.
Table prediction_table(const PredictedCurve& curve, const std::string& unit);
Table parts_table(const PredictedCurve& curve, const std::string& unit);
Table numbers_table(const PredictionFile& prediction);
Table left_out_table(const PredictionFile& prediction);
Table comparison_table(const ComparedCurve& curve, const std::string& unit);
// For programs: all curves in one.
Table prediction_rows(const PredictionFile& prediction);

}  // namespace lockstep::analysis
