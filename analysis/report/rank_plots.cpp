// What differs from rank to rank: computation over time, and memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/colours.hpp"
#include "analysis/report/plots.hpp"
#include "analysis/report/text.hpp"
#include "analysis/report/tics.hpp"

namespace lockstep::analysis {
namespace {

// More ranks than this are drawn as lines, not bars.
constexpr std::size_t most_bars = 16;
// Lines with more points are thinned.
constexpr std::size_t most_points = 512;

// At round steps or ranks, where a heat map of cells that begin with these has them. `last`: of the last cell.
std::string cell_tics(const std::vector<std::int64_t>& first, std::int64_t last, Side side, double pixels) {
    const AxisRange scale{static_cast<double>(first.front()) - 0.5, static_cast<double>(last) + 0.5, false, true,
                          pixels};
    std::vector<Tic> tics = round_tics(scale, side);
    for (Tic& tic : tics) {
        const auto next = std::upper_bound(first.begin(), first.end(), static_cast<std::int64_t>(tic.at));
        const auto cell = std::max<std::ptrdiff_t>(next - first.begin() - 1, 0);
        const double begin = static_cast<double>(first[static_cast<std::size_t>(cell)]),
                     end = next == first.end() ? static_cast<double>(last) + 1 : static_cast<double>(*next);
        tic.at = static_cast<double>(cell) - 0.5 + (tic.at - begin + 0.5) / (end - begin);
    }
    return tic_list(tics);
}

}  // namespace

std::vector<std::size_t> runs_shown_by_rank(const std::vector<Measurement>& measurements) {
    std::vector<std::size_t> several;
    std::size_t largest = 0;
    for (std::size_t i = 0; i < measurements.size(); ++i) {
        if (measurements[i].ranks > 1) several.push_back(i);
        if (measurements[i].ranks > measurements[largest].ranks) largest = i;
    }
    if (measurements.empty() || (!several.empty() && several.size() <= 4)) return several;
    return {largest};
}

Plot heat_plot(const Measurement& measurement, const std::string& label, const std::string& suffix) {
    Plot plot;
    plot.name = "ranks-over-time" + suffix;
    plot.title = "Computation by rank over time, " + label;
    const HeatMap& heat = measurement.heat;
    std::vector<double> known;
    for (const double seconds : heat.seconds)
        if (std::isfinite(seconds)) known.push_back(seconds);
    if (measurement.ranks < 2) plot.missing = "the run has only one rank.";
    // A map of one column would show a single step, which the tables do better.
    else if (known.empty() || heat.first_step.size() < 2)
        plot.missing = "the computation of its ranks was not timed step by step.";
    if (!plot.missing.empty()) return plot;
    const std::size_t columns = heat.first_step.size(), rows = heat.first_rank.size();
    Block block{"seconds of computation per step; a row is one or more ranks, a column one or more steps", {}, {}};
    for (const std::int64_t step : heat.first_step) block.columns.push_back(fmt::format("step_{}", step));
    // A single outlier would leave everything else in one colour: the scale ends at the 95th percentile.
    const double lowest = quantile(known, 0), highest = quantile(known, 0.95), most = quantile(known, 1);
    const bool milliseconds = most < 1;
    const double unit = milliseconds ? 1e-3 : 1;
    for (std::size_t row = 0; row < rows; ++row) {
        std::vector<double> line;
        for (std::size_t column = 0; column < columns; ++column)
            line.push_back(heat.seconds[row * columns + column] / unit);
        block.rows.push_back(std::move(line));
    }
    plot.blocks.push_back(std::move(block));
    constexpr int above = 84, below = 62;  // pixels: the scale of colours; the axis of the steps
    plot.height = above + below + static_cast<int>(std::clamp<std::size_t>(rows * 22, 66, 280));
    plot.caption = fmt::format(
        "How long each rank computed in a step, without communication and waiting; dark is short, light is long. A "
        "light row is a slow rank, a light column a slow step.{}{}",
        most > highest * 1.02
            ? fmt::format(" The scale ends at the 95th percentile; the longest is {}.", short_seconds(most))
            : "",
        measurement.ranks > static_cast<std::int64_t>(rows) ||
                measurement.timed_steps > static_cast<std::int64_t>(columns)
            ? " Where several steps or ranks fall into one cell, it shows the longest."
            : "");
    const double from = lowest / unit, to = std::max(highest, lowest * 1.0001) / unit;
    const std::int64_t last_step =
        std::max(heat.first_step.back(), measurement.steps.empty() ? std::int64_t{0} : measurement.steps.back().step);
    plot.cells = {heat.first_step, heat.first_rank, last_step, measurement.ranks - 1, {}, milliseconds ? "ms" : "s"};
    for (const double seconds : heat.seconds) plot.cells.values.push_back(seconds / unit);
    const double height = plot.height;
    plot.script = fmt::format(
        "set border lc rgb '{}'\nset tics nomirror out scale 0.5 textcolor rgb '{}'\n"
        // Lightness grows evenly from dark to light: readable in grey and with any colour blindness.
        "set palette defined (0 '#00224e', 1 '#35456c', 2 '#666970', 3 '#948e77', 4 '#c8b866', 5 '#fee838')\n"
        "set cbrange [{:.9g}:{:.9g}]\nset cbtics {}\n"
        "set colorbox horizontal user origin graph 0, screen {:.4f} size graph 1, screen {:.4f}\n"
        "set label 'computation per step, {}' at graph 0, screen {:.4f} left textcolor rgb '{}'\n"
        "set tmargin at screen {:.4f}\nset bmargin at screen {:.4f}\n"
        "set xrange [-0.5:{}.5]\nset yrange [{}.5:-0.5]\nset xlabel 'step' offset 0,0.4 textcolor rgb '{}'\nset ylabel 'rank' textcolor rgb '{}'\n"
        "set xtics {}\nset ytics {}\n"
        "plot data index 0 matrix using 1:2:3 with image\n",
        frame_colour, word_colour, from, to, tic_list(round_tics({from, to}, Side::below)), 1 - 40 / height,
        12 / height, milliseconds ? "ms" : "s", 1 - 14 / height, word_colour, 1 - above / height, below / height,
        columns - 1, rows - 1, word_colour, word_colour, cell_tics(heat.first_step, last_step, Side::below, 0),
        cell_tics(heat.first_rank, measurement.ranks - 1, Side::left, height - above - below));
    return plot;
}

Plot memory_plot(const Measurement& measurement, const std::string& label, const std::string& suffix) {
    Plot plot;
    plot.name = "memory" + suffix;
    plot.title = "Memory by rank, " + label;
    double most = 0;
    for (const RankMeasurement& rank : measurement.rank)
        most = std::max({most, static_cast<double>(rank.allocated), static_cast<double>(rank.reserved),
                         static_cast<double>(rank.peak)});
    if (most <= 0) {
        plot.missing = "its memory was not recorded.";
        return plot;
    }
    const bool gib = most >= 2.0 * (1 << 30);
    const double unit = gib ? 1 << 30 : 1 << 20;
    std::vector<std::vector<double>> rows;
    for (std::size_t r = 0; r < measurement.rank.size(); ++r) {
        const RankMeasurement& rank = measurement.rank[r];
        if (rank.present)
            rows.push_back({static_cast<double>(r), static_cast<double>(rank.allocated) / unit,
                            static_cast<double>(rank.reserved) / unit, static_cast<double>(rank.peak) / unit});
    }
    const char* titles[] = {"allocated", "reserved", "peak"};
    const std::string what = fmt::format("memory, {}", gib ? "GiB" : "MiB");
    plot.caption =
        "The maximum over the steps on each rank: memory used by tensors (allocated), memory the program holds for "
        "them (reserved), and the peak.";
    plot.x_name = "rank";
    plot.y_name = what;
    const auto last = static_cast<double>(measurement.rank.size() - 1);
    plot.script = axes("rank", what) + axis({0, most / unit * 1.06}, Side::left) +
                  axis({-0.6, last + 0.6, false, true}, Side::below);
    plot.height = 270;
    if (rows.size() <= most_bars) {
        plot.blocks.push_back({label, {"rank", "allocated", "reserved", "peak"}, rows});
        const char* colours[] = {"#F0E442", "#56B4E9", "#0B4A6F"};
        plot.script += "set grid noxtics\nset boxwidth 0.25\nplot ";
        for (int kind = 0; kind < 3; ++kind) {
            Style style;
            style.shape = Style::Shape::box;
            style.colour = colours[kind];
            plot.script +=
                fmt::format("{}data index 0 using ($1{:+g}):{} {} title '{}'", kind == 0 ? "" : ", \\\n     ",
                            0.25 * (kind - 1), kind + 2, style.gnuplot(), titles[kind]);
            plot.legend.emplace_back(style, titles[kind]);
            for (const auto& row : rows) {
                const double middle = row[0] + 0.25 * (kind - 1), value = row[static_cast<std::size_t>(kind) + 1];
                plot.boxes.push_back({middle - 0.125, middle + 0.125, 0, value,
                                      fmt::format("{}\nrank: {:g}\n{}: {:.4g}", titles[kind], row[0], what, value)});
            }
        }
        plot.script += "\n";
    } else {
        for (std::size_t kind = 0; kind < 3; ++kind) {
            Curve curve;
            for (const auto& row : rows) curve.emplace_back(row[0], row[kind + 1]);
            Block block{titles[kind], {"rank", titles[kind]}, {}};
            for (const auto& [rank, bytes] : thin(curve, most_points)) block.rows.push_back({rank, bytes});
            plot.blocks.push_back(std::move(block));
            const Style style = line_style(kind);
            plot.legend.emplace_back(style, titles[kind]);
            plot.curves.push_back({titles[kind], thin(curve, most_points)});
            plot.script += fmt::format("{}data index {} {} title '{}'", kind == 0 ? "plot " : ", \\\n     ", kind,
                                       style.gnuplot(), titles[kind]);
        }
        plot.script += "\n";
        if (rows.size() > most_points)
            plot.caption += " Thinned: of each stretch of ranks the lowest and the highest are drawn.";
    }
    return plot;
}

}  // namespace lockstep::analysis
