// gnuplot, run as a separate program: its commands and data on its standard input, the drawing on its output.
#pragma once

#include <string>

#include "analysis/report/plot.hpp"

namespace lockstep::analysis {

// Whether the search path has gnuplot.
bool gnuplot_found();

// Where the axes are in a drawing, in its pixels from the top left, and what they range over.
struct Area {
    double left = 0, right = 0, bottom = 0, top = 0;
    double x_low = 0, x_high = 0, y_low = 0, y_high = 0;
    bool x_logarithmic = false, y_logarithmic = false;
};

struct Drawing {
    std::string svg;
    Area area;
};

// The drawing for a page: without paper and legend, which are the page's. A fault, with gnuplot's own words, where it
// fails.
Drawing draw(const Plot& plot);

// The same to stand within a page, in the page's colours: without the XML declaration, names of namespaces and
// tooltips, with ids that begin with the plot's name, as wide as its container, and with the plot's title for screen
// readers.
std::string inline_svg(const std::string& svg, const Plot& plot);

// FOLDER/NAME.svg, NAME.gp and NAME.dat, black on white with its legend: `gnuplot NAME.gp` in that folder makes the
// first from the others.
void write_plot(const std::string& folder, const Plot& plot);

}  // namespace lockstep::analysis
