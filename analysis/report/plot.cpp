#include "analysis/report/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/colours.hpp"
#include "analysis/report/text.hpp"
#include "analysis/report/tics.hpp"

namespace lockstep::analysis {

std::string Style::gnuplot() const {
    const std::string line = fmt::format("lw {:g} dt {}", width, dash);
    const std::string points = fmt::format("pt {} ps {:g}", point, point_size);
    // gnuplot's colours begin with how transparent they are.
    const int transparent = static_cast<int>(std::lround(255 * (1 - opacity)));
    const std::string in =
        transparent > 0 ? fmt::format("lc rgb '#{:02x}{}'", transparent, colour.substr(1)) : "lc rgb '" + colour + "'";
    switch (shape) {
        case Shape::line:
            return fmt::format("with lines {} {}", in, line);
        case Shape::points:
            return fmt::format("with points {} lw {:g} {}", in, width, points);
        case Shape::line_and_points:
            return fmt::format("with linespoints {} {} {}", in, line, points);
        case Shape::band:
            return fmt::format("with filledcurves fc rgb '{}' fs transparent solid {:g} noborder", colour, opacity);
        case Shape::box:
            break;
    }
    return fmt::format("with boxes fc rgb '{}' fs solid 1 border rgb '#444444'", colour);
}

std::string Style::swatch() const {
    constexpr const char* dashes[] = {"", "5 3", "1.5 2.5", "6 3 1.5 3", "7 3 1.5 3 1.5 3"};
    const std::string paint = in_scheme(colour);
    std::string inside;
    if (shape == Shape::band)
        inside = fmt::format("<rect x=\"1\" y=\"2\" width=\"28\" height=\"10\" fill=\"{}\" fill-opacity=\"{:g}\"/>",
                             paint, opacity);
    if (shape == Shape::box)
        inside = fmt::format("<rect x=\"9\" y=\"1.5\" width=\"12\" height=\"11\" fill=\"{}\" stroke=\"{}\"/>", paint,
                             in_scheme("#444444"));
    if (shape == Shape::line || shape == Shape::line_and_points)
        inside = fmt::format(
            "<path d=\"M1 7H29\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-opacity=\"{:g}\"{}/>", paint,
            width, opacity, dash % 5 == 1 ? "" : fmt::format(" stroke-dasharray=\"{}\"", dashes[(dash + 4) % 5]));
    if (shape == Shape::points || shape == Shape::line_and_points) {
        // gnuplot's points: 4 to 9 are a square, a circle and a triangle, each open and filled; 13 is a diamond.
        const bool filled = point % 2 == 1;
        const std::string ink = fmt::format("fill=\"{}\" stroke=\"{}\"", filled ? paint : "var(--paper)", paint);
        if (point == 6 || point == 7)
            inside += fmt::format("<circle cx=\"15\" cy=\"7\" r=\"3.8\" {}/>", ink);
        else
            inside += fmt::format("<path d=\"{}\" {}/>",
                                  point < 6    ? "M11.5 3.5H18.5V10.5H11.5Z"
                                  : point < 10 ? "M15 2.5L19.3 10.5H10.7Z"
                                               : "M15 2L20 7L15 12L10 7Z",
                                  ink);
    }
    return "<svg class=\"swatch\" viewBox=\"0 0 30 14\" aria-hidden=\"true\">" + inside + "</svg>";
}

Plot Plot::without(const std::string& reason, const std::string& name, const std::string& title) {
    Plot plot;
    plot.name = name;
    plot.title = title;
    plot.missing = reason;
    return plot;
}

void Curves::add(Block block, const Style& style, const std::string& title, const std::string& hover,
                 const std::string& columns) {
    if (block.rows.empty()) return;
    parts_.push_back(fmt::format("data index {} {}{} title {}", plot.blocks.size(),
                                 columns.empty() ? "" : "using " + columns + " ", style.gnuplot(),
                                 gnuplot_string(title)));
    if (!title.empty()) plot.legend.emplace_back(style, title);
    if (!hover.empty()) {
        plot.curves.push_back({hover, {}});
        for (const auto& row : block.rows) plot.curves.back().points.emplace_back(row[0], row[1]);
    }
    plot.blocks.push_back(std::move(block));
}

void Curves::add_to_legend(const Style& style, const std::string& title) {
    parts_.push_back(fmt::format("NaN {} title {}", style.gnuplot(), gnuplot_string(title)));
    plot.legend.emplace_back(style, title);
}

std::vector<double> Curves::values() const {
    std::vector<double> all;
    for (const Block& block : plot.blocks)
        for (const auto& row : block.rows) all.insert(all.end(), row.begin() + 1, row.end());
    return all;
}

Plot Curves::done(const std::string& x, const std::string& y, const std::string& ranges) {
    plot.x_name = x;
    plot.y_name = y;
    plot.script = fmt::format("{}{}plot {}\n", axes(x, y), ranges, fmt::join(parts_, ", \\\n     "));
    return std::move(plot);
}

std::string data_text(const Plot& plot) {
    std::string text;
    for (const Block& block : plot.blocks) {
        if (!text.empty()) text += "\n\n";  // gnuplot's border between two blocks
        text += "# " + clean_text(block.title) + "\n#";
        for (const std::string& column : block.columns) text += " " + column;
        text += "\n";
        for (const auto& row : block.rows) {
            for (std::size_t c = 0; c < row.size(); ++c)
                text += (c > 0 ? " " : "") + (std::isfinite(row[c]) ? fmt::format("{:.7g}", row[c]) : "NaN");
            text += "\n";
        }
    }
    return text;
}

Curve thin(const Curve& curve, std::size_t most) {
    if (curve.size() <= most || most < 4) return curve;
    Curve thinned = {curve.front()};
    const std::size_t stretches = (most - 2) / 2, inner = curve.size() - 2;
    for (std::size_t s = 0; s < stretches; ++s) {
        const std::size_t first = 1 + s * inner / stretches, end = 1 + (s + 1) * inner / stretches;
        std::size_t low = first, high = first;
        for (std::size_t i = first; i < end; ++i) {
            if (curve[i].second < curve[low].second) low = i;
            if (curve[i].second > curve[high].second) high = i;
        }
        thinned.push_back(curve[std::min(low, high)]);
        if (low != high) thinned.push_back(curve[std::max(low, high)]);
    }
    thinned.push_back(curve.back());
    return thinned;
}

Curve smoothed(const Curve& curve, double width) {
    Curve result(curve.size());
    // Sums of weighted values and of weights up to each point, from the left and then from the right.
    for (const bool from_left : {true, false}) {
        double values = 0, weights = 0, before = 0;
        for (std::size_t n = 0; n < curve.size(); ++n) {
            const std::size_t i = from_left ? n : curve.size() - 1 - n;
            const auto [at, value] = curve[i];
            const double kept = n == 0 ? 0 : std::exp(-std::abs(at - before) / width);
            values = values * kept + value;
            weights = weights * kept + 1;
            before = at;
            if (from_left)
                result[i] = {weights, values};
            else  // the point itself is in both
                result[i] = {at, (result[i].second + values - value) / (result[i].first + weights - 1)};
        }
    }
    return result;
}

std::vector<std::vector<double>> band(const Curve& curve, std::size_t most) {
    std::vector<std::vector<double>> rows;
    const std::size_t stretches = std::min(curve.size(), most);
    for (std::size_t s = 0; s < stretches; ++s) {
        const std::size_t first = s * curve.size() / stretches, end = (s + 1) * curve.size() / stretches;
        double low = curve[first].second, high = low;
        for (std::size_t i = first; i < end; ++i) {
            low = std::min(low, curve[i].second);
            high = std::max(high, curve[i].second);
        }
        rows.push_back({curve[first].first, low, high});
        if (end - first > 1) rows.push_back({curve[end - 1].first, low, high});
    }
    return rows;
}

Style line_style(std::size_t index) {
    Style style;
    style.colour = line_colours[index % line_colours.size()];
    style.dash = static_cast<int>(index % 5) + 1;
    return style;
}

Style line_and_points_style(std::size_t index) {
    constexpr int points[] = {7, 5, 9, 13, 6, 4, 8};
    Style style = line_style(index);
    style.shape = Style::Shape::line_and_points;
    style.point = points[index % 7];
    return style;
}

std::string axes(const std::string& x, const std::string& y) {
    return fmt::format(
        "set border 3 lc rgb '{}'\n"
        "set tics nomirror scale 0.5 textcolor rgb '{}'\n"
        "set grid xtics ytics lc rgb '{}' lt 1 lw 0.7\n"
        "set xlabel {} offset 0,0.4 textcolor rgb '{}'\n"
        "set ylabel {} textcolor rgb '{}'\n",
        frame_colour, word_colour, grid_colour, gnuplot_string(x), word_colour, gnuplot_string(y), word_colour);
}

FileLegend file_legend(const Plot& plot) {
    constexpr double size = 12, letter = 0.64 * size, sample = 50;
    FileLegend legend;
    legend.whole = plot.height;
    if (plot.legend.empty()) {
        legend.script = "unset key\n";
        return legend;
    }
    std::size_t longest = 1;
    for (const auto& entry : plot.legend) longest = std::max(longest, clean_text(entry.second).size());
    const std::size_t columns = std::clamp<std::size_t>(
        static_cast<std::size_t>((plot.width - 20) / (letter * static_cast<double>(longest) + sample)), 1, 4);
    const std::size_t rows = (plot.legend.size() + columns - 1) / columns;
    legend.height = static_cast<int>(std::lround(static_cast<double>(rows) * size * 1.4 + 14));
    legend.whole = std::max(plot.height + legend.height, 3 * legend.height);
    legend.script = fmt::format(
        "set key at screen 0.02, screen {:.5f} left top vertical maxrows {} Left reverse samplen 2 spacing 1 font "
        "',{:g}' textcolor rgb '{}' noautotitle\n",
        static_cast<double>(legend.height) / legend.whole, rows, size, word_colour);
    return legend;
}

}  // namespace lockstep::analysis
