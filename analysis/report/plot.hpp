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

struct Plot {
    std::string name;     // of its files, and what its ids in the page begin with: a letter, then [a-z0-9-]
    std::string title;    // a few words
    std::string caption;  // a sentence or two: what is to be seen, in which units
    std::string missing;  // why there is nothing to draw, in a sentence; then nothing below counts
    int width = 480, height = 330;
    std::string script;  // draws from the blocks of the string `data`
    std::vector<Block> blocks;

    static Plot without(const std::string& reason, const std::string& name, const std::string& title);
};

// Curves over one another, those with a title in the legend.
struct Curves {
    Plot plot;
    // `drawing`: how gnuplot draws the block, "with lines …". A block without rows is left out.
    void add(Block block, const std::string& drawing, const std::string& title);
    void add_to_legend(const std::string& drawing, const std::string& title);  // what several curves have in common
    Plot done(const std::string& before);                                      // `before`: commands for axes and keys

  private:
    std::vector<std::string> parts_;
    std::size_t titles_ = 0;
};

// Wide enough to be read at 360 pixels, where a plot is shown at two thirds of its size.
inline constexpr int font_size = 15;

// All of the blocks as gnuplot reads them, with their titles as comments.
std::string data_text(const Plot& plot);

// At most about `most` of the points, in their order: of each of equal stretches the lowest and the highest, so that no
// peak is lost; the first and the last stay.
using Curve = std::vector<std::pair<double, double>>;
Curve thin(const Curve& curve, std::size_t most);
// At each point the mean of all with weights exp(-|distance| / width): centred, so that nothing is delayed, and
// one-sided at the ends.
Curve smoothed(const Curve& curve, double width);
// For filledcurves: where each of at most `most` equal stretches begins and ends, with its lowest and its highest
// value.
std::vector<std::vector<double>> band(const Curve& curve, std::size_t most);

// Colours that people with colour-blindness tell apart (Okabe and Ito 2008), without its yellow, which is too light
// for lines; from dark to light as far as their order allows.
extern const std::vector<std::string> line_colours;
// "lc rgb '…' lw 2.5 dt … pt … ps 0.9": colours, dashes and points all differ.
std::string line_style(std::size_t index);
std::string line_and_dash(std::size_t index);  // without the points

// The beginning of each plot of curves: a light grid, no frame but the axes, the legend above.
std::string axes(const std::string& x, const std::string& y);
// A logarithmic axis (base 2) for numbers of ranks, with a tic at each.
std::string rank_tics(const std::vector<double>& ranks);
// An axis of steps from first to last, whose labels do not touch in a plot of this width.
std::string step_tics(std::int64_t first, std::int64_t last, int width);
// What the legend adds to a plot's height.
int legend_height(std::size_t entries);

}  // namespace lockstep::analysis
