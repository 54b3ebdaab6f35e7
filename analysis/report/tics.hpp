// Where an axis is labelled: round numbers whose labels do not touch, whatever the range.
#pragma once

#include <string>
#include <vector>

namespace lockstep::analysis {

enum class Side { below, left };  // labels side by side, or one above the other

struct AxisRange {
    double low, high;
    bool logarithmic = false;
    bool whole = false;  // counts: nothing between 1 and 2
    double pixels = 0;   // the axis' length; 0 for that of a plot of the usual size
};

struct Tic {
    double at;
    std::string words;
};

// What is added to or subtracted from a plot's size to get the length of its axes.
inline constexpr int space_left = 90, space_right = 34, space_below = 58, space_above = 12;

double width_in_pixels(const std::string& label);
// Pixels from the axis' beginning.
double position(const AxisRange& scale, double value);
// Multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis of more than a decade 1, 2 and 5 times powers of
// ten, or powers of ten.
std::vector<Tic> round_tics(const AxisRange& scale, Side side);
// Of numbers of ranks on a logarithmic axis: those that there are, if all are round and there is room; or powers of
// two.
std::vector<Tic> rank_tics(const AxisRange& scale, const std::vector<double>& ranks);

// gnuplot's list: "('0' 0, '2,000' 2000)".
std::string tic_list(const std::vector<Tic>& tics);
// Commands that set range, scale and tics of the axis below or left.
std::string axis(const AxisRange& scale, Side side);
std::string rank_axis(const std::vector<double>& ranks);
// From the lowest to the highest of these values, and a little more.
AxisRange around(const std::vector<double>& values, bool logarithmic);

}  // namespace lockstep::analysis
