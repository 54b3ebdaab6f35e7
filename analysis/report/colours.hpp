// Colours on light and on dark paper.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::analysis {

// A colour as gnuplot is told it, which is also what is printed, and what stands for it on a dark page.
struct SchemeColour {
    const char *name, *light, *dark;
};

// Of everything but the fills of shares and heat maps, which carry their own words or scale and are the same on both.
extern const std::vector<SchemeColour> scheme_colours;
inline constexpr const char *light_paper = "#ffffff", *dark_paper = "#16191c";

// Told apart by people with colour-blindness, from dark to light as far as their order allows: those of Okabe and Ito
// (2008), the lighter ones darkened until they stand out as lines on white paper.
extern const std::vector<std::string> line_colours;

inline constexpr const char *frame_colour = "#555555", *grid_colour = "#dddddd", *word_colour = "#222222";

// "--blue: #0072B2; …" of one of the schemes.
std::string scheme_variables(bool dark);
// The variable that stands for a colour, "var(--blue)"; a colour without one is given back.
std::string in_scheme(const std::string& colour);
// A drawing of gnuplot's in the page's colours.
std::string with_scheme_colours(const std::string& svg);

}  // namespace lockstep::analysis
