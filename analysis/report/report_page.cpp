// The report's sections, in reading order.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "analysis/report/figure.hpp"
#include "analysis/report/report.hpp"
#include "analysis/report/text.hpp"
#include "analysis/scaling/scaling_tables.hpp"
#include "base/clock.hpp"
#include "base/plural.hpp"
#include "base/version.hpp"

namespace lockstep::analysis {
namespace {

class Writer {
  public:
    Writer(const Report& report, const Draw& draw)
        : report_(report), all_(report.scaling.measurements), labels_(run_labels(all_)), draw_(draw) {}

    std::string page() {
        html_.heading(1, report_.title);
        html_.paragraph(what_was_measured(), "lead");
        if (!draw_)
            html_.list({{"Warning",
                         "The plots are left out: gnuplot was not found on the machine that generated this page."}});
        in_short();
        html_.heading(2, "What was measured");
        html_.table(runs_table(all_, labels_), "Runs");
        const auto& series = report_.scaling.series;
        for (std::size_t s = 0; s < series.size(); ++s)
            add_series(series[s], series.size() > 1 ? fmt::format("-{}", s + 1) : "");
        if (report_.prediction) prediction(*report_.prediction);
        time();
        ranks();
        loss();
        method();
        foot();
        return html_page(report_.title, html_.text());
    }

  private:
    std::string what_was_measured() const {
        std::set<std::int64_t> ranks;
        std::set<std::string> hosts, gpus;
        std::size_t imported = 0;
        double first = 0, last = 0;
        for (const Measurement& one : all_) {
            ranks.insert(one.ranks);
            if (one.imported) {
                ++imported;
                continue;
            }
            for (const RankMeasurement& rank : one.rank)
                if (!rank.host.empty()) hosts.insert(rank.host);
            if (const std::string gpu = one.setting("gpu"); !gpu.empty()) gpus.insert(gpu);
            if (one.started > 0) first = first > 0 ? std::min(first, one.started) : one.started;
            last = std::max(last, one.started);
        }
        std::string words = fmt::format("{} run{}", all_.size(), plural(all_.size()));
        if (!ranks.empty())
            words += ranks.size() == 1 ? fmt::format(" on {} rank{}", *ranks.begin(), plural(*ranks.begin()))
                                       : fmt::format(" on {} to {} ranks", *ranks.begin(), *ranks.rbegin());
        if (hosts.size() == 1) words += ", host " + *hosts.begin();
        if (hosts.size() > 1)
            words += fmt::format(", {} hosts ({} to {})", hosts.size(), *hosts.begin(), *hosts.rbegin());
        for (const std::string& gpu : gpus) words += ", " + gpu;
        if (first > 0) {
            const std::string from = calendar_time(first).substr(0, 10), to = calendar_time(last).substr(0, 10);
            words += from == to ? ", started on " + from : fmt::format(", started from {} to {}", from, to);
        }
        words += ".";
        if (imported == all_.size() && imported > 0)
            words += " All of them are imported from tables of measured times.";
        else if (imported > 0)
            words += fmt::format(" {} of them {} imported from tables of measured times.", imported,
                                 imported == 1 ? "is" : "are");
        return words;
    }

    void in_short() {
        html_.heading(2, "Summary");
        for (const ScalingSeries& series : report_.scaling.series) {
            html_.heading(3, series_heading(series));
            std::string words;
            for (const std::string& sentence : series_in_short(series)) words += (words.empty() ? "" : " ") + sentence;
            html_.paragraph(words);
            html_.paragraph(base_sentence(report_.scaling, series), "soft");
        }
        if (report_.scaling.series.empty())
            html_.paragraph(report_.scaling.measurements.size() == 1
                                ? "A single run is not a scaling series, so no speedup is shown."
                                : "No two of these runs form a scaling series, so no speedup is shown.");
        html_.list(remarks_of(report_.scaling));
    }

    void add_series(const ScalingSeries& series, const std::string& suffix) {
        html_.heading(2, series_heading(series), "series" + suffix);
        html_.paragraph(warm_up_sentence(report_.scaling, series));
        figures({speedup_plot(series, suffix), efficiency_plot(series, suffix)});
        html_.table(time_table(series), "Time, speedup and efficiency");
        figures({factor_plot(series, suffix)});
        html_.table(factor_table(series), "Efficiency factors");
        const Table fits = fit_table(series), predictions = predictions_table(series);
        if (!series.fits.empty()) html_.heading(3, "Scaling laws");
        if (!fits.rows().empty())
            html_.table(fits, series.timed ? "Laws fitted to the slowest rank's times" : "Laws fitted to the rates");
        for (const Fit& fit : series.fits) {
            if (!fit.refusal.empty()) html_.paragraph(fmt::format("{} is not fitted. {}", fit.title, fit.refusal));
            if (fit.refusal.empty() && !fit.prediction_refusal.empty())
                html_.paragraph(
                    fmt::format("{} does not predict all requested points. {}", fit.title, fit.prediction_refusal));
            for (const std::string& remark : fit.remarks) html_.paragraph(fmt::format("{}: {}", fit.title, remark));
        }
        if (predictions.rows().empty()) return;
        html_.table(predictions, "What the laws predict");
        html_.paragraph(
            "A prediction assumes that the law holds there and that nothing else changes with the ranks: the network, "
            "the placement, the working set per cache.",
            "soft");
    }

