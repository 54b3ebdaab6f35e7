// Least squares, for whatever is fitted to measurements.
#pragma once

#include <functional>
#include <vector>

namespace lockstep {

// The coefficients x that minimize Σᵢ (weights[i] · (Σ_c columns[c][i] · x[c] − target[i]))².
struct LinearFit {
    std::vector<std::vector<double>> columns;  // [coefficients][rows], 1 to 8 of them
    std::vector<double> target;                // [rows]
    std::vector<double> weights;               // [rows]; empty: all 1; a row of weight 0 does not count
    bool non_negative = false;                 // no coefficient below 0
};
// Empty where the columns depend on each other or there are fewer rows than columns; with `non_negative` dependent
// columns are left out (their coefficients are 0), and of equally good solutions the one with fewer columns is taken.
std::vector<double> least_squares(const LinearFit& fit);

// Costs and rates from measured values: non-negative coefficients with the least squared relative errors.
LinearFit relative_fit(std::vector<std::vector<double>> columns, std::vector<double> target);

// The unknowns that minimize the sum of squares of `residuals`, searched for from `start` by the Levenberg–Marquardt
// method (Moré 1978, as in MINPACK) with forward differences. `residuals` must return the same number of values for
// all unknowns, at least as many as there are unknowns.
using Residuals = std::function<std::vector<double>(const std::vector<double>& unknowns)>;
std::vector<double> least_squares(const Residuals& residuals, const std::vector<double>& start);

}  // namespace lockstep
