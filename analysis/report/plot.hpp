// A plot before it is drawn: gnuplot commands and their data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::analysis {

// Numbers that gnuplot reads as `data index N`.
struct Block {
    std::string title;                 // a run, a law
    std::vector<std::string> columns;  // snake_case
    std::vector<std::vector<double>> rows;
};

// How a curve looks, in a drawing and in a legend.
struct Style {
    enum class Shape { line, points, line_and_points, band, box } shape = Shape::line;
    std::string colour;       // #rrggbb
    double width = 2.2;       // of the line, pixels
    int dash = 1, point = 7;  // gnuplot's numbers
    double point_size = 0.8, opacity = 1;
    std::string gnuplot() const;  // "with lines lc …"
    std::string swatch() const;   // SVG, in the colours of the page
};

using Curve = std::vector<std::pair<double, double>>;

// What a page says of what is pointed at, in the coordinates of the axes.
struct HoverCurve {
    std::string title;
    Curve points;
};
struct HoverBox {
    double left, right, bottom, top;
    std::string words;
};
// A heat map: cells from -0.5, rows from the top.
struct HoverCells {
    std::vector<std::int64_t> first_step, first_rank;  // of each column and row
    std::int64_t last_step = 0, last_rank = 0;
    std::vector<double> values;  // [rows, columns]
    std::string unit;
};

struct Plot {
    std::string name;               // of its files, and what its ids in the page begin with: a letter, then [a-z0-9-]
    std::string title;              // a few words
    std::string caption;            // a sentence or two: what is to be seen, in which units
    std::string missing;            // why there is nothing to draw, in a sentence; then nothing below counts
    int width = 480, height = 320;  // without the legend, which a file has below, and a page beside its drawings
    std::string script;             // draws from the blocks of the string `data`
    std::vector<Block> blocks;
    std::vector<std::pair<Style, std::string>> legend;
    std::string x_name, y_name;  // of what stands at a point of its curves
    std::vector<HoverCurve> curves;
    std::vector<HoverBox> boxes;
    HoverCells cells;

    static Plot without(const std::string& reason, const std::string& name, const std::string& title);
};

// Curves over one another, those with a title in the legend.
struct Curves {
    Plot plot;
    // A block without rows is left out. `columns`: gnuplot's "using …" where the block has more than two. What is
    // pointed at is called `hover`, and left out where that is empty.
    void add(Block block, const Style& style, const std::string& title, const std::string& hover,
             const std::string& columns = "");
    void add_to_legend(const Style& style, const std::string& title);  // what several curves have in common
    std::vector<double> values() const;                                // of all blocks
    // `ranges`: commands that set ranges and tics.
    Plot done(const std::string& x, const std::string& y, const std::string& ranges);

  private:
    std::vector<std::string> parts_;
};

// Wide enough to be read at 360 pixels, where a plot is shown at two thirds of its size.
inline constexpr int font_size = 15;

// All of the blocks as gnuplot reads them, with their titles as comments.
std::string data_text(const Plot& plot);

// At most about `most` of the points, in their order: of each of equal stretches the lowest and the highest, so that no
// peak is lost; the first and the last stay.
Curve thin(const Curve& curve, std::size_t most);
// At each point the mean of all with weights exp(-|distance| / width): centred, so that nothing is delayed, and
// one-sided at the ends.
Curve smoothed(const Curve& curve, double width);
// For filledcurves: where each of at most `most` equal stretches begins and ends, with its lowest and its highest
// value.
std::vector<std::vector<double>> band(const Curve& curve, std::size_t most);

// Colours, dashes and points all differ.
Style line_style(std::size_t index);
Style line_and_points_style(std::size_t index);

// The beginning of each plot of curves: a light grid, no frame but the axes.
std::string axes(const std::string& x, const std::string& y);

// The legend of a file, below the axes: its height, and the commands that place it. Together with the plot it is as
// high as `whole`, of which it takes a third at most.
struct FileLegend {
    int height = 0, whole = 0;
    std::string script;
};
FileLegend file_legend(const Plot& plot);

}  // namespace lockstep::analysis
