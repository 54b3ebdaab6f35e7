#include "kernels/cpu/vector/norm.hpp"

#include "kernels/cpu/vector/vector.hpp"

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {
namespace {

template <class T>
void rms_forward(T* y, float* inverse_rms, const T* x, const float* weight, float epsilon, std::int64_t rows,
                 std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
        float squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t c = 0; c < width; ++c) squares += to_float(x[c]) * to_float(x[c]);
        const float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
        inverse_rms[r] = inverse;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) y[c] = from_float<T>(weight[c] * (to_float(x[c]) * inverse));
    }
}

// With n = x r (r the inverse root) and g = w ⊙ dy: dx = r (g - n mean(g ⊙ n)), dw = Σ dy ⊙ n.
template <class T>
void rms_backward(T* dx, float* dweight, const T* dy, const T* x, const float* weight, const float* inverse_rms,
                  std::int64_t rows, std::int64_t width, bool accumulate) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float inverse = inverse_rms[r];
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (std::int64_t c = 0; c < width; ++c) along += to_float(dy[c]) * weight[c] * (to_float(x[c]) * inverse);
        const float mean = along / static_cast<float>(width);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
            const float normal = to_float(x[c]) * inverse;
            dweight[c] += to_float(dy[c]) * normal;
            const float before = accumulate ? to_float(dx[c]) : 0.0f;
            dx[c] = from_float<T>(before + inverse * (to_float(dy[c]) * weight[c] - normal * mean));
        }
    }
}

// The mean of a row and the sum of squares around it.
template <class T>
void moments_of_row(const T* x, std::int64_t width, float& mean, float& squares) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < width; ++c) sum += to_float(x[c]);
    const float centre = sum / static_cast<float>(width);
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (std::int64_t c = 0; c < width; ++c) total += (to_float(x[c]) - centre) * (to_float(x[c]) - centre);
    mean = centre;
    squares = total;
}

template <class T>
void normalise_row(T* y, const T* x, float centre, float inverse, const float* weight, const float* bias,
                   std::int64_t width) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c)
        y[c] = from_float<T>(weight[c] * ((to_float(x[c]) - centre) * inverse) + bias[c]);
}

template <class T>
void layer_forward(T* y, float* mean, float* inverse_deviation, const T* x, const float* weight, const float* bias,
                   float epsilon, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
        float squares = 0;
        moments_of_row(x, width, mean[r], squares);
        inverse_deviation[r] = 1.0f / __builtin_sqrtf(squares / static_cast<float>(width) + epsilon);
        normalise_row(y, x, mean[r], inverse_deviation[r], weight, bias, width);
    }
}

// With n the normalised x and g = w ⊙ dy: dx = (g - mean(g) - n mean(g ⊙ n)) / deviation.
template <class T>
void layer_backward(T* dx, float* dweight, float* dbias, const T* dy, const T* x, const float* weight,
                    const float* mean, const float* inverse_deviation, std::int64_t rows, std::int64_t width,
                    bool accumulate) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        float level = 0, along = 0;
#pragma omp simd reduction(+ : level, along)
        for (std::int64_t c = 0; c < width; ++c) {
            const float gradient = to_float(dy[c]) * weight[c];
            level += gradient;
            along += gradient * ((to_float(x[c]) - centre) * inverse);
        }
        level /= static_cast<float>(width);
        along /= static_cast<float>(width);
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c) {
            const float normal = (to_float(x[c]) - centre) * inverse;
            dweight[c] += to_float(dy[c]) * normal;
            dbias[c] += to_float(dy[c]);
            const float before = accumulate ? to_float(dx[c]) : 0.0f;
            dx[c] = from_float<T>(before + inverse * (to_float(dy[c]) * weight[c] - level - normal * along));
        }
    }
}

template <class T>
void split_moments(float* moments, const T* x, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width) moments_of_row(x, width, moments[2 * r], moments[2 * r + 1]);
}

template <class T>
void split_forward(T* y, const T* x, const float* mean, const float* inverse_deviation, const float* weight,
                   const float* bias, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, x += width, y += width)
        normalise_row(y, x, mean[r], inverse_deviation[r], weight, bias, width);
}

template <class T>
void split_backward_sums(float* sums, float* dweight, float* dbias, const T* dy, const T* x, const float* weight,
                         const float* mean, const float* inverse_deviation, std::int64_t rows, std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        float level = 0, along = 0;
#pragma omp simd reduction(+ : level, along)
        for (std::int64_t c = 0; c < width; ++c) {
            const float gradient = to_float(dy[c]) * weight[c], normal = (to_float(x[c]) - centre) * inverse;
            level += gradient;
            along += gradient * normal;
            dweight[c] += to_float(dy[c]) * normal;
            dbias[c] += to_float(dy[c]);
        }
        sums[2 * r] = level;
        sums[2 * r + 1] = along;
    }
}

template <class T>
void split_backward(T* dx, const T* dy, const T* x, const float* weight, const float* mean,
                    const float* inverse_deviation, const float* sums, float all_width, std::int64_t rows,
                    std::int64_t width) {
    for (std::int64_t r = 0; r < rows; ++r, dx += width, dy += width, x += width) {
        const float centre = mean[r], inverse = inverse_deviation[r];
        const float level = sums[2 * r] / all_width, along = sums[2 * r + 1] / all_width;
#pragma omp simd
        for (std::int64_t c = 0; c < width; ++c)
            dx[c] = from_float<T>(inverse *
                                  (to_float(dy[c]) * weight[c] - level - (to_float(x[c]) - centre) * inverse * along));
    }
}

template <class T>
constexpr Norm<T> table() {
    return {rms_forward<T>,   rms_backward<T>,  layer_forward<T>,       layer_backward<T>,
            split_moments<T>, split_forward<T>, split_backward_sums<T>, split_backward<T>};
}

}  // namespace

constinit const Norm<float> norm_fp32 = table<float>();
constinit const Norm<bf16> norm_bf16 = table<bf16>();

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
