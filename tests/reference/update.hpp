#pragma once

#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

struct AdamW {
    double learning_rate, beta1, beta2, epsilon, weight_decay, gradient_factor;
    int step;
};

inline void adamw(Values& parameter, const Values& gradient, Values& first_moment, Values& second_moment,
                  const AdamW& s) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        const double g = gradient[i] * s.gradient_factor;
        first_moment[i] = s.beta1 * first_moment[i] + (1 - s.beta1) * g;
        second_moment[i] = s.beta2 * second_moment[i] + (1 - s.beta2) * g * g;
        const double m = first_moment[i] / (1 - std::pow(s.beta1, s.step));
        const double v = second_moment[i] / (1 - std::pow(s.beta2, s.step));
        parameter[i] -= s.learning_rate * (m / (std::sqrt(v) + s.epsilon) + s.weight_decay * parameter[i]);
    }
}

struct Momentum {
    double learning_rate, momentum, weight_decay, gradient_factor;
    bool nesterov;
};

inline void momentum(Values& parameter, const Values& gradient, Values& velocity, const Momentum& s) {
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        const double g = gradient[i] * s.gradient_factor;
        velocity[i] = s.momentum * velocity[i] + g;
        const double step = s.nesterov ? g + s.momentum * velocity[i] : velocity[i];
        parameter[i] -= s.learning_rate * (step + s.weight_decay * parameter[i]);
    }
}

// x [rows, columns] after some Newton–Schulz iterations of Muon.
inline Values orthogonalized(Values x, std::size_t columns, int iterations) {
    double square = 0;
    for (const double value : x) square += value * value;
    for (double& value : x) value /= std::sqrt(square) + 1e-7;
    const std::size_t rows = rows_of(x, columns);
    for (int i = 0; i < iterations; ++i) {
        Values a(rows * rows), polynomial(rows * rows), next(x.size());
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t s = 0; s < rows; ++s)
                for (std::size_t c = 0; c < columns; ++c) a[r * rows + s] += x[r * columns + c] * x[s * columns + c];
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t s = 0; s < rows; ++s) {
                polynomial[r * rows + s] = -4.7750 * a[r * rows + s];
                for (std::size_t k = 0; k < rows; ++k)
                    polynomial[r * rows + s] += 2.0315 * a[r * rows + k] * a[k * rows + s];
            }
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c) {
                next[r * columns + c] = 3.4445 * x[r * columns + c];
                for (std::size_t k = 0; k < rows; ++k)
                    next[r * columns + c] += polynomial[r * rows + k] * x[k * columns + c];
            }
        x = next;
    }
    return x;
}

}  // namespace lockstep::reference
