#pragma once

#include <vector>

#include "reference/values.hpp"

namespace lockstep::reference {

struct ConvolutionShape {
    std::size_t batch, length, width, taps;
    // [batch, length]: the first token of each token's document, counted from the first of the history; empty: 0.
    std::vector<std::size_t> documents = {};

    std::size_t first_seen(std::size_t b, std::size_t t) const {
        return documents.empty() ? 0 : documents[b * length + t];
    }
};

// x, y [batch · length, width]; weight [width, taps]; history [batch, taps - 1, width] or empty.
inline Values convolution_forward(const Values& x, const Values& weight, const Values& bias, const Values& history,
                                  const ConvolutionShape& s) {
    Values y(x.size());
    for (std::size_t b = 0; b < s.batch; ++b)
        for (std::size_t t = 0; t < s.length; ++t)
            for (std::size_t c = 0; c < s.width; ++c) {
                double sum = bias[c];
                for (std::size_t j = 0; j < s.taps; ++j) {
                    const std::size_t place = t + j;  // counted from the first of the history
                    if (place < s.first_seen(b, t)) continue;
                    const double value = place >= s.taps - 1 ? x[(b * s.length + place - (s.taps - 1)) * s.width + c]
                                         : history.empty()   ? 0
                                                             : history[(b * (s.taps - 1) + place) * s.width + c];
                    sum += weight[c * s.taps + j] * value;
                }
                y[(b * s.length + t) * s.width + c] = sum;
            }
    return y;
}

struct ConvolutionGradients {
    Values dx, dweight, dbias;
};

inline ConvolutionGradients convolution_backward(const Values& dy, const Values& x, const Values& weight,
                                                 const ConvolutionShape& s) {
    ConvolutionGradients out{Values(x.size()), Values(weight.size()), Values(s.width)};
    for (std::size_t b = 0; b < s.batch; ++b)
        for (std::size_t t = 0; t < s.length; ++t)
            for (std::size_t c = 0; c < s.width; ++c) {
                const double gradient = dy[(b * s.length + t) * s.width + c];
                out.dbias[c] += gradient;
                for (std::size_t j = 0; j < s.taps; ++j) {
                    if (t + j < s.taps - 1 || t + j < s.first_seen(b, t)) continue;
                    const std::size_t source = (b * s.length + t + j - (s.taps - 1)) * s.width + c;
                    out.dx[source] += weight[c * s.taps + j] * gradient;
                    out.dweight[c * s.taps + j] += x[source] * gradient;
                }
            }
    return out;
}

}  // namespace lockstep::reference
