#include "kernels/cuda/products.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <set>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "device/cuda/check.hpp"
#include "device/sync.hpp"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // NVIDIA's recommendation for Hopper

cudaDataType_t cuda_type(Type type) {
    switch (type) {
        case Type::fp32:
            return CUDA_R_32F;
        case Type::bf16:
            return CUDA_R_16BF;
        case Type::fp16:
            return CUDA_R_16F;
        default:
            throw fault_error("a matrix product was called with a tensor of {}; it supports fp32, bf16 and fp16",
                              type_name(type));
    }
}

struct EpilogueTraits {
    const char* words;  // for errors
    cublasLtEpilogue_t value;
    bool has_bias, has_aux;
};

EpilogueTraits traits(Epilogue epilogue) {
    switch (epilogue) {
        case Epilogue::bias:
            return {" with a bias", CUBLASLT_EPILOGUE_BIAS, true, false};
        case Epilogue::gelu:
            return {" with GELU", CUBLASLT_EPILOGUE_GELU_AUX, false, true};
        case Epilogue::gelu_bias:
            return {" with a bias and GELU", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true};
        case Epilogue::gelu_backward:
            return {" with the derivative of GELU", CUBLASLT_EPILOGUE_DGELU, false, true};
        case Epilogue::bias_gradient:  // op(a) is cuBLASLt's B
            return {" with the gradient of a bias", CUBLASLT_EPILOGUE_BGRADB, true, false};
        case Epilogue::none:
            break;
    }
    return {"", CUBLASLT_EPILOGUE_DEFAULT, false, false};
}

std::string words_of(const ProductKind& kind) {
    return fmt::format("the matrix product [{}, {}]{} x [{}, {}]{} of {} to {}{}{}", kind.m, kind.k,
                       kind.transpose_a ? " (transposed)" : "", kind.k, kind.n, kind.transpose_b ? " (transposed)" : "",
                       type_name(kind.input), type_name(kind.output), kind.add ? " added to a matrix" : "",
                       traits(kind.epilogue).words);
}

void check(cublasStatus_t status, const ProductKind& kind, const char* where) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw fault_error("cuBLASLt failed in {} for {}: {} ({}); CUBLASLT_LOG_LEVEL=2 shows its reason", where,
                      words_of(kind), cublasLtGetStatusName(status), static_cast<int>(status));
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value,
         const ProductKind& kind) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)), kind, "describing");
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value,
         const ProductKind& kind) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)), kind, "describing");
}

constexpr int greatest_alignment = 8;  // log2: the heuristic distinguishes no more than 256 bytes

std::uint8_t alignment_of(const void* pointer) {  // null counts as aligned
    return static_cast<std::uint8_t>(
        std::min(std::countr_zero(reinterpret_cast<std::uintptr_t>(pointer)), greatest_alignment));
}

// A product cut in two, for cuBLASLt's fast kernels, which want whole 16 bytes along the rows of every matrix: on an
// H100 a head's products with a vocabulary of 50,257 ran at 104 and 115 TFLOP/s, even in rows of 50,304.
struct Part {
    ProductKind kind;
    ProductOperands operands;
};
constexpr std::int64_t piece = 8;                            // elements: 16 bytes
constexpr std::int64_t least_terms = 128;                    // so that those of the tail are few
constexpr std::int64_t least_split = std::int64_t{1} << 28;  // multiplications; a launch more gains nothing below

bool uneven(std::int64_t size) {
    return size > piece && size % piece != 0;
}

bool may_split(const ProductKind& kind, const ProductOperands& operands) {
    const auto aligned = [](const void* data, std::int64_t stride, Type type) {
        return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
               static_cast<std::size_t>(stride) * type_bytes(type) % 16 == 0;
    };
    return kind.input != Type::fp32 && kind.epilogue == Epilogue::none && kind.m * kind.n >= least_split / kind.k &&
           aligned(operands.a, kind.stride_a, kind.input) && aligned(operands.b, kind.stride_b, kind.input) &&
           aligned(operands.d, kind.stride_d, kind.output) && aligned(operands.c, kind.stride_d, kind.output);
}

