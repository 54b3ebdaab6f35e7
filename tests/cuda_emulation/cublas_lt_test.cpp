// The stand-in for cuBLASLt against sums in double, for every transposition and epilogue, and what it refuses.
#include <cublasLt.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "base/random.hpp"
#include "cuda_emulation/test_support.hpp"

namespace lockstep::emulation::test {

namespace {

using kernels::cuda::bf16;
using kernels::cuda::fp16;

// A column-major matrix on the device with its values in double, rounded to its type.
class Operand {
  public:
    Operand(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading, const char* purpose)
        : type_(type),
          leading_(leading),
          values_(static_cast<std::size_t>(leading * columns)),
          memory_(values_.size() * element_size()) {
        const RandomStream stream(5, purpose);
        for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = round(static_cast<float>(stream.normal(i)));
        std::vector<char> bytes(values_.size() * element_size());
        for (std::size_t i = 0; i < values_.size(); ++i) encode(bytes.data(), i, static_cast<float>(values_[i]));
        BOOST_REQUIRE(cudaMemcpy(memory_.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess);
        BOOST_REQUIRE(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<std::uint64_t>(rows),
                                                 static_cast<std::uint64_t>(columns),
                                                 leading) == CUBLAS_STATUS_SUCCESS);
    }
    Operand(const Operand&) = delete;
    Operand& operator=(const Operand&) = delete;
    ~Operand() { cublasLtMatrixLayoutDestroy(layout_); }

    cublasLtMatrixLayout_t layout() const { return layout_; }
    char* data() const { return memory_.get(); }
    double at(std::int64_t row, std::int64_t column) const {  // at first
        return values_[static_cast<std::size_t>(column * leading_ + row)];
    }
    double now(std::int64_t row, std::int64_t column) const {
        const std::vector<char> bytes = memory_.values();
        return decode(bytes.data(), static_cast<std::size_t>(column * leading_ + row));
    }
    std::vector<double> all_now() const {
        const std::vector<char> bytes = memory_.values();
        std::vector<double> values(values_.size());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(bytes.data(), i);
        return values;
    }
    std::int64_t leading() const { return leading_; }

  private:
    std::size_t element_size() const { return type_ == CUDA_R_32F ? 4 : 2; }
    double round(float value) const {
        if (type_ == CUDA_R_16BF) return kernels::cuda::to_float(kernels::cuda::from_float<bf16>(value));
        if (type_ == CUDA_R_16F) return kernels::cuda::to_float(kernels::cuda::from_float<fp16>(value));
        return value;
    }
    void encode(char* bytes, std::size_t i, float value) const {
        if (type_ == CUDA_R_32F) {
            std::memcpy(bytes + 4 * i, &value, 4);
        } else {
            const std::uint16_t bits = type_ == CUDA_R_16BF ? kernels::cuda::from_float<bf16>(value).bits
                                                            : kernels::cuda::from_float<fp16>(value).bits;
            std::memcpy(bytes + 2 * i, &bits, 2);
        }
    }
    double decode(const char* bytes, std::size_t i) const {
        if (type_ == CUDA_R_32F) {
            float value = 0;
            std::memcpy(&value, bytes + 4 * i, 4);
            return value;
        }
        std::uint16_t bits = 0;
        std::memcpy(&bits, bytes + 2 * i, 2);
        return type_ == CUDA_R_16BF ? kernels::cuda::to_float(bf16{bits}) : kernels::cuda::to_float(fp16{bits});
    }

