// The phases that a run's time is divided into. Every second of a region belongs to exactly one phase (docs/trace.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace/layout.hpp"

namespace lockstep::analysis {

enum class Phase : std::size_t {
    initialization,
    data_loading,
    data_movement,
    forward,
    loss,
    backward,
    communication,
    optimizer,
    validation,
    checkpoint,
    other,
};
inline constexpr std::size_t phase_count = 11;
inline constexpr std::array<const char*, phase_count> phase_names = {
    "initialization", "data_loading", "data_movement", "forward",    "loss", "backward",
    "communication",  "optimizer",    "validation",    "checkpoint", "other"};

bool is_outside_steps(Phase phase);  // initialization, validation, checkpoint

struct PhaseSums {
    std::array<double, phase_count> seconds{}, calls{};
    double total() const;  // seconds
    void add(const PhaseSums& more);
    void divide(double divisor);
    // Whether the phases of a step were timed individually. On a GPU most steps are not, since their phases overlap:
    // then the little that was timed within the step is meaningless.
    bool has_step_phases() const;
    void forget_step_phases();
};

// From a row of /times and /calls to phases. A phase's time is without that of other phases below it: a communication
// inside backward counts as communication. Whatever is inside initialization, validation or checkpoint counts as that.
class PhaseMap {
  public:
    explicit PhaseMap(const std::vector<trace::RegionRow>& regions);
    PhaseSums sums(const double* times, const std::uint32_t* calls) const;
    bool measures(Phase phase) const;                // whether a region is this phase's
    double step_seconds(const double* times) const;  // in the regions called "step"

  private:
    struct Term {
        std::size_t region, phase;
        double sign;
    };
    struct Entry {
        std::size_t region, phase;
    };
    std::vector<Term> terms_;
    std::vector<Entry> entries_;  // the regions whose calls are a phase's
    std::vector<std::size_t> steps_;
};

// What ranks waited for or exchanged within steps: the regions below epoch/…/communication by name (data, tensor,
// pipeline …), each with the regions of that name.
std::map<std::string, std::vector<std::size_t>> communication_kinds(const std::vector<trace::RegionRow>& regions);

}  // namespace lockstep::analysis
