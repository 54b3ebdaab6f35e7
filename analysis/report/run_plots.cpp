// Where the time of runs went, their losses and their steps' times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/load/positions.hpp"
#include "analysis/report/colours.hpp"
#include "analysis/report/plots.hpp"
#include "analysis/report/text.hpp"
#include "analysis/report/tics.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::size_t points_a_curve = 600;
constexpr std::size_t stretches_of_band = 200;  // of about two pixels
constexpr std::size_t most_validations = 100;   // points; of more the lowest and the highest of each stretch
constexpr double smoothing_share = 0.01;        // of a run's steps

// From dark to light and back, so that neighbours differ in grey as well.
struct Fill {
    Phase phase;
    const char* colour;
    bool dark;
};
const std::vector<Fill> fills = {
    {Phase::data_loading, "#F0E442", false}, {Phase::data_movement, "#8C6D1F", true},
    {Phase::forward, "#56B4E9", false},      {Phase::loss, "#D9D9D9", false},
    {Phase::backward, "#0070B0", true},      {Phase::communication, "#F2A65A", false},
    {Phase::optimizer, "#6B3A5B", true},     {Phase::other, "#EFEFEF", false},
};

std::string curve_title(const std::string& label, const Measurement& measurement) {
    return shorten(label, 26) + fmt::format(", {} rank{}", measurement.ranks, plural(measurement.ranks));
}

// "34 %", "0.6 %".
std::string share_in_words(double share) {
    return fmt::format("{:.{}f} %", 100 * share, share < 0.095 ? 1 : 0);
}

// The first most_curves runs that have what is drawn, and a sentence that names the others.
struct Chosen {
    std::vector<std::size_t> runs;
    std::string left_out;
};
template <class Has>
Chosen choose(const std::vector<Measurement>& measurements, const Labels& labels, const Has& has) {
    Chosen chosen;
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        if (!has(measurements[i])) continue;
        if (chosen.runs.size() < most_curves)
            chosen.runs.push_back(i);
        else
            chosen.left_out += (chosen.left_out.empty() ? "" : ", ") + clean_text(labels[i]);
    }
    if (!chosen.left_out.empty())
        chosen.left_out = fmt::format(" Not drawn, because more than {} curves are indistinguishable: {}.", most_curves,
                                      chosen.left_out);
    return chosen;
}

void add_curve(Curves& curves, Block block, const std::string& title) {
    const std::size_t index = curves.plot.blocks.size();
    const Style style = block.rows.size() < 20 ? line_and_points_style(index) : line_style(index);
    curves.add(std::move(block), style, title, title);
}

Curve loss_curve(const Measurement& measurement) {
    Curve curve;
    for (const auto& [step, loss] : measurement.losses)
        if (std::isfinite(loss)) curve.emplace_back(static_cast<double>(step), loss);
    return curve;
}

Block block_of(const std::string& label, const std::string& column, const Curve& curve) {
    Block block{label, {"step", column}, {}};
    for (const auto& [step, value] : curve) block.rows.push_back({step, value});
    return block;
}

double smoothing_width(std::size_t steps) {
    return std::max(1.0, std::round(smoothing_share * static_cast<double>(steps)));
}

Style validation_style(const std::string& colour, std::size_t index) {
    constexpr int points[] = {7, 5, 9, 13};
    return {Style::Shape::line_and_points, colour, 1.2, 1, points[index % 4], 0.6};
}

// The times of the steps that count, the slowest rank's, ascending.
std::vector<double> sorted_times(const Measurement& measurement) {
    std::vector<double> times;
    for (const StepSample& step : measurement.steps)
        if (std::isfinite(step.slowest) && step.slowest > 0) times.push_back(step.slowest);
    std::sort(times.begin(), times.end());
    return times;
}

}  // namespace

std::vector<std::string> run_labels(const std::vector<Measurement>& measurements) {
    std::map<std::string, int> uses;
    for (const Measurement& measurement : measurements) ++uses[measurement.name];
    std::vector<std::string> labels;
    for (const Measurement& measurement : measurements)
        labels.push_back(clean_text(measurement.name.empty() ? measurement.path
                                    : uses[measurement.name] > 1
                                        ? fmt::format("{} ({})", measurement.name, measurement.path)
                                        : measurement.name));
    return labels;
}