// The tail, which runs first, and the body; empty where there is nothing to gain.
std::vector<Part> split(const ProductKind& kind, const ProductOperands& operands) {
    if (!may_split(kind, operands)) return {};
    Part tail{kind, operands}, body = tail;
    const auto input = static_cast<std::int64_t>(type_bytes(kind.input)),
               output = static_cast<std::int64_t>(type_bytes(kind.output));
    const auto cut = [&](std::int64_t ProductKind::*size) {
        tail.kind.*size = kind.*size % piece;
        body.kind.*size = kind.*size - tail.kind.*size;
        return body.kind.*size;
    };
    const auto advance_result = [&](std::int64_t elements) {
        tail.operands.d = static_cast<std::byte*>(operands.d) + elements * output;
        if (kind.add) tail.operands.c = static_cast<const std::byte*>(operands.c) + elements * output;
    };
    const auto advanced = [&](const void* data, std::int64_t elements) {
        return static_cast<const std::byte*>(data) + elements * input;
    };
    if (uneven(kind.n)) {
        const std::int64_t columns = cut(&ProductKind::n);
        tail.operands.b = advanced(operands.b, columns * (kind.transpose_b ? kind.stride_b : 1));
        advance_result(columns);
    } else if (kind.transpose_a && uneven(kind.m)) {
        const std::int64_t rows = cut(&ProductKind::m);
        tail.operands.a = advanced(operands.a, rows);
        advance_result(rows * kind.stride_d);
    } else if ((!kind.transpose_a || kind.transpose_b) && kind.k >= least_terms && uneven(kind.k) &&
               (!kind.add || kind.output == Type::fp32)) {
        // A tail of a few terms is small: rounded to 16 bits between the two, it loses next to nothing.
        const std::int64_t terms = cut(&ProductKind::k);
        tail.operands.a = advanced(operands.a, terms * (kind.transpose_a ? kind.stride_a : 1));
        tail.operands.b = advanced(operands.b, terms * (kind.transpose_b ? 1 : kind.stride_b));
        body.kind.add = true;
        body.operands.c = body.operands.d;
    } else {
        return {};
    }
    return {tail, body};
}

}  // namespace

void say_not_fused(const ProductKind& kind) {
    using Class = std::tuple<Epilogue, Type, Type, bool, bool, bool>;
    static std::set<Class> said;
    const auto whole = [](std::int64_t stride, Type type) {
        return static_cast<std::size_t>(stride) * type_bytes(type) % 16 == 0;
    };
    const Class shape_class{kind.epilogue,
                            kind.input,
                            kind.output,
                            whole(kind.stride_a, kind.input),
                            whole(kind.stride_b, kind.input),
                            whole(kind.stride_d, kind.output)};
    if (said.insert(shape_class).second)
        log::info("cuBLASLt does not offer {}; the bias or GELU runs as a separate kernel", words_of(kind));
}

CudaBackend::Products::Products(CudaContext& context)
    : context_(context), workspace_(context.device(), workspace_bytes, "the matrix-product workspace") {
    cublasLtHandle_t handle = nullptr;
    const cublasStatus_t status = cublasLtCreate(&handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        throw fault_error("cuBLASLt cannot be initialized on this GPU: {} ({})", cublasLtGetStatusName(status),
                          static_cast<int>(status));
    handle_.reset(handle);
}

std::size_t CudaBackend::Products::Hash::operator()(const Key& key) const {
    std::uint64_t hash = 0;
    const auto mix = [&](std::uint64_t value) { hash = std::rotl((hash ^ value) * 0x9e3779b97f4a7c15u, 29); };
    const ProductKind& kind = key.kind;
    mix(static_cast<std::uint64_t>(kind.m));
    mix(static_cast<std::uint64_t>(kind.n));
    mix(static_cast<std::uint64_t>(kind.k));
    mix(static_cast<std::uint64_t>(kind.stride_a));
    mix(static_cast<std::uint64_t>(kind.stride_b));
    mix(static_cast<std::uint64_t>(kind.stride_d));
    mix(static_cast<std::uint64_t>(kind.transpose_a) | static_cast<std::uint64_t>(kind.transpose_b) << 1 |
        static_cast<std::uint64_t>(kind.add) << 2 | static_cast<std::uint64_t>(kind.epilogue) << 8 |
        static_cast<std::uint64_t>(kind.input) << 16 | static_cast<std::uint64_t>(kind.output) << 24);
    for (const std::uint8_t alignment : key.alignments) mix(alignment);
    return hash;
}

// A row-major [rows, columns] operand, or one stored as its transpose, as cuBLASLt sees it: the column-major matrix
// with the same memory layout.
CudaBackend::Products::Layout CudaBackend::Products::make_layout(const ProductKind& kind, Type type, std::int64_t rows,
                                                                 std::int64_t columns, std::int64_t stride,
                                                                 bool transposed) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t layout = nullptr;
    check(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), stride),
          kind, "describing");
    return Layout(layout);
}

