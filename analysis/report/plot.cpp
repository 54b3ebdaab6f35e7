#include "analysis/report/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/output/values.hpp"
#include "analysis/report/text.hpp"

namespace lockstep::analysis {

const std::vector<std::string> line_colours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                               "#000000", "#E69F00", "#56B4E9"};

Plot Plot::without(const std::string& reason, const std::string& name, const std::string& title) {
    Plot plot;
    plot.name = name;
    plot.title = title;
    plot.missing = reason;
    return plot;
}

void Curves::add(Block block, const std::string& drawing, const std::string& title) {
    if (block.rows.empty()) return;
    parts_.push_back(fmt::format("data index {} {} title {}", plot.blocks.size(), drawing, gnuplot_string(title)));
    plot.blocks.push_back(std::move(block));
    titles_ += title.empty() ? 0 : 1;
}

void Curves::add_to_legend(const std::string& drawing, const std::string& title) {
    parts_.push_back(fmt::format("NaN {} title {}", drawing, gnuplot_string(title)));
    ++titles_;
}

Plot Curves::done(const std::string& before) {
    plot.height += legend_height(titles_);
    plot.script = fmt::format("{}plot {}\n", before, fmt::join(parts_, ", \\\n     "));
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

std::string line_and_dash(std::size_t index) {
    return fmt::format("lc rgb '{}' lw 2.2 dt {}", line_colours[index % line_colours.size()], index % 5 + 1);
}

std::string line_style(std::size_t index) {
    // gnuplot's dash types 1 to 5; points: filled circle, square, triangle, diamond, then the open ones.
    constexpr int points[] = {7, 5, 9, 13, 6, 4, 8};
    return fmt::format("{} pt {} ps 0.8", line_and_dash(index), points[index % 7]);
}

std::string axes(const std::string& x, const std::string& y) {
    return fmt::format(
        "set border 3 lc rgb '#555555'\n"
        "set tics nomirror scale 0.5 textcolor rgb '#222222'\n"
        "set grid xtics ytics lc rgb '#dddddd' lt 1 lw 0.7\n"
        "set key above left vertical maxcols 1 Left reverse samplen 3 spacing 1.1 noautotitle\n"
        "set xlabel {} offset 0,0.4\n"
        "set ylabel {}\n",
        gnuplot_string(x), gnuplot_string(y));
}

std::string rank_tics(const std::vector<double>& ranks) {
    std::string tics;
    // At most one tic per 0.3 doublings, so that labels do not overlap.
    double last = 0;
    const double apart = std::max(0.3, std::log2(ranks.back() / ranks.front()) / 12);
    for (const double rank : ranks) {
        if (last > 0 && std::log2(rank / last) < apart) continue;
        tics += fmt::format("{}{} {:g}", tics.empty() ? "" : ", ", gnuplot_tic(fmt::format("{:g}", rank)), rank);
        last = rank;
    }
    return fmt::format("set logscale x 2\nset xtics ({})\nset xrange [{:g}:{:g}]\n", tics, ranks.front() / 1.1,
                       ranks.back() * 1.1);
}

std::string step_tics(std::int64_t first, std::int64_t last, int width) {
    const double low = static_cast<double>(first) - 1, high = static_cast<double>(last);
    constexpr double digit = 0.57 * font_size, margins = 90;  // pixels; what stands left and right of the axis
    const double label = digit * static_cast<double>(whole_words(high).size() + 2);
    const double least = (high - low) * label / (width - margins);
    double decade = 1, apart = 1;
    while (10 * decade < least) decade *= 10;
    for (const double factor : {10.0, 5.0, 2.0, 1.0})
        if (factor * decade >= least) apart = factor * decade;
    std::string tics;
    const double start = std::ceil(low / apart) * apart;
    const auto count = static_cast<int>((high - start) / apart);  // few: they have `least` between them
    for (int i = 0; i <= count; ++i) {
        const double tic = start + i * apart;
        tics += fmt::format("{}{} {:.0f}", tics.empty() ? "" : ", ", gnuplot_tic(whole_words(tic)), tic);
    }
    return fmt::format("set xtics ({})\nset xrange [{:.0f}:{:.0f}]\n", tics, low, high);
}

int legend_height(std::size_t entries) {
    return static_cast<int>(std::lround(static_cast<double>(entries) * font_size * 1.25));
}

}  // namespace lockstep::analysis
