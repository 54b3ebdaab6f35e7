#include "calibrate/rate_fit.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace lockstep::calibrate {
namespace {

constexpr int terms = 3;
using Costs = std::array<double, terms>;  // seconds of a call, of a FLOP, of a byte
using Matrix = std::array<std::array<double, terms + 1>, terms>;

// The normal equations with the terms outside `chosen` left out, by elimination; false where they have no solution.
bool solve(Matrix equations, unsigned chosen, Costs& costs) {
    for (int i = 0; i < terms; ++i) {
        if (chosen & (1u << i)) continue;
        for (int j = 0; j <= terms; ++j) equations[i][j] = i == j ? 1 : 0;
        for (int j = 0; j < terms; ++j)
            if (j != i) equations[j][i] = 0;
    }
    for (int i = 0; i < terms; ++i) {
        int pivot = i;
        for (int j = i + 1; j < terms; ++j)
            if (std::abs(equations[j][i]) > std::abs(equations[pivot][i])) pivot = j;
        std::swap(equations[i], equations[pivot]);
        if (std::abs(equations[i][i]) < 1e-12) return false;
        for (int j = 0; j < terms; ++j) {
            if (j == i) continue;
            const double factor = equations[j][i] / equations[i][i];
            for (int k = i; k <= terms; ++k) equations[j][k] -= factor * equations[i][k];
        }
    }
    for (int i = 0; i < terms; ++i) costs[i] = equations[i][terms] / equations[i][i];
    return true;
}

}  // namespace

config::ProductRate fit_rate(const std::vector<TimedOperation>& timed, bool with_overhead) {
    // Columns are brought to like size, so that elimination keeps its digits.
    Costs scale = {0, 0, 0};
    for (const TimedOperation& one : timed) {
        scale[0] = std::max(scale[0], 1 / one.seconds);
        scale[1] = std::max(scale[1], one.flop / one.seconds);
        scale[2] = std::max(scale[2], one.bytes / one.seconds);
    }
    const auto row_of = [&](const TimedOperation& one) {
        Costs row = {1 / one.seconds, one.flop / one.seconds, one.bytes / one.seconds};
        for (int i = 0; i < terms; ++i) row[i] = scale[i] > 0 ? row[i] / scale[i] : 0;
        return row;
    };
    Matrix equations{};
    for (const TimedOperation& one : timed) {
        const Costs row = row_of(one);
        for (int i = 0; i < terms; ++i) {
            for (int j = 0; j < terms; ++j) equations[i][j] += row[i] * row[j];
            equations[i][terms] += row[i];
        }
    }
    Costs best{};
    double least = std::numeric_limits<double>::max();
    for (unsigned chosen = 1; chosen < (1u << terms); ++chosen) {
        if ((chosen & 1u) && !with_overhead) continue;
        Costs costs{};
        if (!solve(equations, chosen, costs)) continue;
        bool possible = true;
        double error = 0;
        for (int i = 0; i < terms; ++i) {
            if (!(chosen & (1u << i))) costs[i] = 0;
            possible = possible && costs[i] >= 0;
        }
        for (const TimedOperation& one : timed) {
            const Costs row = row_of(one);
            double sum = -1;
            for (int i = 0; i < terms; ++i) sum += row[i] * costs[i];
            error += sum * sum;
        }
        if (!possible || error >= least) continue;
        least = error;
        best = costs;
    }
    const auto rate = [&](int i, double unit) { return best[i] > 0 ? scale[i] / best[i] / unit : 0.0; };
    return {scale[0] > 0 ? best[0] / scale[0] * 1e6 : 0, rate(1, 1e12), rate(2, 1e9)};
}

}  // namespace lockstep::calibrate