std::string phase_title(std::size_t phase) {
    std::string title = phase_names[phase];
    std::replace(title.begin(), title.end(), '_', ' ');
    return title;
}

std::vector<double> phase_shares(const Measurement& measurement) {
    PhaseSums sums;
    std::vector<double> shares(phase_count, 0);
    for (const RankMeasurement& rank : measurement.rank)
        if (rank.present) sums.add(rank.phases);
    double total = 0, named = 0;
    for (const Fill& fill : fills) {
        const double seconds = sums.seconds[static_cast<std::size_t>(fill.phase)];
        if (!std::isfinite(seconds)) continue;
        total += seconds;
        if (fill.phase != Phase::other) named += seconds;
    }
    if (!(named > 0)) return {};
    for (const Fill& fill : fills) {
        const auto phase = static_cast<std::size_t>(fill.phase);
        if (std::isfinite(sums.seconds[phase])) shares[phase] = sums.seconds[phase] / total;
    }
    return shares;
}

Plot phase_plot(const std::vector<Measurement>& measurements, const Labels& labels) {
    Plot plot;
    plot.name = "phases";
    plot.title = "Shares of a step by phase";
    const Chosen chosen = choose(measurements, labels, [](const auto& one) { return !phase_shares(one).empty(); });
    if (chosen.runs.empty())
        return Plot::without("no run timed the phases of its steps individually.", plot.name, plot.title);
    constexpr double middle = 0.17, half = 0.26;  // of a bar below its run's name
    const bool alone = chosen.runs.size() == 1;
    std::string drawing, names;
    std::size_t used = 0;
    for (const Fill& fill : fills) {
        const auto phase = static_cast<std::size_t>(fill.phase);
        Block block{phase_title(phase), {"run", "from_percent", "to_percent"}, {}};
        std::vector<HoverBox> boxes;
        double most = 0;
        for (std::size_t row = 0; row < chosen.runs.size(); ++row) {
            const std::size_t run = chosen.runs[row];
            const std::vector<double> shares = phase_shares(measurements[run]);
            double from = 0;
            for (const Fill& before : fills) {
                if (&before == &fill) break;
                from += shares[static_cast<std::size_t>(before.phase)];
            }
            const auto at = static_cast<double>(row);
            const std::string share = share_in_words(shares[phase]);
            block.rows.push_back({at, 100 * from, 100 * (from + shares[phase])});
            boxes.push_back(
                {100 * from, 100 * (from + shares[phase]), at + middle - half, at + middle + half,
                 fmt::format("{}\n{}: {}", curve_title(labels[run], measurements[run]), block.title, share)});
            most = std::max(most, shares[phase]);
            if (shares[phase] >= 0.08)
                names += fmt::format("set label {} at {:.3f},{:.3f} center front textcolor rgb '{}'\n",
                                     gnuplot_string(fmt::format("{:.0f} %", 100 * shares[phase])),
                                     100 * (from + shares[phase] / 2), at + middle, fill.dark ? "#fefefe" : "#010101");
        }
        if (most <= 0.0005) continue;
        const std::string title = alone ? fmt::format("{}, {}", block.title, share_in_words(most)) : block.title;
        drawing += fmt::format(
            "{}data index {} using (($2+$3)/2):($1+{}):2:3:($1+{}):($1+{}) with boxxyerror fs solid 1 border rgb "
            "'#444444' fc rgb '{}' lw 0.6 title {}",
            drawing.empty() ? "plot " : ", \\\n     ", used++, middle, middle - half, middle + half, fill.colour,
            gnuplot_string(title));
        Style style;
        style.shape = Style::Shape::box;
        style.colour = fill.colour;
        plot.legend.emplace_back(style, title);
        plot.boxes.insert(plot.boxes.end(), boxes.begin(), boxes.end());
        plot.blocks.push_back(std::move(block));
    }
    for (std::size_t row = 0; row < chosen.runs.size(); ++row)
        names += fmt::format("set label {} at 0,{:.3f} left textcolor rgb '{}'\n",
                             gnuplot_string(curve_title(labels[chosen.runs[row]], measurements[chosen.runs[row]])),
                             static_cast<double>(row) - 0.31, word_colour);
    const int run_height = alone ? 84 : 54;  // pixels; a single bar would be a thin line above its legend
    plot.height = space_above + space_below + run_height * static_cast<int>(chosen.runs.size());
    plot.script = fmt::format(
        "set border 1 lc rgb '{}'\nset tics nomirror scale 0.5 textcolor rgb '{}'\nunset ytics\n"
        "set lmargin at screen {:.5f}\n"
        "set xlabel 'share of a step, %' offset 0,0.4 textcolor rgb '{}'\n{}set yrange [{}:-0.55]\n{}{}\n",
        frame_colour, word_colour, 14.0 / plot.width, word_colour, axis({0, 100}, Side::below),
        static_cast<double>(chosen.runs.size()) - 0.45, names, drawing);
    plot.caption =
        "Mean over ranks, without warm-up, of the steps whose phases were timed individually. Waiting for another rank "
        "counts as communication; bars below 8 % have no label." +
        chosen.left_out;
    return plot;
}

