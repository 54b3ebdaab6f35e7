// What TensorBoard shows of a run and under which names: for `lockstep train` and `lockstep-analyze export` alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorboard/event.hpp"
#include "trace/records.hpp"

namespace lockstep::trace {

inline constexpr const char* description_tag = "run_description";

std::vector<tensorboard::Scalar> step_scalars(const StepRecord& step);
std::vector<tensorboard::Scalar> validation_scalars(const ValidationRecord& validation);
std::vector<tensorboard::Scalar> memory_scalars(std::uint64_t peak);  // of rank 0, bytes

}  // namespace lockstep::trace