    void prediction(const PredictionFile& prediction) {
        html_.heading(2, "Prediction and measurement", "prediction");
        std::string words;
        for (const PredictionRun& run : prediction.runs)
            words += fmt::format("{}{} on {:g}", words.empty() ? "" : ", ", run.name, run.ranks);
        html_.paragraph(fmt::format("Predicted on {} for {} from the runs (name, ranks): {}.", prediction.made,
                                    prediction.hardware, words));
        for (std::size_t c = 0; c < prediction.scaling.curves.size(); ++c) {
            const auto& curve = prediction.scaling.curves[c];
            const ComparedCurve& compared = report_.comparison.curves[c];
            html_.heading(3, compared.title);
            html_.paragraph(comparison_sentence(compared));
            figures(prediction_plots(curve, compared, prediction,
                                     prediction.scaling.curves.size() > 1 ? fmt::format("-{}", c + 1) : ""));
            if (!compared.points.empty())
                html_.table(comparison_table(compared, prediction.unit), "Predicted and measured");
            html_.table(prediction_table(curve, prediction.unit), "The prediction");
            for (const std::string& remark : curve.remarks) html_.paragraph(remark);
        }
        std::vector<Html::Item> items;
        for (const std::string& remark : report_.comparison.remarks) items.push_back({"Note", remark});
        for (const std::string& remark : prediction.remarks) items.push_back({"Note", remark});
        if (!items.empty()) html_.list(items);
    }

    void time() {
        html_.heading(2, "Where the time goes");
        figures({phase_plot(all_, labels_), distribution_plot(all_, labels_)});
        const Table phases = phases_table(all_, labels_), steps = step_times_table(all_, labels_);
        if (!phases.rows().empty()) html_.table(phases, "Seconds per step by phase, mean over ranks");
        if (!steps.rows().empty()) html_.table(steps, "Step times, slowest rank");
    }

    void ranks() {
        html_.heading(2, "Rank by rank");
        const std::vector<std::size_t> shown = runs_shown_by_rank(all_);
        if (shown.size() < all_.size())
            html_.paragraph(shown.size() == 1 ? "Only the run with the most ranks is drawn; the table has all runs."
                                              : "Only runs with more than one rank are drawn; the table has all runs.");
        std::vector<Plot> plots;
        for (std::size_t i = 0; i < shown.size(); ++i) {
            const std::string suffix = shown.size() > 1 ? fmt::format("-{}", i + 1) : "";
            plots.push_back(heat_plot(all_[shown[i]], labels_[shown[i]], suffix));
            plots.push_back(memory_plot(all_[shown[i]], labels_[shown[i]], suffix));
        }
        figures(plots);
        const Table table = ranks_table(all_, labels_);
        if (!table.rows().empty()) html_.table(table, "Computation and memory of the ranks");
    }

    void loss() {
        html_.heading(2, "Loss");
        std::vector<Plot> plots = {loss_plot(all_, labels_)};
        if (Plot positions = position_plot(all_, labels_); positions.missing.empty())  // most runs have none
            plots.push_back(std::move(positions));
        figures(plots);
        const Table table = losses_table(all_, labels_);
        if (!table.rows().empty()) html_.table(table, "Losses");
    }

    void method() {
        html_.heading(2, "How each figure was computed");
        auto terms = method_of(report_.scaling);
        if (report_.prediction)
            terms.emplace_back(
                "Prediction",
                fmt::format(
                    "A model of a step's parts (compute by a rank's share of the batch, waiting for the slowest "
                    "rank, exchange by latency and bandwidth of the links), fitted to the runs named above. Its "
                    "{:g} % intervals cover the scatter of the steps, the uncertainty these runs leave, and the "
                    "error of predicting each number of ranks from the others. Error: predicted ÷ measured − 1.",
                    100 * prediction_level));
        html_.definitions(terms);
        html_.paragraph(
            "The tables above are rounded. lockstep-analyze scaling --format csv prints the same figures "
            "with every digit.");
    }

    void foot() {
        html_.raw(
            fmt::format("<footer>\n<p>Generated by lockstep-analyze {} ({}) on {} with</p>\n<p><code>{}</code></p>\n"
                        "</footer>\n",
                        escape_markup(version()), escape_markup(commit()), escape_markup(utc_now()),
                        escape_markup(report_.command_line)));
    }

    // Plots with data, side by side where there is room; then why the others are missing.
    void figures(const std::vector<Plot>& plots) {
        std::string drawn;
        for (const Plot& plot : plots) {
            if (!plot.missing.empty() || !draw_) continue;
            drawn += figure_markup(plot, draw_(plot));
        }
        if (!drawn.empty()) html_.raw("<div class=\"figures\">\n" + drawn + "</div>\n");
        for (const Plot& plot : plots)
            if (!plot.missing.empty())
                html_.paragraph(fmt::format("{}: not drawn, because {}", plot.title, plot.missing), "soft");
    }

    const Report& report_;
    const std::vector<Measurement>& all_;
    Labels labels_;
    const Draw& draw_;
    Html html_;
};

}  // namespace

std::string report_page(const Report& report, const Draw& draw) {
    return Writer(report, draw).page();
}

}  // namespace lockstep::analysis
