#include "base/least_squares.hpp"

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <unsupported/Eigen/NonLinearOptimization>

#include "base/error.hpp"

namespace lockstep {
namespace {

constexpr Eigen::Index most_columns = 8;
constexpr double dependent =
    1e-10;  // residual share of a column after projecting out the others that counts as rounding
constexpr double rounding = 1e-14;  // of a residual, as a share of the target

// Coefficients and target after QR reduction: as many rows as columns, on the stack.
using Reduced =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor, most_columns + 1, most_columns + 1>;

// An orthogonal reduction preserves sums of squares and, unlike normal equations, all digits.
Reduced reduce(const LinearFit& fit) {
    const auto rows = static_cast<Eigen::Index>(fit.target.size());
    const auto columns = static_cast<Eigen::Index>(fit.columns.size());
    Eigen::MatrixXd weighted(rows, columns + 1);
    for (Eigen::Index c = 0; c < columns; ++c)
        weighted.col(c) = Eigen::Map<const Eigen::VectorXd>(fit.columns[static_cast<std::size_t>(c)].data(), rows);
    weighted.col(columns) = Eigen::Map<const Eigen::VectorXd>(fit.target.data(), rows);
    if (!fit.weights.empty()) weighted.array().colwise() *= Eigen::Map<const Eigen::ArrayXd>(fit.weights.data(), rows);
    const Eigen::HouseholderQR<Eigen::Ref<Eigen::MatrixXd>> decomposition(weighted);
    Reduced reduced = Reduced::Zero(columns + 1, columns + 1);
    const Eigen::Index kept = std::min(rows, columns + 1);
    reduced.topRows(kept) = weighted.topRows(kept).template triangularView<Eigen::Upper>();
    return reduced;
}

struct Solution {
    std::vector<double> coefficients;  // empty: no solution
    double error = 0;                  // sum of squares
};

// With the columns in the bit mask `used`; the other coefficients are 0.
Solution solve(const Reduced& reduced, unsigned used) {
    const Eigen::Index columns = reduced.cols() - 1;
    Reduced chosen(reduced.rows(), reduced.cols());
    Eigen::Index count = 0;
    for (Eigen::Index c = 0; c < columns; ++c)
        if ((used >> c & 1U) != 0) chosen.col(count++) = reduced.col(c);
    chosen.col(count) = reduced.col(columns);
    chosen.conservativeResize(Eigen::NoChange, count + 1);
    const Reduced before = chosen;
    const Eigen::HouseholderQR<Eigen::Ref<Reduced>> decomposition(chosen);
    Solution solution;
    for (Eigen::Index c = 0; c < count; ++c)
        if (!(std::abs(chosen(c, c)) > dependent * before.col(c).norm()) || !std::isfinite(chosen(c, c)))
            return solution;
    const Eigen::Matrix<double, Eigen::Dynamic, 1, 0, most_columns, 1> values =
        chosen.topLeftCorner(count, count).template triangularView<Eigen::Upper>().solve(chosen.col(count).head(count));
    solution.coefficients.assign(static_cast<std::size_t>(columns), 0.0);
    for (Eigen::Index c = 0, place = 0; c < columns; ++c)
        if ((used >> c & 1U) != 0) solution.coefficients[static_cast<std::size_t>(c)] = values[place++];
    solution.error = chosen(count, count) * chosen(count, count);
    return solution;
}

// The functor interface of Eigen's Levenberg-Marquardt.
class Differentiated {
  public:
    Differentiated(const Residuals& residuals, const std::vector<double>& start)
        : residuals_(residuals), unknowns_(start), values_(static_cast<int>(residuals(start).size())) {}

    int operator()(const Eigen::VectorXd& at, Eigen::VectorXd& values) const {
        Eigen::Map<Eigen::VectorXd>(unknowns_.data(), at.size()) = at;
        const std::vector<double> result = residuals_(unknowns_);
        values = Eigen::Map<const Eigen::VectorXd>(result.data(), static_cast<Eigen::Index>(result.size()));
        return 0;
    }
    // Returns the number of residual evaluations.
    int df(const Eigen::VectorXd& at, Eigen::MatrixXd& jacobian) const {
        constexpr double difference = 1e-5;
        Eigen::VectorXd here, there, moved = at;
        (*this)(at, here);
        for (Eigen::Index j = 0; j < at.size(); ++j) {
            const double step = difference * std::max(std::abs(at[j]), 1.0);
            moved[j] = at[j] + step;
            (*this)(moved, there);
            jacobian.col(j) = (there - here) / step;
            moved[j] = at[j];
        }
        return static_cast<int>(at.size()) + 1;
    }
    int values() const { return values_; }

  private:
    const Residuals& residuals_;
    mutable std::vector<double> unknowns_;
    int values_;
};

}  // namespace

std::vector<double> least_squares(const LinearFit& fit) {
    LOCKSTEP_ASSERT(!fit.columns.empty() && fit.columns.size() <= static_cast<std::size_t>(most_columns));
    if (fit.target.empty()) return {};
    const Reduced reduced = reduce(fit);
    const unsigned all = (1U << fit.columns.size()) - 1;
    if (!fit.non_negative) return solve(reduced, all).coefficients;
    // The problem is convex: its solution is the unconstrained one of the columns it uses.
    const double noise = rounding * rounding * reduced.col(reduced.cols() - 1).squaredNorm();
    Solution best;
    for (unsigned used = 1; used <= all; ++used) {
        Solution one = solve(reduced, used);
        if (one.coefficients.empty() || *std::min_element(one.coefficients.begin(), one.coefficients.end()) < 0)
            continue;
        if (best.coefficients.empty() || one.error < best.error - noise) best = std::move(one);
    }
    return best.coefficients;
}

LinearFit relative_fit(std::vector<std::vector<double>> columns, std::vector<double> target) {
    LinearFit fit;
    for (const double value : target) fit.weights.push_back(1 / value);
    fit.columns = std::move(columns);
    fit.target = std::move(target);
    fit.non_negative = true;
    return fit;
}

std::vector<double> least_squares(const Residuals& residuals, const std::vector<double>& start) {
    Differentiated function(residuals, start);
    Eigen::LevenbergMarquardt<Differentiated> method(function);
    method.parameters.maxfev = 20000;
    Eigen::VectorXd at = Eigen::Map<const Eigen::VectorXd>(start.data(), static_cast<Eigen::Index>(start.size()));
    method.minimize(at);
    return {at.data(), at.data() + at.size()};
}

}  // namespace lockstep
