// The stand-in's interface: descriptions, what is refused, the queue.
#include <cublasLt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/matrix_product.hpp"
#include "cuda_emulation/runtime_state.hpp"

struct cublasLtContext {
    int device;
};
namespace {

// What CUDA's opaque types stand for.
struct Layout {
    cudaDataType_t type;
    std::uint64_t rows, columns;
    std::int64_t leading_dimension;
    std::int32_t order = CUBLASLT_ORDER_COL, batch = 1;
    std::int64_t batch_offset = 0;
};
struct Description {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    void* aux = nullptr;
    std::int64_t aux_leading_dimension = 0;
    std::int32_t bias_type = -1, aux_type = -1, multiprocessors = 0;
};
struct Preference {
    std::uint64_t workspace = 0;
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    std::uint32_t alignments[4] = {256, 256, 256, 256};
};

Layout* of(cublasLtMatrixLayout_t layout) {
    return reinterpret_cast<Layout*>(layout);
}
Description* of(cublasLtMatmulDesc_t description) {
    return reinterpret_cast<Description*>(description);
}
Preference* of(cublasLtMatmulPreference_t preference) {
    return reinterpret_cast<Preference*>(preference);
}

using lockstep::emulation::element_bytes;
using lockstep::emulation::Matrix;
using lockstep::emulation::MatrixProduct;

template <class Object, class Value>
cublasStatus_t assign(Object* object, Value Object::*member, const void* value, std::size_t bytes) {
    if (object == nullptr || value == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&(object->*member), value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

bool has_bias(cublasLtEpilogue_t epilogue) {  // read or written
    return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD ||
           epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
}
bool has_aux(cublasLtEpilogue_t epilogue) {
    return (epilogue & 128) != 0;
}
bool is_known(cublasLtEpilogue_t epilogue) {
    constexpr cublasLtEpilogue_t known[] = {CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,
                                            CUBLASLT_EPILOGUE_GELU,     CUBLASLT_EPILOGUE_GELU_BIAS,
                                            CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                            CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_BGRADA,
                                            CUBLASLT_EPILOGUE_BGRADB,   CUBLASLT_EPILOGUE_DGELU_BGRAD};
    return std::find(std::begin(known), std::end(known), epilogue) != std::end(known);
}

Matrix matrix(const Layout& layout, bool transposed) {
    Matrix m{layout.type,
             static_cast<std::int64_t>(layout.rows),
             static_cast<std::int64_t>(layout.columns),
             1,
             layout.leading_dimension,
             layout.batch_offset};
    if (layout.order == CUBLASLT_ORDER_ROW) std::swap(m.row_step, m.column_step);
    if (transposed) {
        std::swap(m.rows, m.columns);
        std::swap(m.row_step, m.column_step);
    }
    return m;
}

bool is_whole(const Layout& layout) {
    const std::uint64_t least = layout.order == CUBLASLT_ORDER_ROW ? layout.columns : layout.rows;
    return layout.rows > 0 && layout.columns > 0 && layout.leading_dimension >= 0 &&
           static_cast<std::uint64_t>(layout.leading_dimension) >= least;
}

// The part of a call that the heuristic sees, too.
struct Problem {
    const Description& description;
    const Layout &a, &b, &c, &d;
};

bool types_fit(const Problem& problem) {
    const cudaDataType_t in = problem.a.type, out = problem.d.type;
    const bool inputs = in == problem.b.type && (in == CUDA_R_32F || in == CUDA_R_16BF || in == CUDA_R_16F);
    const bool scale = (problem.description.compute == CUBLAS_COMPUTE_32F ||
                        problem.description.compute == CUBLAS_COMPUTE_32F_PEDANTIC) &&
                       problem.description.scale == CUDA_R_32F;
    return inputs && scale && problem.c.type == out && (out == in || out == CUDA_R_32F);
}

cublasStatus_t check(const Problem& problem, Matrix& a, Matrix& b) {
    const Description& description = problem.description;
    const cublasLtEpilogue_t epilogue = description.epilogue;
    for (const auto* layout : {&problem.a, &problem.b, &problem.c, &problem.d})
        if (!is_whole(*layout) || layout->batch != problem.d.batch) return CUBLAS_STATUS_INVALID_VALUE;
    a = matrix(problem.a, description.transpose_a != CUBLAS_OP_N);
    b = matrix(problem.b, description.transpose_b != CUBLAS_OP_N);
    const auto m = static_cast<std::int64_t>(problem.d.rows), n = static_cast<std::int64_t>(problem.d.columns);
    if (a.rows != m || b.columns != n || a.columns != b.rows || problem.c.rows != problem.d.rows ||
        problem.c.columns != problem.d.columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(problem) || !is_known(epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_SUCCESS;
    if (problem.d.batch != 1 || problem.d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_bias(epilogue) && description.bias_type != -1 && description.bias_type != problem.d.type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_aux(epilogue)) {
        if (description.aux_type != -1 && description.aux_type != problem.d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (description.aux_leading_dimension < m || description.aux_leading_dimension % 8 != 0)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* pointer, std::uint64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

constexpr std::uint64_t algorithm_mark = 0x6c6f636b73746570;
constexpr std::uint64_t most_workspace = 64 * 1024;
constexpr std::uint64_t algorithms = 8;  // that differ in how they divide sums

// mark, workspace, alignments of A and B, of C and D, rows, columns, depth, epilogue: what the algorithm was chosen
// for; above the epilogue its number.
cublasLtMatmulAlgo_t algorithm_for(const Problem& problem, const Matrix& a, const Preference& preference,
                                   std::uint64_t number) {
    const auto pair = [&](int i) {
        return std::uint64_t{preference.alignments[i]} << 32 | preference.alignments[i + 1];
    };
    return {{algorithm_mark, std::min(preference.workspace, most_workspace), pair(0), pair(2), problem.d.rows,
             problem.d.columns, static_cast<std::uint64_t>(a.columns),
             number << 32 | static_cast<std::uint64_t>(problem.description.epilogue)}};
}

std::uint64_t number_of(const cublasLtMatmulAlgo_t& algorithm) {
    return algorithm.data[7] >> 32;
}

// Multiples of seconds, beside which the computer's own speed does not count.
double seconds_of(std::uint64_t number, const Problem& problem, const Matrix& a) {
    const char* given = std::getenv("LOCKSTEP_EMULATED_PRODUCT_TIMES");
    std::uint64_t drawn = given != nullptr ? std::strtoull(given, nullptr, 10) : 0;
    for (const std::uint64_t part : {problem.d.rows, problem.d.columns, static_cast<std::uint64_t>(a.columns),
                                     static_cast<std::uint64_t>(problem.description.epilogue)})
        drawn = (drawn ^ part) * 0x9e3779b97f4a7c15u >> 7;
    return 10.0 + 4.0 * static_cast<double>((3 * number + drawn) % algorithms);
}

bool fits(const cublasLtMatmulAlgo_t& algorithm, const Problem& problem, const Matrix& a) {
    return algorithm.data[0] == algorithm_mark && algorithm.data[4] == problem.d.rows &&
           algorithm.data[5] == problem.d.columns && algorithm.data[6] == static_cast<std::uint64_t>(a.columns) &&
           (algorithm.data[7] & 0xffffffffu) == static_cast<std::uint64_t>(problem.description.epilogue) &&
           number_of(algorithm) < algorithms;
}

// Says which memory a product has written.
void note_results(const MatrixProduct& product) {
    const auto note = [](void* data, cudaDataType_t type, std::int64_t first, std::int64_t count) {
        const auto bytes = static_cast<std::int64_t>(element_bytes(type));
        lockstep::emulation::note_written(static_cast<char*>(data) + first * bytes,
                                          static_cast<std::size_t>(count * bytes));
    };
    const Matrix& d = product.d;
    const bool columns_whole = d.row_step == 1;
    const std::int64_t runs = columns_whole ? d.columns : d.rows, length = columns_whole ? d.rows : d.columns;
    const std::int64_t step = columns_whole ? d.column_step : d.row_step;
    for (std::int64_t batch = 0; batch < product.batch; ++batch)
        for (std::int64_t run = 0; run < runs; ++run)
            note(product.d_data, d.type, batch * d.batch_step + run * step, length);
    const bool writes_aux =
        product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || product.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    for (std::int64_t run = 0; writes_aux && run < d.columns; ++run)
        note(product.aux, d.type, run * product.aux_step, d.rows);
    if (product.epilogue == CUBLASLT_EPILOGUE_BGRADB) note(product.bias, d.type, 0, d.columns);
    if (product.epilogue == CUBLASLT_EPILOGUE_BGRADA || product.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
        note(product.bias, d.type, 0, d.rows);
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR:
            return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR:
            return "CUBLAS_STATUS_LICENSE_ERROR";
        default:
            return "CUBLAS_STATUS_UNKNOWN";
    }
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

std::size_t cublasLtGetVersion() {
    const char* given = std::getenv("LOCKSTEP_EMULATED_CUBLASLT_VERSION");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{device};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading_dimension) {
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, leading_dimension});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete of(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE:
            return assign(of(layout), &Layout::type, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ORDER:
            return assign(of(layout), &Layout::order, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ROWS:
            return assign(of(layout), &Layout::rows, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_COLS:
            return assign(of(layout), &Layout::columns, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_LD:
            return assign(of(layout), &Layout::leading_dimension, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return assign(of(layout), &Layout::batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return assign(of(layout), &Layout::batch_offset, value, bytes);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
    delete of(description);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return assign(of(description), &Description::transpose_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return assign(of(description), &Description::transpose_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return assign(of(description), &Description::epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return assign(of(description), &Description::bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return assign(of(description), &Description::aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return assign(of(description), &Description::aux_leading_dimension, value, bytes);
        case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
            return assign(of(description), &Description::multiprocessors, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
            return assign(of(description), &Description::aux_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return assign(of(description), &Description::bias_type, value, bytes);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete of(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return assign(of(preference), &Preference::workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return assign(of(preference), &Preference::reductions, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
            std::uint32_t alignment = 0;
            if (preference == nullptr || value == nullptr || bytes != sizeof alignment)
                return CUBLAS_STATUS_INVALID_VALUE;
            std::memcpy(&alignment, value, bytes);
            if (alignment == 0 || (alignment & (alignment - 1)) != 0) return CUBLAS_STATUS_INVALID_VALUE;
            of(preference)->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = alignment;
            return CUBLAS_STATUS_SUCCESS;
        }
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
    *found = 0;
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!description || !a || !b || !c || !d || !preference || requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const Problem problem{*of(description), *of(a), *of(b), *of(c), *of(d)};
    Matrix left, right;
    if (const cublasStatus_t status = check(problem, left, right); status != CUBLAS_STATUS_SUCCESS) return status;
    const std::size_t sizes[] = {element_bytes(problem.a.type), element_bytes(problem.b.type),
                                 element_bytes(problem.c.type), element_bytes(problem.d.type)};
    for (int i = 0; i < 4; ++i)
        if (of(preference)->alignments[i] < sizes[i]) return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = std::min(requested, static_cast<int>(algorithms));
    for (int i = 0; i < *found; ++i) {
        results[i] = {};
        results[i].algo = algorithm_for(problem, left, *of(preference), static_cast<std::uint64_t>(i));
        results[i].workspaceSize = std::min(of(preference)->workspace, most_workspace);
        results[i].state = CUBLAS_STATUS_SUCCESS;
        results[i].wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!description || !a || !b || !c || !d || !algorithm || !result) return CUBLAS_STATUS_INVALID_VALUE;
    const Problem problem{*of(description), *of(a), *of(b), *of(c), *of(d)};
    Matrix left, right;
    if (const cublasStatus_t status = check(problem, left, right); status != CUBLAS_STATUS_SUCCESS) return status;
    if (!fits(*algorithm, problem, left)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *result = {};
    result->algo = *algorithm;
    result->workspaceSize = algorithm->data[1];
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!description || !alpha || !beta || !a || !b || !d || !a_layout || !b_layout || !c_layout || !d_layout)
        return CUBLAS_STATUS_INVALID_VALUE;
    const Problem problem{*of(description), *of(a_layout), *of(b_layout), *of(c_layout), *of(d_layout)};
    MatrixProduct product;
    if (const cublasStatus_t status = check(problem, product.a, product.b); status != CUBLAS_STATUS_SUCCESS)
        return status;
    std::memcpy(&product.alpha, alpha, sizeof product.alpha);
    std::memcpy(&product.beta, beta, sizeof product.beta);
    if (product.beta != 0 && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (c == d && (problem.c.leading_dimension != problem.d.leading_dimension || problem.c.order != problem.d.order))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes > 0 && (workspace == nullptr || !aligned(workspace, 16))) return CUBLAS_STATUS_INVALID_VALUE;
    std::uint64_t alignments[] = {element_bytes(problem.a.type), element_bytes(problem.b.type),
                                  element_bytes(problem.c.type), element_bytes(problem.d.type)};
    std::size_t used_workspace = 0;
    std::uint64_t number = 0;
    if (algorithm != nullptr) {
        if (!fits(*algorithm, problem, product.a) || algorithm->data[1] > workspace_bytes)
            return CUBLAS_STATUS_INVALID_VALUE;
        used_workspace = algorithm->data[1];
        number = number_of(*algorithm);
        for (std::size_t i = 0; i < 4; ++i)
            alignments[i] = (algorithm->data[2 + i / 2] >> (i % 2 == 0 ? 32 : 0)) & 0xffffffffu;
    }
    const void* operands[] = {a, b, product.beta != 0 ? c : nullptr, d};
    for (std::size_t i = 0; i < 4; ++i)
        if (!aligned(operands[i], alignments[i])) return CUBLAS_STATUS_INVALID_VALUE;
    const cublasLtEpilogue_t epilogue = problem.description.epilogue;
    const std::size_t element = element_bytes(problem.d.type);
    if (has_bias(epilogue) && (problem.description.bias == nullptr || !aligned(problem.description.bias, element)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_aux(epilogue) && (problem.description.aux == nullptr || !aligned(problem.description.aux, element)))
        return CUBLAS_STATUS_INVALID_VALUE;
    product.c = matrix(problem.c, false);
    product.d = matrix(problem.d, false);
    product.a_data = a;
    product.b_data = b;
    product.c_data = c;
    product.d_data = d;
    product.batch = problem.d.batch;
    product.epilogue = epilogue;
    product.bias = problem.description.bias;
    product.aux = problem.description.aux;
    product.aux_step = problem.description.aux_leading_dimension;
    product.parts = static_cast<std::size_t>(number) + 1;
    const double seconds = seconds_of(number, problem, product.a);
    {
        const std::lock_guard lock(lockstep::emulation::device_lock());
        if (!lockstep::emulation::is_valid(stream)) return CUBLAS_STATUS_INVALID_VALUE;
        lockstep::emulation::enqueue(stream, "matrix product", [product, workspace, used_workspace, seconds] {
            if (used_workspace > 0) std::memset(workspace, 0xff, used_workspace);  // as an algorithm may
            multiply(product);
            note_results(product);
            lockstep::emulation::pass_time(seconds);
        });
    }
    return CUBLAS_STATUS_SUCCESS;
}
