// Text files and sentences, for the tests of analysis.
#pragma once

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace lockstep::analysis::test {

inline bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Whether one of the sentences holds these words.
inline bool said(const std::vector<std::string>& sentences, const std::string& words) {
    return std::any_of(sentences.begin(), sentences.end(), [&](const auto& one) { return holds(one, words); });
}

inline std::string read_text(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

}  // namespace lockstep::analysis::test