    cudaDataType_t type_;
    std::int64_t leading_;
    std::vector<double> values_;
    DeviceMemory<char> memory_;
    cublasLtMatrixLayout_t layout_ = nullptr;
};

class Library {
  public:
    Library() {
        BOOST_REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        BOOST_REQUIRE(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
        BOOST_REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;
    ~Library() {
        cublasLtMatmulPreferenceDestroy(preference);
        cublasLtMatmulDescDestroy(description);
        cublasLtDestroy(handle);
    }
    template <class Value>
    void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
        BOOST_REQUIRE(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value) ==
                      CUBLAS_STATUS_SUCCESS);
    }
    cublasStatus_t choose(const Operand& a, const Operand& b, const Operand& c, const Operand& d) {
        int found = 0;
        const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
            handle, description, a.layout(), b.layout(), c.layout(), d.layout(), preference, 1, &result, &found);
        BOOST_TEST(found == (status == CUBLAS_STATUS_SUCCESS ? 1 : 0));
        return status;
    }
    cublasStatus_t run(const Operand& a, const Operand& b, const Operand& c, Operand& d, float alpha, float beta) {
        return cublasLtMatmul(handle, description, &alpha, a.data(), a.layout(), b.data(), b.layout(), &beta, c.data(),
                              c.layout(), d.data(), d.layout(), &result.algo, nullptr, 0, nullptr);
    }

    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasLtMatmulHeuristicResult_t result{};
};

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
    const double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

struct Shape {
    std::int64_t m, n, k;
};
struct Types {
    cudaDataType_t in, out;
};

void check_product(const Shape& shape, const Types& types, bool transpose_a, bool transpose_b,
                   cublasLtEpilogue_t epilogue, float alpha, float beta) {
    const auto [m, n, k] = shape;
    const Operand a(types.in, transpose_a ? k : m, transpose_a ? m : k, (transpose_a ? k : m) + 3, "a");
    const Operand b(types.in, transpose_b ? n : k, transpose_b ? k : n, (transpose_b ? n : k) + 1, "b");
    const Operand c(types.out, m, n, m + 5, "c");
    Operand d(types.out, m, n, m + 2, "d");
    const Operand bias(types.out, std::max(m, n), 1, std::max(m, n), "bias");
    const Operand aux(types.out, m, n, (m + 7) / 8 * 8, "aux");
    Library library;
    library.set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    library.set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    library.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux.data());
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux.leading());
    BOOST_REQUIRE(library.choose(a, b, c, d) == CUBLAS_STATUS_SUCCESS);
    BOOST_REQUIRE(library.run(a, b, c, d, alpha, beta) == CUBLAS_STATUS_SUCCESS);

    const std::vector<double> results = d.all_now(), bias_now = bias.all_now(), aux_now = aux.all_now();
    const auto a_at = [&](std::int64_t row, std::int64_t p) { return transpose_a ? a.at(p, row) : a.at(row, p); };
    const auto b_at = [&](std::int64_t p, std::int64_t column) {
        return transpose_b ? b.at(column, p) : b.at(p, column);
    };
    const double roundoff = types.out == CUDA_R_16BF ? 0x1p-8 : types.out == CUDA_R_16F ? 0x1p-11 : 0x1p-24;
    const auto close = [&](double actual, double expected, double size) {
        const double error = std::abs(actual - expected);
        BOOST_TEST(error <= roundoff * std::abs(expected) + 1e-5 * size + 1e-7,
                   "epilogue " << epilogue << ": " << actual << ", expected " << expected);
    };
    const bool with_bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    std::vector<double> row_sums(static_cast<std::size_t>(m), 0.0);
    const double size = 8 * std::sqrt(static_cast<double>(k)) + 8;
    for (std::int64_t column = 0; column < n; ++column)
        for (std::int64_t row = 0; row < m; ++row) {
            double value = 0;
            for (std::int64_t p = 0; p < k; ++p) value += a_at(row, p) * b_at(p, column);
            value = alpha * value + beta * c.at(row, column);
            if (with_bias) value += bias.at(row, 0);
            if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                close(aux_now[static_cast<std::size_t>(column * aux.leading() + row)], value, size);
            if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) value = gelu(value);
            if (epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
                value *= gelu_slope(aux.at(row, column));
            close(results[static_cast<std::size_t>(column * d.leading() + row)], value, size);
            row_sums[static_cast<std::size_t>(row)] += value;
        }
    for (std::int64_t row = m; row < d.leading(); ++row)  // between the columns nothing is written
        BOOST_TEST(results[static_cast<std::size_t>(row)] == d.at(row, 0));
    if (epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        for (std::size_t row = 0; row < row_sums.size(); ++row)
            close(bias_now[row], row_sums[row], size * static_cast<double>(n));
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB)
        for (std::int64_t i = 0; i < (epilogue == CUBLASLT_EPILOGUE_BGRADA ? m : n); ++i) {
            double sum = 0;
            for (std::int64_t p = 0; p < k; ++p) sum += epilogue == CUBLASLT_EPILOGUE_BGRADA ? a_at(i, p) : b_at(p, i);
            close(bias_now[static_cast<std::size_t>(i)], sum, size);
        }
}