Plot loss_plot(const std::vector<Measurement>& measurements, const Labels& labels) {
    Curves curves;
    Plot& plot = curves.plot;
    plot.name = "loss";
    plot.title = "Training loss";
    const Chosen chosen =
        choose(measurements, labels, [](const Measurement& one) { return loss_curve(one).size() > 1; });
    if (chosen.runs.empty())
        return Plot::without("no run has the losses of at least two steps.", plot.name, plot.title);
    const bool alone = chosen.runs.size() == 1;
    bool banded = false, validated = false;
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
    double narrowest = INFINITY, widest = 0;
    const auto title_of = [&](std::size_t i) {
        return curve_title(labels[chosen.runs[i]], measurements[chosen.runs[i]]);
    };
    // What is pale lies behind all lines, lines behind all points.
    std::vector<Curve> smooth;
    for (std::size_t i = 0; i < chosen.runs.size(); ++i) {
        const Measurement& run = measurements[chosen.runs[i]];
        const Curve losses = loss_curve(run);
        const double width = smoothing_width(losses.size());
        narrowest = std::min(narrowest, width);
        widest = std::max(widest, width);
        smooth.push_back(thin(smoothed(losses, width), points_a_curve));
        first = std::min(first, run.losses.front().first);
        last = std::max(last, run.losses.back().first);
        const bool many = losses.size() > points_a_curve;
        banded = banded || many;
        validated = validated || !run.validations.empty();
        const std::string& colour = line_colours[i % line_colours.size()];
        const std::string title = alone ? "training, each step" : "";
        const std::string hover = many ? "" : title_of(i) + ", each step";
        if (many)
            curves.add({labels[chosen.runs[i]], {"step", "lowest", "highest"}, band(losses, stretches_of_band)},
                       {Style::Shape::band, colour, 1, 1, 7, 0.8, 0.25}, title, hover);
        else
            curves.add(block_of(labels[chosen.runs[i]], "loss", losses),
                       {Style::Shape::line, colour, 1.2, 1, 7, 0.8, 0.5}, title, hover);
    }
    for (std::size_t i = 0; i < chosen.runs.size(); ++i)
        curves.add(block_of(labels[chosen.runs[i]], "smoothed_loss", smooth[i]), line_style(i),
                   alone ? "training, smoothed" : title_of(i), title_of(i) + ", smoothed");
    for (std::size_t i = 0; i < chosen.runs.size(); ++i) {
        Curve losses;
        for (const Validation& one : measurements[chosen.runs[i]].validations)
            losses.emplace_back(static_cast<double>(one.step), one.loss);
        curves.add(block_of(labels[chosen.runs[i]], "validation_loss", thin(losses, most_validations)),
                   validation_style(line_colours[i % line_colours.size()], i), alone ? "validation" : "",
                   title_of(i) + ", validation");
    }
    if (validated && !alone)
        curves.add_to_legend(validation_style(frame_colour, 0), "validation, in the colour of its run");
    const std::string steps = narrowest < widest ? fmt::format("{:.0f} to {:.0f} steps", narrowest, widest)
                                                 : fmt::format("{:.0f} step{}", widest, plural(std::llround(widest)));
    plot.caption = fmt::format(
        "In nats per token, warm-up included. Line: the training loss smoothed by a centred exponential mean, whose "
        "weights fall to 1/e over {} ({:g} % of a run, at least 1). Pale: the training loss of each step",
        steps, 100 * smoothing_share);
    plot.caption +=
        banded ? fmt::format(
                     "; for runs of more than {} steps, a band from the lowest to the highest in each of {} stretches.",
                     points_a_curve, stretches_of_band)
               : ".";
    if (validated) {
        plot.title = "Training and validation loss";
        plot.caption += " Points: the validation loss.";
    }
    plot.caption += chosen.left_out;
    const AxisRange across{static_cast<double>(first) - 1, static_cast<double>(last), false, true};
    return curves.done("step", "loss, nats per token",
                       axis(across, Side::below) + axis(around(curves.values(), false), Side::left));
}

