#pragma once

#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

struct Normalised {
    Values y, mean, inverse;  // mean is zero for RMSNorm
};

// y = w (x - mean) / sqrt(mean square + epsilon) + b; RMSNorm has neither mean nor bias.
inline Normalised norm_forward(const Values& x, const Values& weight, const Values& bias, double epsilon,
                               bool centred) {
    const std::size_t width = weight.size(), rows = rows_of(x, width);
    Normalised out{Values(x.size()), Values(rows), Values(rows)};
    for (std::size_t r = 0; r < rows; ++r) {
        double sum = 0, squares = 0;
        for (std::size_t c = 0; c < width; ++c) sum += x[r * width + c];
        const double mean = centred ? sum / static_cast<double>(width) : 0;
        for (std::size_t c = 0; c < width; ++c) squares += std::pow(x[r * width + c] - mean, 2);
        out.mean[r] = mean;
        out.inverse[r] = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
        for (std::size_t c = 0; c < width; ++c)
            out.y[r * width + c] = weight[c] * (x[r * width + c] - mean) * out.inverse[r] + (centred ? bias[c] : 0);
    }
    return out;
}

struct NormGradients {
    Values dx, dweight, dbias;
};

inline NormGradients norm_backward(const Values& dy, const Values& x, const Values& weight, double epsilon,
                                   bool centred) {
    const std::size_t width = weight.size(), rows = rows_of(x, width);
    const Normalised forward = norm_forward(x, weight, Values(width), epsilon, centred);
    NormGradients out{Values(x.size()), Values(width), Values(width)};
    for (std::size_t r = 0; r < rows; ++r) {
        double level = 0, along = 0;
        for (std::size_t c = 0; c < width; ++c) {
            const std::size_t i = r * width + c;
            const double normal = (x[i] - forward.mean[r]) * forward.inverse[r], gradient = dy[i] * weight[c];
            out.dweight[c] += dy[i] * normal;
            out.dbias[c] += dy[i];
            level += gradient / static_cast<double>(width);
            along += gradient * normal / static_cast<double>(width);
        }
        for (std::size_t c = 0; c < width; ++c) {
            const std::size_t i = r * width + c;
            const double normal = (x[i] - forward.mean[r]) * forward.inverse[r];
            out.dx[i] = forward.inverse[r] * (dy[i] * weight[c] - (centred ? level : 0) - normal * along);
        }
    }
    return out;
}

}  // namespace lockstep::reference
