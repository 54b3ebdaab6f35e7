#include "kernels/cpu/vector/norm.hpp"

#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

void rms_forward(float* y, float* inverse_rms, const float* x, const float* weight, float epsilon, std::int64_t rows,
                 std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < width; ++c) squares += x[c] * x[c];
        const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
        inverse_rms[r] = inverse;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) y[c] = weight[c] * (x[c] * inverse);
    }
}

// With n = x r (r the inverse root) and g = w ⊙ dy: dx = r (g - n mean(g ⊙ n)), dw = Σ dy ⊙ n.
void rms_backward(float* dx, float* dweight, const float* dy, const float* x, const float* weight,
                  const float* inverse_rms, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float inverse = inverse_rms[r];
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (std::int64_t c = 0; c < width; ++c) along += dy[c] * weight[c] * (x[c] * inverse);
        const float mean = along / static_cast<float>(width);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
            const float normal = x[c] * inverse;
            dweight[c] += dy[c] * normal;
            dx[c] += inverse * (dy[c] * weight[c] - normal * mean);
        }
    }
}

void layer_forward(float* y, float* mean, float* inverse_deviation, const float* x, const float* weight,
                   const float* bias, float epsilon, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < width; ++c) sum += x[c];
        const float centre = sum / static_cast<float>(width);
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < width; ++c) squares += (x[c] - centre) * (x[c] - centre);
        const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
        mean[r] = centre;
        inverse_deviation[r] = inverse;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) y[c] = weight[c] * ((x[c] - centre) * inverse) + bias[c];
    }
}

// With n the normalised x and g = w ⊙ dy: dx = (g - mean(g) - n mean(g ⊙ n)) / deviation.
void layer_backward(float* dx, float* dweight, float* dbias, const float* dy, const float* x, const float* weight,
                    const float* mean, const float* inverse_deviation, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        float level = 0, along = 0;
#pragma omp simd reduction(+ : level, along)
        for (std::int64_t c = 0; c < width; ++c) {
            const float gradient = dy[c] * weight[c];
            level += gradient;
            along += gradient * ((x[c] - centre) * inverse);
        }
        level /= static_cast<float>(width);
        along /= static_cast<float>(width);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
            const float normal = (x[c] - centre) * inverse;
            dweight[c] += dy[c] * normal;
            dbias[c] += dy[c];
            dx[c] += inverse * (dy[c] * weight[c] - level - normal * along);
        }
    }
}

void split_moments(float* moments, const float* x, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = 0; c < width; ++c) sum += x[c];
        const float centre = sum / static_cast<float>(width);
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < width; ++c) squares += (x[c] - centre) * (x[c] - centre);
        moments[2 * r] = centre;
        moments[2 * r + 1] = squares;
    }
}

void split_forward(float* y, const float* x, const float* mean, const float* inverse_deviation, const float* weight,
                   const float* bias, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) y[c] = weight[c] * ((x[c] - centre) * inverse) + bias[c];
    }
}

void split_backward_sums(float* sums, float* dweight, float* dbias, const float* dy, const float* x,
                         const float* weight, const float* mean, const float* inverse_deviation, std::int64_t rows,
                         std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        float level = 0, along = 0;
#pragma omp simd reduction(+ : level, along)
        for (std::int64_t c = 0; c < width; ++c) {
            const float gradient = dy[c] * weight[c], normal = (x[c] - centre) * inverse;
            level += gradient;
            along += gradient * normal;
            dweight[c] += dy[c] * normal;
            dbias[c] += dy[c];
        }
        sums[2 * r] = level;
        sums[2 * r + 1] = along;
    }
}

void split_backward(float* dx, const float* dy, const float* x, const float* weight, const float* mean,
                    const float* inverse_deviation, const float* sums, float all_width, std::int64_t rows,
                    std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        const float level = sums[2 * r] / all_width, along = sums[2 * r + 1] / all_width;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c)
            dx[c] = inverse * (dy[c] * weight[c] - level - (x[c] - centre) * inverse * along);
    }
}

}  // namespace

constinit const Norm norm_functions = {rms_forward,   rms_backward,  layer_forward,       layer_backward,
                                       split_moments, split_forward, split_backward_sums, split_backward};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
