#include "analysis/report/figure.hpp"

#include <fmt/format.h>

#include <cmath>

#include "analysis/report/text.hpp"

namespace lockstep::analysis {
namespace {

std::string legend_markup(const Plot& plot) {
    if (plot.legend.empty()) return "";
    std::string markup = "<ul class=\"legend\">\n";
    for (const auto& [style, title] : plot.legend)
        markup += fmt::format("<li>{}<span>{}</span></li>\n", style.swatch(), escape_markup(title));
    return markup + "</ul>\n";
}

// Lines, each of which may hold a name from outside.
std::string escape_lines(std::string_view words) {
    std::string markup;
    while (true) {
        const std::size_t end = words.find('\n');
        markup += escape_markup(words.substr(0, end));
        if (end == std::string_view::npos) return markup;
        markup += "&#10;";
        words.remove_prefix(end + 1);
    }
}

// What the page's script reads (page_script.hpp): data, nothing that runs.
std::string hover_markup(const Plot& plot) {
    std::string markup;
    for (const HoverCurve& curve : plot.curves) {
        std::string points;
        for (const auto& [x, y] : curve.points)
            if (std::isfinite(x) && std::isfinite(y))
                points += fmt::format("{}{:.7g} {:.5g}", points.empty() ? "" : " ", x, y);
        markup += fmt::format("<i data-curve=\"{}\" data-points=\"{}\"></i>\n", escape_markup(curve.title), points);
    }
    for (const HoverBox& box : plot.boxes)
        markup += fmt::format("<i data-box=\"{:.6g} {:.6g} {:.6g} {:.6g}\" data-words=\"{}\"></i>\n", box.left,
                              box.right, box.bottom, box.top, escape_lines(box.words));
    if (!plot.cells.values.empty()) {
        std::string values;
        for (const double value : plot.cells.values)
            values += (values.empty() ? "" : " ") + (std::isfinite(value) ? fmt::format("{:.4g}", value) : "-");
        const auto numbers = [](std::vector<std::int64_t> first, std::int64_t last) {
            first.push_back(last + 1);
            return fmt::format("{}", fmt::join(first, " "));
        };
        markup += fmt::format("<i data-steps=\"{}\" data-ranks=\"{}\" data-unit=\"{}\" data-values=\"{}\"></i>\n",
                              numbers(plot.cells.first_step, plot.cells.last_step),
                              numbers(plot.cells.first_rank, plot.cells.last_rank), plot.cells.unit, values);
    }
    return markup;
}

}  // namespace

std::string figure_markup(const Plot& plot, const Drawing& drawing) {
    const Area& area = drawing.area;
    std::string axes, hover;
    if (area.right > area.left) {  // gnuplot has said where they are
        axes = fmt::format(
            " data-area=\"{:g} {:g} {:g} {:g}\" data-x=\"{:.9g} {:.9g} {:d}\" data-y=\"{:.9g} {:.9g} {:d}\"", area.left,
            area.right, area.bottom, area.top, area.x_low, area.x_high, area.x_logarithmic, area.y_low, area.y_high,
            area.y_logarithmic);
        axes += fmt::format(" data-names=\"{}|{}\"", escape_markup(plot.x_name), escape_markup(plot.y_name));
        hover = hover_markup(plot);
        if (!hover.empty()) hover = "<div hidden=\"hidden\">\n" + hover + "</div>\n";
    }
    return fmt::format("<figure{}>\n{}{}{}<figcaption><b>{}.</b> {}</figcaption>\n</figure>\n",
                       hover.empty() ? "" : axes, inline_svg(drawing.svg, plot), legend_markup(plot), hover,
                       escape_markup(plot.title), escape_markup(plot.caption));
}

}  // namespace lockstep::analysis
