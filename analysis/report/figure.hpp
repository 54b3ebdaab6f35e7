// A plot as a figure of the page: the drawing, its legend, what it says of what is pointed at, and the caption.
#pragma once

#include <string>

#include "analysis/report/gnuplot.hpp"

namespace lockstep::analysis {

std::string figure_markup(const Plot& plot, const Drawing& drawing);

}  // namespace lockstep::analysis