void CudaBackend::Products::point_epilogue(const Plan& plan, const ProductKind& kind, const ProductOperands& operands) {
    const EpilogueTraits epilogue = traits(kind.epilogue);
    if (epilogue.has_bias) set(plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias, kind);
    if (epilogue.has_aux) set(plan.description.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux, kind);
}

CudaBackend::Products::Plan CudaBackend::Products::describe(const Key& key, const ProductOperands& operands) const {
    const ProductKind& kind = key.kind;
    Plan plan;
    cublasLtMatmulDesc_t description = nullptr;
    // fp32 stays fp32: TF32 would need CUBLAS_COMPUTE_32F_FAST_TF32.
    check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), kind, "describing");
    plan.description.reset(description);
    const EpilogueTraits epilogue = traits(kind.epilogue);
    const cublasOperation_t left = kind.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = kind.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, left, kind);
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, right, kind);
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue.value, kind);
    if (epilogue.has_aux) set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kind.n, kind);
    plan.left = make_layout(kind, kind.input, kind.k, kind.n, kind.stride_b, kind.transpose_b);
    plan.right = make_layout(kind, kind.input, kind.m, kind.k, kind.stride_a, kind.transpose_a);
    plan.result = make_layout(kind, kind.output, kind.m, kind.n, kind.stride_d, false);
    point_epilogue(plan, kind, operands);
    return plan;
}

CudaBackend::Products::Proposals CudaBackend::Products::propose(const Plan& plan, const Key& key, int most) const {
    const ProductKind& kind = key.kind;
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), kind, "describing");
    const Preference owner(preference);
    const auto workspace = static_cast<std::uint64_t>(workspace_.capacity());
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace, kind);
    // Partial sums are added in fp32, even for 16-bit results.
    const std::uint32_t reductions =
        kind.output == Type::fp32 ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions, kind);
    const auto bytes = [&](std::size_t operand) { return std::uint32_t{1} << key.alignments[operand]; };
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(1), kind);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(0), kind);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(2), kind);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(3), kind);

    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int found = 0;
    Proposals proposals;
    proposals.status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan.description.get(), plan.left.get(), plan.right.get(),
                                       plan.result.get(), plan.result.get(), preference, most, results.data(), &found);
    for (int i = 0; proposals.status == CUBLAS_STATUS_SUCCESS && i < found; ++i) {
        const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
        if (result.state == CUBLAS_STATUS_SUCCESS) proposals.algorithms.push_back(result.algo);
    }
    if (proposals.status == CUBLAS_STATUS_SUCCESS && proposals.algorithms.empty())
        proposals.status = CUBLAS_STATUS_NOT_SUPPORTED;
    return proposals;
}

bool CudaBackend::Products::takes(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_.get(), plan.description.get(), plan.left.get(), plan.right.get(),
                                   plan.result.get(), plan.result.get(), &algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_.capacity();
}

// The algorithm that was chosen for all ranks, or else the heuristic's first.
CudaBackend::Products::Plan CudaBackend::Products::make(const Key& key, const ProductOperands& operands) const {
    const ProductKind& kind = key.kind;
    Plan plan = describe(key, operands);
    if (!chosen_.empty()) {
        const auto chosen = chosen_.find(key.text());
        if (chosen != chosen_.end() && takes(plan, chosen->second)) {
            plan.algorithm = chosen->second;
            plan.possible = true;
            return plan;
        }
    }
    const Proposals proposals = propose(plan, key, 1);
    const cublasStatus_t status = proposals.status;
    plan.possible = status == CUBLAS_STATUS_SUCCESS;
    if (plan.possible) {
        plan.algorithm = proposals.algorithms.front();
        if (!chosen_.empty()) log::detail("{} was not timed; using cuBLASLt's first proposal", words_of(kind));
    } else if (kind.epilogue == Epilogue::none ||
               (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)) {
        check(status, kind, "choosing an algorithm");
    } else {
        say_not_fused(kind);
    }
    return plan;
}

