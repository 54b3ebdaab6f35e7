#include "cuda_emulation/matrix_product.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/element.hpp"

namespace lockstep::emulation {

namespace {

using kernels::cuda::bf16;
using kernels::cuda::fp16;
using kernels::cuda::from_float;
using kernels::cuda::to_float;

float get(const void* data, cudaDataType_t type, std::int64_t index) {
    switch (type) {
        case CUDA_R_16BF:
            return to_float(static_cast<const bf16*>(data)[index]);
        case CUDA_R_16F:
            return to_float(static_cast<const fp16*>(data)[index]);
        default:
            return static_cast<const float*>(data)[index];
    }
}

void put(void* data, cudaDataType_t type, std::int64_t index, float value) {
    switch (type) {
        case CUDA_R_16BF:
            static_cast<bf16*>(data)[index] = from_float<bf16>(value);
            return;
        case CUDA_R_16F:
            static_cast<fp16*>(data)[index] = from_float<fp16>(value);
            return;
        default:
            static_cast<float*>(data)[index] = value;
    }
}

constexpr std::size_t partial_sums = 16;

std::size_t padded(std::int64_t count) {
    return (static_cast<std::size_t>(count) + partial_sums - 1) / partial_sums * partial_sums;
}

// fp32, one run of `inner` elements after another, each padded with zeros.
std::vector<float> pack(const void* data, cudaDataType_t type, std::int64_t first, std::int64_t outer,
                        std::int64_t outer_step, std::int64_t inner, std::int64_t inner_step) {
    const std::size_t length = padded(inner);
    std::vector<float> packed(static_cast<std::size_t>(outer) * length, 0.0f);
    for (std::int64_t i = 0; i < outer; ++i)
        for (std::int64_t j = 0; j < inner; ++j)
            packed[static_cast<std::size_t>(i) * length + static_cast<std::size_t>(j)] =
                get(data, type, first + i * outer_step + j * inner_step);
    return packed;
}

float inner_product(const float* x, const float* y, std::size_t count) {
    float sums[partial_sums] = {};
    for (std::size_t k = 0; k < count; k += partial_sums)
        for (std::size_t i = 0; i < partial_sums; ++i) sums[i] += x[k + i] * y[k + i];
    for (std::size_t half = partial_sums / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
}

float inner_product(const float* x, const float* y, std::size_t count, std::size_t parts) {
    const std::size_t step = padded(static_cast<std::int64_t>((count + parts - 1) / parts));
    float sum = 0;
    for (std::size_t k = 0; k < count; k += step) sum += inner_product(x + k, y + k, std::min(step, count - k));
    return sum;
}

// The tanh form, as cuBLASLt's epilogues have it.
constexpr float gelu_scale = 0.7978845608028654f, gelu_cubic = 0.044715f;  // sqrt(2 / pi)
float gelu(float x) {
    return 0.5f * x * (1 + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
}
float gelu_derivative(float x) {
    const float t = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cubic * x * x);
}

bool has(cublasLtEpilogue_t epilogue, int bits) {
    return (epilogue & bits) == bits;
}

void sums_of_runs(const MatrixProduct& product, const std::vector<float>& packed, std::int64_t runs) {
    const std::size_t length = packed.size() / static_cast<std::size_t>(runs);
    for (std::int64_t i = 0; i < runs; ++i) {
        float sum = 0;
        for (std::size_t j = 0; j < length; ++j) sum += packed[static_cast<std::size_t>(i) * length + j];
        put(product.bias, product.d.type, i, sum);
    }
}

void multiply_one(const MatrixProduct& product, std::int64_t index) {
    const Matrix &a = product.a, &b = product.b, &c = product.c, &d = product.d;
    const std::int64_t m = d.rows, n = d.columns, k = a.columns;
    const std::vector<float> left = pack(product.a_data, a.type, index * a.batch_step, m, a.row_step, k, a.column_step);
    const std::vector<float> right =
        pack(product.b_data, b.type, index * b.batch_step, n, b.column_step, k, b.row_step);
    const cublasLtEpilogue_t epilogue = product.epilogue;
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA) sums_of_runs(product, left, m);
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB) sums_of_runs(product, right, n);
    const std::size_t length = padded(k);
    std::vector<float> row_sums(has(epilogue, CUBLASLT_EPILOGUE_DGELU_BGRAD) ? static_cast<std::size_t>(m) : 0, 0.0f);
    for (std::int64_t column = 0; column < n; ++column)
        for (std::int64_t row = 0; row < m; ++row) {
            float value =
                product.alpha * inner_product(&left[static_cast<std::size_t>(row) * length],
                                              &right[static_cast<std::size_t>(column) * length], length, product.parts);
            if (product.beta != 0)
                value += product.beta *
                         get(product.c_data, c.type, index * c.batch_step + row * c.row_step + column * c.column_step);
            if (has(epilogue, CUBLASLT_EPILOGUE_BIAS)) value += get(product.bias, d.type, row);
            const std::int64_t aux = column * product.aux_step + row;
            if (has(epilogue, CUBLASLT_EPILOGUE_GELU_AUX)) put(product.aux, d.type, aux, value);
            if (has(epilogue, CUBLASLT_EPILOGUE_GELU)) value = gelu(value);
            if (has(epilogue, CUBLASLT_EPILOGUE_DGELU)) value *= gelu_derivative(get(product.aux, d.type, aux));
            if (!row_sums.empty()) row_sums[static_cast<std::size_t>(row)] += value;
            put(product.d_data, d.type, index * d.batch_step + row * d.row_step + column * d.column_step, value);
        }
    for (std::size_t row = 0; row < row_sums.size(); ++row)
        put(product.bias, d.type, static_cast<std::int64_t>(row), row_sums[row]);
}

}  // namespace

std::size_t element_bytes(cudaDataType_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

void multiply(const MatrixProduct& product) {
    for (std::int64_t index = 0; index < product.batch; ++index) multiply_one(product, index);
}

}  // namespace lockstep::emulation
