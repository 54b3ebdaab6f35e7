// The page that `lockstep-analyze report` writes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/predict/prediction.hpp"
#include "analysis/report/gnuplot.hpp"
#include "analysis/report/html.hpp"
#include "analysis/report/plot.hpp"
#include "analysis/report/plots.hpp"
#include "analysis/scaling/scaling.hpp"

namespace lockstep::analysis {

struct Report {
    std::string title;
    Scaling scaling;
    std::string command_line;
    std::optional<PredictionFile> prediction;  // and how it compares with these runs
    PredictionComparison comparison;
};

// The drawing of a plot for the page.
using Draw = std::function<Drawing(const Plot&)>;

// The page, self-contained. Without `draw` it has no plots, and says so.
std::string report_page(const Report& report, const Draw& draw);

// Parts of it, each in its own file.

// What a series says in a sentence or two: speedup, efficiency, what limits it.
std::vector<std::string> series_in_short(const ScalingSeries& series);
// Remarks without repetition: those on a point or a run as warnings, those on the series and the rest as notes.
std::vector<Html::Item> remarks_of(const Scaling& scaling);

Table runs_table(const std::vector<Measurement>& measurements, const Labels& labels);
// Without rows where no law predicts.
Table predictions_table(const ScalingSeries& series);
Table phases_table(const std::vector<Measurement>& measurements, const Labels& labels);
Table step_times_table(const std::vector<Measurement>& measurements, const Labels& labels);
Table losses_table(const std::vector<Measurement>& measurements, const Labels& labels);
Table ranks_table(const std::vector<Measurement>& measurements, const Labels& labels);

// "How each figure was computed".
std::vector<std::pair<std::string, std::string>> method_of(const Scaling& scaling);

}  // namespace lockstep::analysis
