// The validation losses of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/metrics/statistics.hpp"
#include "trace/records.hpp"

namespace lockstep::analysis {

// After this step, over so many tokens. Loss in nats per token; bits per byte are unknown where the text's bytes are.
struct Validation {
    std::int64_t step = 0, tokens = 0;
    double loss = unknown, bits_per_byte = unknown;
};
using Validations = std::vector<Validation>;  // by step

// Nothing where there was none after this step, or its loss is not finite.
std::optional<Validation> validation_of(const trace::StepRecord& step);

// With the lowest loss, the first of equals. There must be one.
const Validation& best_of(const Validations& validations);
// A caveat on comparing them with one another; "": none.
std::string remark_on(const Validations& validations);

}  // namespace lockstep::analysis
