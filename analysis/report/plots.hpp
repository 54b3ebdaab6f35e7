// The report's plots, ready to be drawn; each is `missing`, with the reason, where its data is.
#pragma once

#include <string>
#include <vector>

#include "analysis/predict/prediction.hpp"
#include "analysis/report/plot.hpp"
#include "analysis/scaling/scaling.hpp"

namespace lockstep::analysis {

// Names of runs as a page shows them: the run's name, with its path where two bear the same.
std::vector<std::string> run_labels(const std::vector<Measurement>& measurements);

// What a law's value at a number of ranks (seconds, a rate or a speedup, as it was fitted) is as a speedup over the
// measured base.
double law_speedup(const Fit& fit, const ScalingSeries& series, double ranks, double value);

// Of one series; `suffix` ("" or "-2") goes into the plots' names.
Plot speedup_plot(const ScalingSeries& series, const std::string& suffix);
Plot efficiency_plot(const ScalingSeries& series, const std::string& suffix);
Plot factor_plot(const ScalingSeries& series, const std::string& suffix);

// Of one predicted curve, with what was measured of it: time, efficiency, share of communication.
std::vector<Plot> prediction_plots(const PredictedCurve& curve, const ComparedCurve& compared,
                                   const PredictionFile& prediction, const std::string& suffix);

// Of the runs; `labels` as run_labels gives them.
using Labels = std::vector<std::string>;
Plot phase_plot(const std::vector<Measurement>& measurements, const Labels& labels);
Plot loss_plot(const std::vector<Measurement>& measurements, const Labels& labels);
// From each run's positions.json (analysis/load/positions.hpp).
Plot position_plot(const std::vector<Measurement>& measurements, const Labels& labels);
Plot distribution_plot(const std::vector<Measurement>& measurements, const Labels& labels);
// Of one run.
Plot heat_plot(const Measurement& measurement, const std::string& label, const std::string& suffix);
Plot memory_plot(const Measurement& measurement, const std::string& label, const std::string& suffix);

// Mean over ranks of the shares of a step, or of an imported run, by phase; empty where no phase was timed.
std::vector<double> phase_shares(const Measurement& measurement);
// How a phase is called in words: "data loading".
std::string phase_title(std::size_t phase);

// The runs that plots of ranks are made of: those with more than one rank where there are at most four, or else the one
// with the most ranks.
std::vector<std::size_t> runs_shown_by_rank(const std::vector<Measurement>& measurements);

// Curves in one plot, so that they can be told apart. Runs beyond that are named in the caption.
inline constexpr std::size_t most_curves = 12;

}  // namespace lockstep::analysis