Plot position_plot(const std::vector<Measurement>& measurements, const Labels& labels) {
    Curves curves;
    Plot& plot = curves.plot;
    plot.name = "positions";
    plot.title = "Perplexity by position";
    const Chosen chosen =
        choose(measurements, labels, [](const Measurement& one) { return losses_by_position(one.path).size() > 1; });
    if (chosen.runs.empty())
        return Plot::without("no run's folder has a positions.json of lockstep eval --by-position.", plot.name,
                             plot.title);
    double longest = 1;
    for (const std::size_t run : chosen.runs) {
        Block block{labels[run], {"position", "perplexity"}, {}};
        for (const PositionLoss& range : losses_by_position(measurements[run].path)) {
            const double middle = std::sqrt(static_cast<double>(range.first) * static_cast<double>(range.last));
            block.rows.push_back({middle, std::exp(range.loss)});
            longest = std::max(longest, static_cast<double>(range.last));
        }
        add_curve(curves, std::move(block), curve_title(labels[run], measurements[run]));
    }
    plot.caption =
        "Perplexity of a token by the number of tokens before it in its sequence, both axes logarithmic; a point is a "
        "range of positions, two per octave. A curve that falls to the end shows a model that uses its whole "
        "context." +
        chosen.left_out;
    return curves.done(
        "position, tokens", "perplexity",
        axis({1, longest * 1.1, true, true}, Side::below) + axis(around(curves.values(), true), Side::left));
}

Plot distribution_plot(const std::vector<Measurement>& measurements, const Labels& labels) {
    Curves curves;
    Plot& plot = curves.plot;
    plot.name = "step-times";
    plot.title = "Distribution of step times";
    const Chosen chosen = choose(measurements, labels, [](const Measurement& one) {
        return !one.imported && sorted_times(one).size() >= fewest_samples;
    });
    if (chosen.runs.empty())
        return Plot::without(fmt::format("no run has {} steps or more after its warm-up.", fewest_samples), plot.name,
                             plot.title);
    bool thinned = false;
    double shortest = 1, longest = 1;
    for (const std::size_t run : chosen.runs) {
        const std::vector<double> times = sorted_times(measurements[run]);
        const double middle = median(times);
        shortest = std::min(shortest, times.front() / middle);
        longest = std::max(longest, times.back() / middle);
        Block block{labels[run], {"time_over_median", "share_of_steps"}, {}};
        const std::size_t count = std::min(times.size(), points_a_curve);
        thinned = thinned || count < times.size();
        // Evenly spaced over the sorted times, the shortest and the longest included.
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = i * (times.size() - 1) / (count - 1);
            block.rows.push_back({times[at] / middle, static_cast<double>(at + 1) / static_cast<double>(times.size())});
        }
        add_curve(curves, std::move(block), curve_title(labels[run], measurements[run]));
    }
    const bool logarithmic = longest > 4;
    plot.caption = fmt::format(
        "Share of the steps, without warm-up, that took at most this multiple of the median of their run (time of "
        "the slowest rank{}). A steep curve is a steady run; a tail to the right is steps that stall.",
        logarithmic ? "; logarithmic" : "");
    if (thinned) plot.caption += fmt::format(" Thinned to {} points per run.", points_a_curve);
    plot.caption += chosen.left_out;
    const AxisRange across{std::max(shortest * 0.98, 1e-6), longest * 1.03, logarithmic};
    return curves.done("step time / median of the run", "share of steps",
                       axis(across, Side::below) + axis({0, 1}, Side::left));
}

}  // namespace lockstep::analysis