constexpr Types all_types[] = {{CUDA_R_32F, CUDA_R_32F},
                               {CUDA_R_16BF, CUDA_R_16BF},
                               {CUDA_R_16BF, CUDA_R_32F},
                               {CUDA_R_16F, CUDA_R_16F},
                               {CUDA_R_16F, CUDA_R_32F}};

}  // namespace

BOOST_AUTO_TEST_SUITE(cublas_lt)

BOOST_AUTO_TEST_CASE(products_of_odd_sizes_and_all_types) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{7, 5, 3}, Shape{33, 1, 17}, Shape{1, 31, 40}, Shape{19, 23, 97}})
        for (const Types& types : all_types)
            for (const bool transpose_a : {false, true})
                for (const bool transpose_b : {false, true})
                    check_product(shape, types, transpose_a, transpose_b, CUBLASLT_EPILOGUE_DEFAULT, 0.5f, 2.0f);
}

BOOST_AUTO_TEST_CASE(epilogues) {
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS,
                                CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
                                CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB})
        for (const Types& types : all_types)
            for (const bool transpose : {false, true})
                check_product({13, 9, 21}, types, transpose, !transpose, epilogue, 0.5f, 0.0f);
    check_product({8, 3, 5}, all_types[0], false, false, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1.0f, 1.0f);
}