cublasStatus_t CudaBackend::Products::issue(const Plan& plan, const Key& key, const ProductOperands& operands,
                                            const cublasLtMatmulAlgo_t& algorithm) {
    const ProductKind& kind = key.kind;
    point_epilogue(plan, kind, operands);
    const float one = 1, addend = kind.add ? 1 : 0;
    return cublasLtMatmul(handle_.get(), plan.description.get(), &one, operands.b, plan.left.get(), operands.a,
                          plan.right.get(), &addend, kind.add ? operands.c : operands.d, plan.result.get(), operands.d,
                          plan.result.get(), &algorithm, workspace_.data(), workspace_.capacity(), context_.compute());
}

bool CudaBackend::Products::run(const ProductKind& kind, const ProductOperands& operands) {
    const std::vector<Part> parts = split(kind, operands);
    if (parts.empty()) return run_whole(kind, operands);
    for (const Part& part : parts) run(part.kind, part.operands);
    return true;
}

bool CudaBackend::Products::run_whole(const ProductKind& kind, const ProductOperands& operands) {
    const Key key{kind,
                  {alignment_of(operands.a), alignment_of(operands.b), alignment_of(kind.add ? operands.c : operands.d),
                   alignment_of(operands.d), alignment_of(operands.bias), alignment_of(operands.aux)}};
    auto found = made_.find(key);
    if (found == made_.end()) found = made_.emplace(key, make(key, operands)).first;
    const Plan& plan = found->second;
    if (!plan.possible) return false;
    if (watch_ != nullptr) (*watch_)(key, operands);
    check(issue(plan, key, operands, plan.algorithm), kind, "running");
    if (sync_mode() == SyncMode::launch) after_launch("product", context_.compute());
    return true;
}

std::vector<cublasLtMatmulAlgo_t> CudaBackend::Products::proposals(const Key& key, int most) const {
    return propose(made_.at(key), key, most).algorithms;
}

bool CudaBackend::Products::issue(const Key& key, const ProductOperands& operands,
                                  const cublasLtMatmulAlgo_t& algorithm) {
    return issue(made_.at(key), key, operands, algorithm) == CUBLAS_STATUS_SUCCESS;
}

bool CudaBackend::Products::takes(const Key& key, const cublasLtMatmulAlgo_t& algorithm) const {
    // cuBLASLt may want to see an epilogue's memory; any that is aligned will do.
    ProductOperands operands;
    operands.bias = operands.aux = workspace_.data();
    return takes(describe(key, operands), algorithm);
}

void CudaBackend::Products::use(const std::string& kind, const cublasLtMatmulAlgo_t& algorithm) {
    chosen_[kind] = algorithm;
    std::erase_if(made_, [&](const auto& one) { return one.first.text() == kind; });
}

std::string CudaBackend::Products::Key::text() const {
    std::string text = fmt::format(
        "{} to {}, m {} n {} k {}, rows of {} {} {}{}{}{}{}, aligned to", type_name(kind.input), type_name(kind.output),
        kind.m, kind.n, kind.k, kind.stride_a, kind.stride_b, kind.stride_d, kind.transpose_a ? ", a transposed" : "",
        kind.transpose_b ? ", b transposed" : "", kind.add ? ", added" : "", traits(kind.epilogue).words);
    for (const std::uint8_t alignment : alignments) text += fmt::format(" {}", 1u << alignment);
    return text;
}

namespace {
constexpr std::size_t algorithm_bytes = sizeof(cublasLtMatmulAlgo_t);
static_assert(algorithm_bytes == 64);
}  // namespace

// cuBLASLt allows its algorithms to be kept as bytes.
std::string CudaBackend::Products::text_of(const cublasLtMatmulAlgo_t& algorithm) {
    std::array<unsigned char, algorithm_bytes> bytes{};
    std::memcpy(bytes.data(), &algorithm, bytes.size());
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

std::optional<cublasLtMatmulAlgo_t> CudaBackend::Products::algorithm_of(const std::string& text) {
    if (text.size() != 2 * algorithm_bytes) return std::nullopt;
    std::array<unsigned char, algorithm_bytes> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const char* const begin = text.data() + 2 * i;
        if (std::from_chars(begin, begin + 2, bytes[i], 16).ptr != begin + 2) return std::nullopt;
    }
    cublasLtMatmulAlgo_t algorithm{};
    std::memcpy(&algorithm, bytes.data(), bytes.size());
    return algorithm;
}

}  // namespace lockstep::kernels::cuda
