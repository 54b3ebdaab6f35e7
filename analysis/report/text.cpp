#include "analysis/report/text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/format.hpp"
#include "base/utf8.hpp"

namespace lockstep::analysis {
namespace {

constexpr const char* replacement = "\xEF\xBF\xBD";
constexpr const char* dash = "\xE2\x80\x93";
constexpr const char* ellipsis = "\xE2\x80\xA6";

// XML does not allow the last two.
bool is_allowed(const Character& character) {
    return character.bytes > 0 && character.code != 0xfffe && character.code != 0xffff;
}

// Characters that reorder or hide what stands beside them on the line: controls, separators, directions.
bool is_control(std::uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

std::vector<std::string> characters_of(std::string_view text) {
    std::vector<std::string> characters;
    while (!text.empty()) {
        const Character character = first_character(text);
        if (!is_allowed(character))
            characters.emplace_back(replacement);
        else if (is_control(character.code))
            characters.emplace_back(" ");
        else
            characters.emplace_back(text.substr(0, character.bytes));
        text.remove_prefix(is_allowed(character) ? character.bytes : 1);
    }
    return characters;
}

}  // namespace

std::string clean_text(std::string_view text) {
    std::string clean;
    for (const std::string& character : characters_of(text)) clean += character;
    return clean;
}

std::string escape_markup(std::string_view text) {
    std::string out;
    for (const char letter : clean_text(text)) switch (letter) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += letter;
        }
    return out;
}

std::string gnuplot_string(std::string_view text) {
    std::string out = "'";
    for (const char letter : clean_text(text)) {
        // gnuplot writes > as it is, which XML forbids after two brackets.
        if (letter == '>' && out.size() > 2 && out.compare(out.size() - 2, 2, "]]") == 0) out += ' ';
        out += letter == '\'' ? "''" : std::string(1, letter);
    }
    return out + "'";
}

std::string gnuplot_tic(std::string_view text) {
    std::string doubled;
    for (const char letter : text) doubled += letter == '%' ? "%%" : std::string(1, letter);
    return gnuplot_string(doubled);
}

std::string shorten(std::string_view text, std::size_t most) {
    const std::vector<std::string> characters = characters_of(text);
    // East Asian characters and pictures are about twice as wide as letters.
    const auto width = [](const std::string& character) -> std::size_t {
        const auto lead = static_cast<unsigned char>(character[0]);
        return character.size() == 4 || (lead >= 0xe3 && lead <= 0xed) ? 2 : 1;
    };
    std::size_t whole = 0;
    for (const std::string& character : characters) whole += width(character);
    std::string head, tail;
    if (whole <= most) {
        for (const std::string& character : characters) head += character;
        return head;
    }
    std::size_t left = most - 1, first = 0, last = characters.size();
    while (first < last) {
        const bool in_front = first <= characters.size() - last;
        const std::string& next = in_front ? characters[first] : characters[last - 1];
        if (width(next) > left) break;
        left -= width(next);
        if (in_front)
            head += next, ++first;
        else
            tail.insert(0, next), --last;
    }
    return head + ellipsis + tail;
}

std::string short_number(double value) {
    if (!std::isfinite(value)) return dash;
    const double size = std::abs(value);
    if (size >= 1000) return with_commas(std::llround(value));
    if (size >= 100) return fmt::format("{:.0f}", value);
    if (size >= 10) return fmt::format("{:.1f}", value);
    if (size >= 0.1 || size == 0) return fmt::format("{:.2f}", value);
    return fmt::format("{:.2g}", value);
}

std::string percent(double share) {
    if (!std::isfinite(share)) return dash;
    const double size = std::abs(100 * share);
    return fmt::format("{:.{}f} %", 100 * share, size > 0 && size < 10 ? 1 : 0);
}

std::string short_seconds(double seconds) {
    if (!std::isfinite(seconds)) return dash;
    if (seconds == 0) return "0 s";
    const auto three = [](double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); };
    if (seconds < 1e-3) return three(seconds * 1e6) + " \xC2\xB5s";
    if (seconds < 1) return three(seconds * 1e3) + " ms";
    if (seconds < 1000) return three(seconds) + " s";
    return with_commas(std::llround(seconds)) + " s";
}

std::string seconds_interval(double low, double high) {
    if (!std::isfinite(low) || !std::isfinite(high)) return dash;
    const double unit = high < 1e-3 ? 1e-6 : high < 1 ? 1e-3 : 1;
    const double size = high / unit;
    const int decimals = size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0;
    return fmt::format("{:.{}f} to {:.{}f} {}", low / unit, decimals, high / unit, decimals,
                       unit == 1      ? "s"
                       : unit == 1e-3 ? "ms"
                                      : "\xC2\xB5s");
}

}  // namespace lockstep::analysis
