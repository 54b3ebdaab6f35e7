#include "analysis/load/figures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::analysis {

void Mean::add(double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    ++count;
}

double Mean::value() const {
    return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

void Memory::raise(const Memory& step) {
    allocated = std::max(allocated, step.allocated);
    reserved = std::max(reserved, step.reserved);
    peak = std::max({peak, step.reserved, step.peak});
}

void RankSpan::add(const RankSpan& more) {
    steps += more.steps;
    tokens += more.tokens;
    seconds += more.seconds;
    step_seconds += more.step_seconds;
    phases.add(more.phases);
    loss.sum += more.loss.sum;
    loss.count += more.loss.count;
}

double RankSpan::tokens_per_second() const {
    return per_second(tokens, step_seconds > 0 ? step_seconds : seconds);
}

double per_second(double amount, double seconds) {
    return seconds > 0 ? amount / seconds : 0;
}

double mean_per_call(const PhaseSums& sums, std::size_t phase) {
    return sums.calls[phase] > 0 ? sums.seconds[phase] / sums.calls[phase] : 0;
}

}  // namespace lockstep::analysis
