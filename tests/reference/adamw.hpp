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

}  // namespace lockstep::reference
