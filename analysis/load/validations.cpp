#include "analysis/load/validations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/format.hpp"

namespace lockstep::analysis {

std::optional<Validation> validation_of(const trace::StepRecord& step) {
    const trace::ValidationRecord& record = step.validation;
    if (record.tokens <= 0 || !std::isfinite(record.loss)) return {};
    Validation validation{step.step, record.tokens, record.loss, unknown};
    if (record.bits_per_byte > 0 && std::isfinite(record.bits_per_byte))
        validation.bits_per_byte = record.bits_per_byte;
    return validation;
}

const Validation& best_of(const Validations& validations) {
    return *std::min_element(validations.begin(), validations.end(),
                             [](const Validation& a, const Validation& b) { return a.loss < b.loss; });
}

std::string remark_on(const Validations& validations) {
    if (validations.empty()) return "";
    const auto [least, most] = std::minmax_element(validations.begin(), validations.end(),
                                                   [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
    if (least->tokens == most->tokens) return "";
    return fmt::format("Validations covered {} to {} tokens: their losses are not over the same data.",
                       with_commas(least->tokens), with_commas(most->tokens));
}

}  // namespace lockstep::analysis
