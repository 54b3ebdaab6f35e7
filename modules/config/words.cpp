#include "config/words.hpp"

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

std::vector<std::string> texts_of(std::span<const std::string_view> words) {
    return {words.begin(), words.end()};
}

void refuse_word(const std::string& name, std::string_view word, const std::vector<std::string>& words) {
    const std::string nearest = nearest_name(word, words);
    std::vector<std::string> quoted;
    for (const std::string& known : words) quoted.push_back(toml_text(known));
    throw usage_error("{} = {}: {}the allowed values are {}", name, toml_text(word),
                      nearest.empty() ? "" : "did you mean " + toml_text(nearest) + "? ", fmt::join(quoted, ", "));
}

}  // namespace lockstep::config
