#include "ptx/lexer.hpp"

#include <array>

#include "base/error.hpp"

namespace lockstep::ptx {

namespace {

constexpr std::array<bool, 256> word_table() {
    std::array<bool, 256> result{};
    for (int c = '0'; c <= '9'; ++c) result[c] = true;
    for (int c = 'a'; c <= 'z'; ++c) result[c] = result[c - 'a' + 'A'] = true;
    for (const char c : {'_', '$', '%', '.'}) result[c] = true;
    return result;
}
constexpr std::array<bool, 256> in_word = word_table();

bool is_word(char c) {
    return in_word[static_cast<unsigned char>(c)];
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> result;
    result.reserve(text.size() / 4);
    int line = 1;
    const std::size_t size = text.size();
    for (std::size_t i = 0; i < size;) {
        const char c = text[i];
        const char next = i + 1 < size ? text[i + 1] : '\0';
        if (c == '\n') {
            ++line;
            ++i;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            ++i;
        } else if (c == '/' && next == '/') {
            while (i < size && text[i] != '\n') ++i;
        } else if (c == '/' && next == '*') {
            for (i += 2; i < size && text.substr(i, 2) != "*/"; ++i) line += text[i] == '\n';
            i += 2;
        } else if (c == '"') {
            const std::size_t end = text.find('"', i + 1);
            if (end == std::string_view::npos) throw usage_error("PTX line {}: a string without an end", line);
            result.push_back({text.substr(i, end + 1 - i), line});
            i = end + 1;
        } else if (is_word(c) || (c == '-' && next >= '0' && next <= '9')) {
            const std::size_t begin = i++;
            // "::" belongs to a modifier, as in .L2::128B
            while (i < size &&
                   (is_word(text[i]) || (text.substr(i, 2) == "::" && i + 2 < size && is_word(text[i + 2]))))
                i += text[i] == ':' ? 2 : 1;
            result.push_back({text.substr(begin, i - begin), line});
        } else {
            result.push_back({text.substr(i++, 1), line});
        }
    }
    result.push_back({{}, line});
    return result;
}

}  // namespace lockstep::ptx
