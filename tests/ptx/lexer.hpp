// Words and punctuation of a PTX text.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::ptx {

// Punctuation is a token of one character; opcodes with their modifiers, names, directives and numbers are words.
struct Token {
    std::string_view text;
    int line = 0;
};

// The tokens refer to `text`; the last is empty. Comments are left out.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace lockstep::ptx
