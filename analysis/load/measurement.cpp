#include "analysis/load/measurement.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::analysis {
namespace {

std::vector<double> of_steps(const Measurement& measurement, double StepSample::*member) {
    std::vector<double> values;
    for (const StepSample& step : measurement.steps) values.push_back(step.*member);
    return values;
}

}  // namespace

std::vector<double> Measurement::slowest_seconds() const {
    return of_steps(*this, &StepSample::slowest);
}

double Measurement::step_seconds() const {
    return median(slowest_seconds());
}

double Measurement::average_step_seconds() const {
    Mean own;
    double longest = 0;
    for (const RankMeasurement& one : rank) {
        own.add(one.seconds);
        longest = std::max(longest, one.seconds);
    }
    if (whole || longest <= 0 || own.count != ranks) return unknown;
    return step_seconds() * own.value() / longest;
}

double Measurement::step_tokens() const {
    const double tokens = mean(of_steps(*this, &StepSample::tokens));
    return tokens > 0 ? tokens : unknown;
}

Interval Measurement::step_interval() const {
    return median_interval(slowest_seconds());
}

double Measurement::tokens_per_second() const {
    if (std::isfinite(imported_tokens_per_second)) return imported_tokens_per_second;
    double tokens = 0, seconds = 0;
    for (const StepSample& step : steps)
        if (std::isfinite(step.slowest)) {
            tokens += step.tokens;
            seconds += step.slowest;
        }
    return tokens > 0 && seconds > 0 ? tokens / seconds : unknown;
}

double Measurement::usual_rate() const {
    if (imported) return tokens_per_second();
    const double rate = step_tokens() / step_seconds();
    return std::isfinite(rate) ? rate : unknown;
}

double Measurement::compute_seconds() const {
    return part_of_step(&StepSample::compute);
}

double Measurement::communication_seconds() const {
    return part_of_step(&StepSample::communication);
}

double Measurement::part_of_step(double StepSample::*part) const {
    if (timed_steps < static_cast<std::int64_t>(steps.size()) && timed_steps < fewest_timed_steps) return unknown;
    const double value = mean(of_steps(*this, part));
    if (imported) return value;
    const double whole_step =
        mean(of_steps(*this, &StepSample::compute)) + mean(of_steps(*this, &StepSample::communication));
    return whole_step > 0 ? step_seconds() * value / whole_step : unknown;
}

std::string Measurement::setting(const std::string& key) const {
    const auto found = settings.find(key);
    return found == settings.end() ? std::string() : found->second;
}

double Measurement::setting_number(const std::string& key) const {
    const std::string value = setting(key);
    try {
        std::size_t used = 0;
        const double number = std::stod(value, &used);
        return used == value.size() ? number : unknown;
    } catch (const std::exception&) {
        return unknown;
    }
}

}  // namespace lockstep::analysis
