// gnuplot, run as a program of its own: its commands and data on its standard input, the drawing on its output.
#pragma once

#include <string>

#include "analysis/report/plot.hpp"

namespace lockstep::analysis {

// Whether the search path has gnuplot.
bool gnuplot_found();

// The drawing as a file of its own (SVG). A fault, with gnuplot's own words, where it fails.
std::string draw(const Plot& plot);

// The same to stand within a page: without the XML declaration, names of namespaces and tooltips, with ids that begin
// with the plot's name, as wide as its container, and with the plot's title for screen readers.
std::string inline_svg(const std::string& svg, const Plot& plot);

// FOLDER/NAME.svg, NAME.gp and NAME.dat: `gnuplot NAME.gp` in that folder makes the first from the others.
void write_plot(const std::string& folder, const Plot& plot, const std::string& svg);

}  // namespace lockstep::analysis
