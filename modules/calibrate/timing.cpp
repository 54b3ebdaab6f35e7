#include "calibrate/timing.hpp"

#include "base/clock.hpp"

namespace lockstep::calibrate {
namespace {

constexpr double long_enough_seconds = 2e-3;
constexpr int rounds_of_a_size = 3, most_repetitions = 20;

}  // namespace

void keep_best(MeasuredRate& best, const MeasuredRate& other) {
    if (other.per_second > best.per_second) {
        best.per_second = other.per_second;
        best.seconds = other.seconds;
    }
    if (other.latency > 0 && (best.latency == 0 || other.latency < best.latency)) best.latency = other.latency;
}

double seconds_of(kernels::Backend& backend, const std::function<void()>& issue) {
    const double start = seconds_now();
    issue();
    backend.synchronize();
    return seconds_now() - start;
}

MeasuredRate best_rate(std::int64_t first, std::int64_t last, std::int64_t factor, double seconds,
                       const std::function<MeasuredRate(std::int64_t size)>& measure) {
    for (std::int64_t size = first;; size *= factor) {
        MeasuredRate best;
        for (int i = 0; i < rounds_of_a_size; ++i) keep_best(best, measure(size));
        if (best.seconds < long_enough_seconds && size * factor <= last) continue;
        double spent = 0;
        for (int i = 0; i < most_repetitions && spent < seconds; ++i) {
            const MeasuredRate again = measure(size);
            spent += again.seconds;
            keep_best(best, again);
        }
        return best;
    }
}

}  // namespace lockstep::calibrate
