#include "model/name_patterns.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace lockstep::model {
namespace {

// Edit distance to a pattern, where `*` matches any text at no cost.
std::size_t distance(const std::string& pattern, const std::string& name) {
    std::vector<std::size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (const char letter : pattern) {
        std::size_t diagonal = row[0];
        if (letter != '*') ++row[0];
        for (std::size_t i = 1; i <= name.size(); ++i) {
            const std::size_t above = row[i];
            if (letter == '*')
                row[i] = std::min(above, row[i - 1]);
            else
                row[i] =
                    std::min({above + 1, row[i - 1] + 1, diagonal + (letter == name[i - 1] || letter == '?' ? 0 : 1)});
            diagonal = above;
        }
    }
    return row.back();
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

void check_pattern(const std::string& pattern, const std::string& key,
                   const std::vector<ParameterDescription>& parameters, const std::string& what) {
    std::size_t least = std::string::npos;
    std::string nearest;
    for (const ParameterDescription& parameter : parameters) {
        if (matches(pattern, parameter.name)) return;
        const std::size_t far = distance(pattern, parameter.name);
        if (far >= least) continue;
        least = far;
        nearest = parameter.name;
    }
    throw usage_error(
        "{}: the pattern \"{}\" matches no {} of the model; the nearest is {} (lockstep inspect --details lists them all)",
        key, pattern, what, nearest);
}

}  // namespace lockstep::model
