// LayerNorm over columns that are divided among ranks, part by part.
#pragma once

#include <cmath>

#include "reference/values.hpp"

namespace lockstep::reference {

// [N, 2]: mean, Σ (x - mean)².
inline Values split_norm_moments(const Values& x, std::size_t width) {
    Values moments;
    for (std::size_t r = 0; r < rows_of(x, width); ++r) {
        double sum = 0, squares = 0;
        for (std::size_t c = 0; c < width; ++c) sum += x[r * width + c];
        const double mean = sum / static_cast<double>(width);
        for (std::size_t c = 0; c < width; ++c) squares += std::pow(x[r * width + c] - mean, 2);
        moments.push_back(mean);
        moments.push_back(squares);
    }
    return moments;
}

struct Statistics {
    Values mean, inverse;
};

// moments [R, N, 2], merged two at a time (Chan et al. 1979).
inline Statistics split_norm_statistics(const Values& moments, std::size_t parts, std::size_t width, double epsilon) {
    const std::size_t rows = moments.size() / parts / 2;
    Statistics out;
    for (std::size_t r = 0; r < rows; ++r) {
        double count = 0, mean = 0, squares = 0;
        const double more = static_cast<double>(width);
        for (std::size_t p = 0; p < parts; ++p) {
            const double distance = moments[2 * (p * rows + r)] - mean;
            squares += moments[2 * (p * rows + r) + 1] + distance * distance * count * more / (count + more);
            mean += distance * more / (count + more);
            count += more;
        }
        out.mean.push_back(mean);
        out.inverse.push_back(1 / std::sqrt(squares / count + epsilon));
    }
    return out;
}

inline Values split_norm_forward(const Values& x, const Statistics& of, const Values& weight, const Values& bias) {
    const std::size_t width = weight.size();
    Values y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
        y[i] = weight[i % width] * (x[i] - of.mean[i / width]) * of.inverse[i / width] + bias[i % width];
    return y;
}

struct SplitNormSums {
    Values sums, dweight, dbias;  // sums [N, 2]: Σ u, Σ u x̂
};

inline SplitNormSums split_norm_backward_sums(const Values& dy, const Values& x, const Statistics& of,
                                              const Values& weight) {
    const std::size_t width = weight.size();
    SplitNormSums out{Values(2 * rows_of(x, width)), Values(width), Values(width)};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t r = i / width, c = i % width;
        const double normal = (x[i] - of.mean[r]) * of.inverse[r];
        out.sums[2 * r] += weight[c] * dy[i];
        out.sums[2 * r + 1] += weight[c] * dy[i] * normal;
        out.dweight[c] += dy[i] * normal;
        out.dbias[c] += dy[i];
    }
    return out;
}

inline Values split_norm_backward(const Values& dy, const Values& x, const Statistics& of, const Values& weight,
                                  const Values& sums, std::size_t all_width) {
    const std::size_t width = weight.size();
    const double columns = static_cast<double>(all_width);
    Values dx(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t r = i / width;
        const double normal = (x[i] - of.mean[r]) * of.inverse[r];
        dx[i] =
            of.inverse[r] * (weight[i % width] * dy[i] - sums[2 * r] / columns - normal * sums[2 * r + 1] / columns);
    }
    return dx;
}

}  // namespace lockstep::reference
