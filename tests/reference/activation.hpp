#pragma once

#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

constexpr double gelu_slope = 0.79788456080286535588;  // sqrt(2/π)

inline double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(gelu_slope * (x + 0.044715 * x * x * x)));
}
inline double gelu_derivative(double x) {
    const double t = std::tanh(gelu_slope * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_slope * (1 + 3 * 0.044715 * x * x);
}
inline double gelu_second_derivative(double x) {
    const double t = std::tanh(gelu_slope * (x + 0.044715 * x * x * x));
    const double u1 = gelu_slope * (1 + 3 * 0.044715 * x * x), u2 = gelu_slope * 6 * 0.044715 * x;
    return (1 - t * t) * (u1 + 0.5 * x * (u2 - 2 * t * u1 * u1));
}
inline double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
inline double silu(double x) {
    return x * sigmoid(x);
}
inline double silu_derivative(double x) {
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

// y = f(x), and y = f(gate) ⊙ up with its gradients, for f one of the above.
using Scalar = double (*)(double);

inline Values activate(Scalar f, const Values& x) {
    Values y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = f(x[i]);
    return y;
}

inline Values times(const Values& a, const Values& b) {
    Values y(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) y[i] = a[i] * b[i];
    return y;
}

inline Values activation_backward(Scalar derivative, const Values& dy, const Values& x) {
    return times(dy, activate(derivative, x));
}

inline Values gated(Scalar f, const Values& gate, const Values& up) {
    return times(activate(f, gate), up);
}

struct GatedGradients {
    Values dgate, dup;
};
inline GatedGradients gated_backward(Scalar f, Scalar derivative, const Values& dy, const Values& gate,
                                     const Values& up) {
    return {times(times(dy, up), activate(derivative, gate)), times(dy, activate(f, gate))};
}

}  // namespace lockstep::reference
