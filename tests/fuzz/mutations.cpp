#include "fuzz/mutations.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace lockstep::fuzz {
namespace {

constexpr std::size_t longest = std::size_t{1} << 18, longest_piece = 64;

// Where readers' sums and comparisons are most likely to be wrong.
constexpr std::array<std::uint64_t, 16> numbers = {0,
                                                   1,
                                                   2,
                                                   0x7f,
                                                   0x80,
                                                   0xff,
                                                   0x7fff,
                                                   0xffff,
                                                   0x10000,
                                                   0x7fffffff,
                                                   0x80000000,
                                                   0xffffffff,
                                                   std::uint64_t{1} << 53,
                                                   0x7fffffffffffffff,
                                                   0x8000000000000000,
                                                   0xffffffffffffffff};
constexpr std::array<const char*, 12> words = {"-1",  "-0",  "1e400", "-1e400",      "1e-400", "0.5",
                                               "nan", "inf", "null",  "\"\\ud800\"", "{}",     "[]"};

}  // namespace

std::string Mutations::piece_of(const std::string& text) {
    if (text.empty()) return {};
    const std::size_t from = below(text.size());
    return text.substr(from, 1 + below(longest_piece));
}

// A number written out, replaced by another, by a word that is none, or by lists in each other.
void Mutations::change_number(std::string& text) {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    const auto begin =
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(below(text.size())), text.end(), is_digit);
    const auto end = std::find_if_not(begin, text.end(), is_digit);
    if (begin == text.end()) return;
    if (below(128) == 0) {
        const std::size_t levels = std::size_t{1} << below(17);
        text.replace(begin, end, std::string(levels, '[') + std::string(levels, ']'));
        return;
    }
    const std::size_t choice = below(numbers.size() + words.size());
    text.replace(begin, end,
                 choice < numbers.size() ? std::to_string(numbers[choice]) : words[choice - numbers.size()]);
}

void Mutations::change(std::string& text) {
    if (text.empty()) {
        text = piece_of(any());
        return;
    }
    const std::size_t at = below(text.size());
    switch (below(10)) {
        case 0:
            text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
            break;
        case 1:
            text[at] = static_cast<char>(random_());
            break;
        case 2: {
            const std::size_t width = std::min(std::size_t{1} << below(4), text.size() - at);
            const std::uint64_t number = numbers[below(numbers.size())];
            std::memcpy(text.data() + at, &number, width);
            break;
        }
        case 3:
        case 4:
            change_number(text);
            break;
        case 5:
            text.erase(at, 1 + below(longest_piece));
            break;
        case 6:
            text.insert(at, piece_of(text));
            break;
        case 7:
            text.insert(at, piece_of(any()));
            break;
        case 8: {
            const std::string piece = piece_of(any());
            text.replace(at, piece.size(), piece);
            break;
        }
        default:
            if (below(8) == 0) text.resize(at);
    }
}

std::string Mutations::next() {
    std::string text = any();
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) change(text);
    if (text.size() > longest) text.resize(longest);
    return text;
}

}  // namespace lockstep::fuzz
