#include "analysis/report/colours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace lockstep::analysis {
namespace {

bool same(std::string_view one, std::string_view other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
}

// "rgb( 85,  85,  85)" or "rgb(34,34,34)" as #555555 or #222222; "" if it is neither.
std::string hexadecimal(std::string_view rgb) {
    std::string hex = "#", number;
    int parts = 0;
    for (const char letter : rgb) {
        if (letter >= '0' && letter <= '9') number += letter;
        if (letter != ',' && letter != ')') continue;
        if (number.empty() || number.size() > 3) return "";
        hex += fmt::format("{:02x}", std::atoi(number.c_str()));
        number.clear();
        ++parts;
    }
    return parts == 3 ? hex : "";
}

}  // namespace

const std::vector<SchemeColour> scheme_colours = {
    {"blue", "#0072B2", "#4DA3FF"},    {"vermilion", "#D55E00", "#FF8A50"}, {"green", "#00855F", "#2FCB9C"},
    {"pink", "#B0588A", "#E79CC8"},    {"black", "#000000", "#F2F4F6"},     {"orange", "#A87100", "#F0B429"},
    {"sky", "#3A8FC4", "#9BDCFF"},     {"frame", frame_colour, "#8b959e"},  {"grid", grid_colour, "#333a41"},
    {"words", word_colour, "#d5dade"}, {"outline", "#444444", "#9aa4ad"},   {"deep", "#0B4A6F", "#2E6A96"},
};

const std::vector<std::string> line_colours = {"#0072B2", "#D55E00", "#00855F", "#B0588A",
                                               "#000000", "#A87100", "#3A8FC4"};

std::string scheme_variables(bool dark) {
    std::string variables;
    for (const SchemeColour& colour : scheme_colours)
        variables += fmt::format(" --{}: {};", colour.name, dark ? colour.dark : colour.light);
    return variables;
}

std::string in_scheme(const std::string& colour) {
    for (const SchemeColour& known : scheme_colours)
        if (same(known.light, colour)) return fmt::format("var(--{})", known.name);
    return colour;
}

std::string with_scheme_colours(const std::string& svg) {
    std::string out;
    std::size_t done = 0;
    for (std::size_t at = svg.find("rgb("); at != std::string::npos; at = svg.find("rgb(", done)) {
        const std::size_t end = svg.find(')', at);
        if (end == std::string::npos) break;
        out += svg.substr(done, at - done);
        const std::string words = svg.substr(at, end + 1 - at), hex = hexadecimal(words);
        const std::string variable = in_scheme(hex);
        const bool in_tag = svg.find_last_of("<>", at) != std::string::npos && svg[svg.find_last_of("<>", at)] == '<';
        out += variable == hex || !in_tag ? words : variable;
        done = end + 1;
    }
    return out + svg.substr(done);
}

}  // namespace lockstep::analysis