BOOST_AUTO_TEST_CASE(scales_are_read_at_the_call_and_operands_when_it_runs) {
    const Operand a(CUDA_R_32F, 1, 1, 1, "a"), b(CUDA_R_32F, 1, 1, 1, "b");
    Operand d(CUDA_R_32F, 1, 1, 1, "d");
    Library library;
    BOOST_REQUIRE(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    float alpha = 1, beta = 1;
    BOOST_REQUIRE(cublasLtMatmul(library.handle, library.description, &alpha, a.data(), a.layout(), b.data(),
                                 b.layout(), &beta, d.data(), d.layout(), d.data(), d.layout(), nullptr, nullptr, 0,
                                 nullptr) == CUBLAS_STATUS_SUCCESS);
    alpha = beta = 100;
    BOOST_TEST(pending_operations() == 1u);
    BOOST_TEST(d.now(0, 0) == d.at(0, 0) + a.at(0, 0) * b.at(0, 0), boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(batches_and_row_major_matrices) {
    const std::int64_t m = 3, n = 4, k = 5;
    const std::int32_t batch = 2, rows = CUBLASLT_ORDER_ROW;
    const Operand a(CUDA_R_32F, m, batch * k, m, "a"), b(CUDA_R_32F, n, batch * k, n, "b");  // b row-major [k, n]
    Operand d(CUDA_R_32F, m, batch * n, m, "d");
    const auto set = [](const Operand& operand, cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
        BOOST_REQUIRE(cublasLtMatrixLayoutSetAttribute(operand.layout(), attribute, &value, sizeof value) ==
                      CUBLAS_STATUS_SUCCESS);
    };
    for (const Operand* operand : {&a, &b, static_cast<const Operand*>(&d)})
        set(*operand, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch);
    set(a, CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<std::uint64_t>(k));
    set(a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m * k);
    set(b, CUBLASLT_MATRIX_LAYOUT_ORDER, rows);
    set(b, CUBLASLT_MATRIX_LAYOUT_ROWS, static_cast<std::uint64_t>(k));
    set(b, CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<std::uint64_t>(n));
    set(b, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, k * n);
    set(d, CUBLASLT_MATRIX_LAYOUT_COLS, static_cast<std::uint64_t>(n));
    set(d, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m * n);
    Library library;
    BOOST_REQUIRE(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    BOOST_REQUIRE(library.run(a, b, d, d, 1, 0) == CUBLAS_STATUS_SUCCESS);
    const std::vector<double> results = d.all_now();
    for (std::int64_t i = 0; i < batch; ++i)
        for (std::int64_t row = 0; row < m; ++row)
            for (std::int64_t column = 0; column < n; ++column) {
                double expected = 0;
                for (std::int64_t p = 0; p < k; ++p) expected += a.at(row, i * k + p) * b.at(column, i * k + p);
                BOOST_TEST(std::abs(results[static_cast<std::size_t>(i * m * n + column * m + row)] - expected) < 1e-5);
            }
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
    const Operand a(CUDA_R_16BF, 8, 8, 8, "a"), b(CUDA_R_16BF, 8, 8, 8, "b"), half(CUDA_R_16F, 8, 8, 8, "half");
    const Operand single(CUDA_R_32F, 8, 8, 8, "single"), narrow(CUDA_R_16BF, 8, 7, 8, "narrow");
    Operand d(CUDA_R_16BF, 8, 8, 8, "d");
    Library library;
    BOOST_TEST(library.choose(a, half, d, d) == CUBLAS_STATUS_NOT_SUPPORTED);
    BOOST_TEST(library.choose(single, single, d, d) == CUBLAS_STATUS_NOT_SUPPORTED);
    BOOST_TEST(library.choose(a, b, half, half) == CUBLAS_STATUS_NOT_SUPPORTED);
    BOOST_TEST(library.choose(a, b, single, d) == CUBLAS_STATUS_NOT_SUPPORTED);
    BOOST_TEST(library.choose(narrow, b, d, d) == CUBLAS_STATUS_INVALID_VALUE);
    const std::int64_t short_leading = 7;
    BOOST_REQUIRE(cublasLtMatrixLayoutSetAttribute(narrow.layout(), CUBLASLT_MATRIX_LAYOUT_LD, &short_leading,
                                                   sizeof short_leading) == CUBLAS_STATUS_SUCCESS);
    BOOST_TEST(library.choose(a, narrow, d, d) == CUBLAS_STATUS_INVALID_VALUE);

    // A pointer that is less aligned than the algorithm was chosen for; a workspace that is smaller.
    BOOST_REQUIRE(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    const float one = 1, zero = 0;
    const auto run = [&](const void* a_data, const void* workspace, std::size_t bytes) {
        return cublasLtMatmul(library.handle, library.description, &one, a_data, a.layout(), b.data(), b.layout(),
                              &zero, d.data(), d.layout(), d.data(), d.layout(), &library.result.algo,
                              const_cast<void*>(workspace), bytes, nullptr);
    };
    BOOST_TEST(run(a.data(), nullptr, 0) == CUBLAS_STATUS_SUCCESS);
    BOOST_TEST(run(a.data() + 16, nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);
    const std::uint64_t workspace_bytes = 4096;
    BOOST_REQUIRE(cublasLtMatmulPreferenceSetAttribute(library.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                       &workspace_bytes,
                                                       sizeof workspace_bytes) == CUBLAS_STATUS_SUCCESS);
    BOOST_REQUIRE(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    const DeviceMemory<char> workspace(workspace_bytes + 16);
    BOOST_TEST(run(a.data(), nullptr, 0) == CUBLAS_STATUS_INVALID_VALUE);
    BOOST_TEST(run(a.data(), workspace.get() + 8, workspace_bytes) == CUBLAS_STATUS_INVALID_VALUE);
    BOOST_TEST(run(a.data(), workspace.get(), workspace_bytes) == CUBLAS_STATUS_SUCCESS);

    // Epilogues without their pointers, and a leading dimension that no algorithm takes.
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    BOOST_REQUIRE(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    BOOST_TEST(run(a.data(), workspace.get(), workspace_bytes) == CUBLAS_STATUS_INVALID_VALUE);
    library.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, std::int32_t{CUDA_R_32F});
    BOOST_TEST(library.choose(a, b, d, d) == CUBLAS_STATUS_NOT_SUPPORTED);
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX);
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{12});
    BOOST_TEST(library.choose(a, b, d, d) == CUBLAS_STATUS_NOT_SUPPORTED);
    library.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{16});
    BOOST_TEST(library.choose(a, b, d, d) == CUBLAS_STATUS_SUCCESS);
    BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
