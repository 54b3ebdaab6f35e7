#include "calibrate/rate_fit.hpp"

#include "base/least_squares.hpp"

namespace lockstep::calibrate {

config::ProductRate fit_rate(const std::vector<TimedOperation>& timed, bool with_overhead) {
    std::vector<std::vector<double>> columns(with_overhead ? 3 : 2);
    std::vector<double> measured;
    for (const TimedOperation& one : timed) {
        columns[0].push_back(one.flop);
        columns[1].push_back(one.bytes);
        if (with_overhead) columns[2].push_back(1);
        measured.push_back(one.seconds);
    }
    std::vector<double> seconds = least_squares(relative_fit(columns, measured));  // of a FLOP, of a byte, of a call
    seconds.resize(3, 0.0);
    const auto rate = [](double cost, double unit) { return cost > 0 ? 1 / cost / unit : 0.0; };
    return {seconds[2] * 1e6, rate(seconds[0], 1e12), rate(seconds[1], 1e9)};
}

}  // namespace lockstep::calibrate
