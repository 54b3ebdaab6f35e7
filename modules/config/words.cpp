#include "config/words.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

namespace {

// What people write who mean a word that is spelt quite differently.
constexpr std::pair<std::string_view, std::string_view> other_names[] = {
    {"gpu", "cuda"},      {"nvidia", "cuda"},  {"float32", "fp32"}, {"float", "fp32"},
    {"bfloat16", "bf16"}, {"float16", "fp16"}, {"half", "fp16"},
};

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
    for (const auto& [other, meant] : other_names)
        if (word == other && std::find(words.begin(), words.end(), meant) != words.end()) return std::string(meant);
    return nearest_name(word, words);
}

}  // namespace

std::vector<std::string> texts_of(std::span<const std::string_view> words) {
    return {words.begin(), words.end()};
}

void refuse_word(const std::string& name, std::string_view word, const std::vector<std::string>& words) {
    const std::string nearest = nearest_word(word, words);
    std::vector<std::string> quoted;
    for (const std::string& known : words) quoted.push_back(toml_text(known));
    throw usage_error("{} = {}: the allowed values are {}{}", name, toml_text(word), fmt::join(quoted, ", "),
                      nearest.empty() ? "" : " (did you mean " + toml_text(nearest) + "?)");
}

}  // namespace lockstep::config
