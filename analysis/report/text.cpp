#include "analysis/report/text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr const char* replacement = "\xEF\xBF\xBD";
constexpr const char* dash = "\xE2\x80\x93";
constexpr const char* ellipsis = "\xE2\x80\xA6";

// Bytes of the character at the beginning; 0 where there is none. Overlong forms, surrogates, what is beyond U+10FFFF
// and what XML does not allow (U+FFFE, U+FFFF) are none.
std::size_t character_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const std::size_t bytes = byte(0) < 0x80 ? 1 : byte(0) >> 5 == 6 ? 2 : byte(0) >> 4 == 14 ? 3 : 4;
    if (bytes == 1) return 1;
    if (bytes == 4 && byte(0) >> 3 != 30) return 0;
    if (text.size() < bytes) return 0;
    std::uint32_t code = byte(0) & (0x7fu >> bytes);
    for (std::size_t i = 1; i < bytes; ++i) {
        if (byte(i) >> 6 != 2) return 0;
        code = code << 6 | (byte(i) & 0x3fu);
    }
    constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < smallest[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    if (code == 0xfffe || code == 0xffff) return 0;
    return bytes;
}

// Characters that reorder or hide what stands beside them on the line: C1 controls, separators, directions.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    if (character.size() == 2) return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
    if (character.substr(0, 2) == "\xE2\x80") {
        const auto last = static_cast<unsigned char>(character[2]);
        return last >= 0xa8 && last <= 0xae;  // U+2028 to U+202E
    }
    return character.substr(0, 2) == "\xE2\x81" && static_cast<unsigned char>(character[2]) >= 0xa6 &&
           static_cast<unsigned char>(character[2]) <= 0xa9;  // U+2066 to U+2069
}

std::vector<std::string> characters_of(std::string_view text) {
    std::vector<std::string> characters;
    while (!text.empty()) {
        const std::size_t bytes = character_bytes(text);
        if (bytes == 0)
            characters.emplace_back(replacement);
        else if (is_control(text.substr(0, bytes)))
            characters.emplace_back(" ");
        else
            characters.emplace_back(text.substr(0, bytes));
        text.remove_prefix(bytes == 0 ? 1 : bytes);
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
