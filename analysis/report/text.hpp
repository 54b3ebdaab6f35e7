// Text from outside (run names, hosts, paths), escaped for where it is printed.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::analysis {

// Valid UTF-8 on one line: invalid bytes become U+FFFD, control characters become spaces.
std::string clean_text(std::string_view text);
// For HTML and XML, in text and between double quotes; cleaned first.
std::string escape_markup(std::string_view text);
// A gnuplot string in single quotes, in which gnuplot expands nothing; cleaned first.
std::string gnuplot_string(std::string_view text);
// The same as the label of an axis' tic, where gnuplot reads % as the beginning of a number's format.
std::string gnuplot_tic(std::string_view text);
// At most that many letters wide; longer text loses its middle.
std::string shorten(std::string_view text, std::size_t most);

// A number as a reader wants it: about three digits, a dash where it is unknown.
std::string short_number(double value);
std::string percent(double share);  // "67 %"
// Seconds with three digits and their unit; "µs", "ms", "s"; long ones in s, with commas.
std::string short_seconds(double seconds);
// "136.8 to 137.2 ms": with a digit more, so that the two differ.
std::string seconds_interval(double low, double high);

}  // namespace lockstep::analysis
