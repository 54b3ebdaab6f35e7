// What differs from rank to rank: computation over time, and memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/plots.hpp"
#include "analysis/report/text.hpp"

namespace lockstep::analysis {
namespace {

// More ranks than this are drawn as lines, not bars.
constexpr std::size_t most_bars = 16;
// Lines with more points are thinned.
constexpr std::size_t most_points = 512;

// Tics of a heat map, labelled by the first rank or step of a cell.
std::string cell_tics(const std::vector<std::int64_t>& first, std::size_t most) {
    const std::size_t every = (first.size() + most - 1) / most;
    std::string tics;
    for (std::size_t i = 0; i < first.size(); i += every)
        tics += fmt::format("{}'{}' {}", tics.empty() ? "" : ", ", first[i], i);
    return "(" + tics + ")";
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
    if (measurement.ranks < 2) plot.missing = "the run has one rank only.";
    // A map of one column would show a single step, which the tables do better.
    else if (known.empty() || heat.first_step.size() < 2)
        plot.missing = "the computation of its ranks was not timed step by step.";
    if (!plot.missing.empty()) return plot;
    const std::size_t columns = heat.first_step.size(), rows = heat.first_rank.size();
    Block block{"seconds of computation a step; a row is a rank or several, a column a step or several", {}, {}};
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
        "How long each rank computed in a step, communication and waiting left out; dark is short, light is long. A "
        "light row is a slow rank, a light column a slow step.{}{}",
        most > highest * 1.02
            ? fmt::format(" The scale ends at the 95th percentile; the longest is {}.", short_seconds(most))
            : "",
        measurement.ranks > static_cast<std::int64_t>(rows) ||
                measurement.timed_steps > static_cast<std::int64_t>(columns)
            ? " Where several steps or ranks fall into one cell, it shows the longest."
            : "");
    const double from = lowest / unit, to = std::max(highest, lowest * 1.0001) / unit;
    std::string scale;
    for (int i = 0; i < 5; ++i) {
        const double at = from + (to - from) * i / 4;
        scale += fmt::format("{}'{:.3g}' {:.9g}", i == 0 ? "" : ", ", at, at);
    }
    const double height = plot.height;
    plot.script = fmt::format(
        "set border lc rgb '#555555'\nunset key\nset tics nomirror out scale 0.5 textcolor rgb '#222222'\n"
        // Lightness grows evenly from dark to light: readable in grey and with any colour blindness.
        "set palette defined (0 '#00224e', 1 '#35456c', 2 '#666970', 3 '#948e77', 4 '#c8b866', 5 '#fee838')\n"
        "set cbrange [{:.9g}:{:.9g}]\nset cbtics ({})\n"
        "set colorbox horizontal user origin graph 0, screen {:.4f} size graph 1, screen {:.4f}\n"
        "set label 'computation of a step, {}' at graph 0, screen {:.4f} left\n"
        "set tmargin at screen {:.4f}\nset bmargin at screen {:.4f}\n"
        "set xrange [-0.5:{}.5]\nset yrange [{}.5:-0.5]\nset xlabel 'step' offset 0,0.4\nset ylabel 'rank'\n"
        "set xtics {}\nset ytics {}\n"
        "plot data index 0 matrix using 1:2:3 with image\n",
        from, to, scale, 1 - 40 / height, 12 / height, milliseconds ? "ms" : "s", 1 - 14 / height, 1 - above / height,
        below / height, columns - 1, rows - 1, cell_tics(heat.first_step, 6), cell_tics(heat.first_rank, 9));
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
        "The most of any step on each rank: what tensors take (allocated), what the program holds for them "
        "(reserved), and the peak.";
    plot.script = axes("rank", what) + "set yrange [0:*]\nset key horizontal maxcols 3 samplen 2\n";
    plot.height = 270;
    if (rows.size() <= most_bars) {
        plot.blocks.push_back({label, {"rank", "allocated", "reserved", "peak"}, rows});
        plot.script += fmt::format(
            "set grid noxtics\nset boxwidth 0.25\nset style fill solid 1 border rgb '#444444'\nset xtics 1\n"
            "set xrange [-0.6:{}.6]\n"
            "plot data index 0 using ($1-0.25):2 with boxes fc rgb '#F0E442' title 'allocated', \\\n"
            "     data index 0 using 1:3 with boxes fc rgb '#56B4E9' title 'reserved', \\\n"
            "     data index 0 using ($1+0.25):4 with boxes fc rgb '#0B4A6F' title 'peak'\n",
            measurement.rank.size() - 1);
    } else {
        for (std::size_t kind = 0; kind < 3; ++kind) {
            Curve curve;
            for (const auto& row : rows) curve.emplace_back(row[0], row[kind + 1]);
            Block block{titles[kind], {"rank", titles[kind]}, {}};
            for (const auto& [rank, bytes] : thin(curve, most_points)) block.rows.push_back({rank, bytes});
            plot.blocks.push_back(std::move(block));
            plot.script += fmt::format("{}data index {} with steps {} title '{}'", kind == 0 ? "plot " : ", \\\n     ",
                                       kind, line_style(kind), titles[kind]);
        }
        plot.script += "\n";
        if (rows.size() > most_points)
            plot.caption += " Thinned: of each stretch of ranks the lowest and the highest are drawn.";
    }
    return plot;
}

}  // namespace lockstep::analysis
