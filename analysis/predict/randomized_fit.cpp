#include "analysis/predict/randomized_fit.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"

namespace lockstep::analysis {
namespace {

using Vector = std::vector<double>;

constexpr double difference = 1e-5;  // of an unknown, for derivatives
constexpr int most_iterations = 60;
constexpr double converged = 1e-9;    // relative gain of an iteration
constexpr double farthest = 8;        // deviations that an unknown may leave its mean by
constexpr double most_damping = 1e9;  // nothing is gained any more

double sum_of_squares(const Vector& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return sum;
}

Vector residuals(const FitProblem& problem, const Vector& unknowns) {
    Vector all = problem.predict(unknowns);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = (all[i] - problem.measured[i]) / problem.measured_deviation[i];
    for (std::size_t j = 0; j < unknowns.size(); ++j)
        all.push_back((unknowns[j] - problem.mean[j]) / problem.deviation[j]);
    return all;
}

// Solves matrix · x = right for a symmetric positive matrix, by Cholesky's method; both are overwritten. False where it
// is not positive.
bool solve(std::vector<Vector>& matrix, Vector& right) {
    const std::size_t size = right.size();
    for (std::size_t j = 0; j < size; ++j) {
        for (std::size_t k = 0; k < j; ++k) matrix[j][j] -= matrix[j][k] * matrix[j][k];
        if (!(matrix[j][j] > 0)) return false;
        matrix[j][j] = std::sqrt(matrix[j][j]);
        for (std::size_t i = j + 1; i < size; ++i) {
            for (std::size_t k = 0; k < j; ++k) matrix[i][j] -= matrix[i][k] * matrix[j][k];
            matrix[i][j] /= matrix[j][j];
        }
    }
    for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t k = 0; k < i; ++k) right[i] -= matrix[i][k] * right[k];
        right[i] /= matrix[i][i];
    }
    for (std::size_t i = size; i-- > 0;) {
        for (std::size_t k = i + 1; k < size; ++k) right[i] -= matrix[k][i] * right[k];
        right[i] /= matrix[i][i];
    }
    return true;
}

Vector descend(const FitProblem& problem, Vector unknowns) {
    const std::size_t count = unknowns.size();
    Vector now = residuals(problem, unknowns);
    double error = sum_of_squares(now), damping = 1e-3;
    for (int iteration = 0; iteration < most_iterations; ++iteration) {
        std::vector<Vector> columns;
        for (std::size_t j = 0; j < count; ++j) {
            Vector moved = unknowns;
            moved[j] += difference;
            Vector column = residuals(problem, moved);
            for (std::size_t i = 0; i < column.size(); ++i) column[i] = (column[i] - now[i]) / difference;
            columns.push_back(std::move(column));
        }
        const auto product = [&](const Vector& one, const Vector& other) {
            double sum = 0;
            for (std::size_t i = 0; i < one.size(); ++i) sum += one[i] * other[i];
            return sum;
        };
        std::vector<Vector> normal;
        Vector gradient;
        for (const Vector& one : columns) {
            Vector row;
            for (const Vector& other : columns) row.push_back(product(one, other));
            normal.push_back(std::move(row));
            gradient.push_back(-product(one, now));
        }
        bool better = false;
        double gain = 0;
        while (!better && damping < most_damping) {
            std::vector<Vector> damped = normal;
            for (std::size_t a = 0; a < count; ++a) damped[a][a] *= 1 + damping;
            Vector step = gradient;
            if (solve(damped, step)) {
                Vector moved = unknowns;
                for (std::size_t j = 0; j < count; ++j)
                    moved[j] = std::clamp(moved[j] + step[j], problem.mean[j] - farthest * problem.deviation[j],
                                          problem.mean[j] + farthest * problem.deviation[j]);
                Vector then = residuals(problem, moved);
                const double less = sum_of_squares(then);
                if (less < error) {
                    better = true;
                    gain = error - less;
                    error = less;
                    unknowns = std::move(moved);
                    now = std::move(then);
                }
            }
            damping *= better ? 0.2 : 5;
        }
        if (!better || gain <= converged * error) break;
    }
    return unknowns;
}

}  // namespace

Vector most_probable(const FitProblem& problem) {
    return descend(problem, problem.mean);
}

std::vector<Vector> draw_unknowns(const FitProblem& problem, std::size_t count, std::uint64_t seed) {
    const Vector start = most_probable(problem);
    const RandomStream random(seed, "randomized fit");
    std::uint64_t index = 0;
    std::vector<Vector> all;
    for (std::size_t draw = 0; draw < count; ++draw) {
        FitProblem moved = problem;
        for (std::size_t j = 0; j < moved.mean.size(); ++j)
            moved.mean[j] += moved.deviation[j] * random.normal(index++);
        for (std::size_t i = 0; i < moved.measured.size(); ++i)
            moved.measured[i] += moved.measured_deviation[i] * random.normal(index++);
        all.push_back(descend(moved, start));
    }
    return all;
}

}  // namespace lockstep::analysis
