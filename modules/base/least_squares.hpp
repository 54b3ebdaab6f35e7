// Least-squares fits.
#pragma once

#include <functional>
#include <vector>

namespace lockstep {

// Minimizes Σᵢ (weights[i] · (Σ_c columns[c][i] · x[c] − target[i]))² over the coefficients x.
struct LinearFit {
    std::vector<std::vector<double>> columns;  // [coefficients][rows], 1 to 8 of them
    std::vector<double> target;                // [rows]
    std::vector<double> weights;               // [rows]; empty: all 1; rows of weight 0 are ignored
    bool non_negative = false;                 // constrain the coefficients to ≥ 0
};
// Empty if the columns are dependent or there are fewer rows than columns; with `non_negative`, dependent columns are
// dropped (coefficient 0), and among equal solutions the one with fewer columns wins.
std::vector<double> least_squares(const LinearFit& fit);

// Fits costs and rates: non-negative coefficients that minimize squared relative errors.
LinearFit relative_fit(std::vector<std::vector<double>> columns, std::vector<double> target);

// Minimizes the sum of squares of `residuals` from `start` by Levenberg-Marquardt (Moré 1978, as in MINPACK) with
// forward differences. `residuals` must always return the same number of values, at least the number of unknowns.
using Residuals = std::function<std::vector<double>(const std::vector<double>& unknowns)>;
std::vector<double> least_squares(const Residuals& residuals, const std::vector<double>& start);

}  // namespace lockstep
