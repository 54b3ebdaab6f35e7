#pragma once

#include "reference/values.hpp"

namespace lockstep::reference {

// x [rows, heads · 2 half]; cosine, sine [period, half].
inline Values rotate(Values x, const Values& cosine, const Values& sine, std::size_t width, std::size_t half,
                     std::size_t length, std::size_t first_position, bool interleaved, bool inverse) {
    const std::size_t period = cosine.size() / half;
    for (std::size_t row = 0; row < rows_of(x, width); ++row)
        for (std::size_t head = 0; head < width / (2 * half); ++head)
            for (std::size_t i = 0; i < half; ++i) {
                const std::size_t angle = (first_position + row % length) % period * half + i;
                const std::size_t start = row * width + head * 2 * half;
                double& a = x[start + (interleaved ? 2 * i : i)];
                double& b = x[start + (interleaved ? 2 * i + 1 : half + i)];
                const double c = cosine[angle], s = inverse ? -sine[angle] : sine[angle];
                const double turned_a = a * c - b * s, turned_b = a * s + b * c;
                a = turned_a;
                b = turned_b;
            }
    return x;
}

}  // namespace lockstep::reference
