#include "model/frozen.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "model/parameter_description.hpp"

namespace lockstep::model {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

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

bool is_frozen(const config::ModelDescription& model, const std::string& name) {
    return std::any_of(model.frozen.begin(), model.frozen.end(),
                       [&](const std::string& pattern) { return matches(pattern, name); });
}

void check_frozen(const config::ModelDescription& model) {
    if (model.frozen.empty()) return;
    const auto parameters = describe_parameters(model, whole_model(model));
    for (const std::string& pattern : model.frozen) {
        std::size_t least = std::string::npos;
        const std::string* nearest = nullptr;
        for (const auto& parameter : parameters) {
            if (matches(pattern, parameter.name)) {
                nearest = nullptr;
                break;
            }
            const std::size_t far = distance(pattern, parameter.name);
            if (far >= least) continue;
            least = far;
            nearest = &parameter.name;
        }
        if (nearest)
            throw usage_error(
                "model.frozen: the pattern \"{}\" matches no parameter of the model; the nearest is {} (lockstep "
                "inspect lists them all)",
                pattern, *nearest);
    }
    if (std::none_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; }))
        throw usage_error("model.frozen leaves nothing to train: its patterns match all {} parameters of the model",
                          parameters.size());
}

bool trains_before(const config::ModelDescription& model, std::int64_t block) {
    const StageRange range{0, block, true, false};
    const auto parameters = describe_parameters(model, range);
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; });
}

std::int64_t trained_parameter_count(const config::ModelDescription& model) {
    std::int64_t count = 0;
    for (const auto& parameter : describe_parameters(model, whole_model(model)))
        if (parameter.trained) count += element_count(parameter.shape);
    return count;
}

}  // namespace lockstep::model
