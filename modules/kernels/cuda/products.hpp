// Matrix products through cuBLASLt. Descriptors, layouts and algorithm are cached per kind of product: choosing an
// algorithm takes far longer than issuing a product.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/memory.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace lockstep::kernels::cuda {

enum class Epilogue : std::uint8_t { none, bias, gelu, gelu_bias, gelu_backward, bias_gradient };

// Row-major: d [m, n] = epilogue(op(a) op(b) [+ c]).
struct ProductKind {
    std::int64_t m = 0, n = 0, k = 0;                       // positive
    std::int64_t stride_a = 0, stride_b = 0, stride_d = 0;  // from row to row as stored; c's is d's
    bool transpose_a = false, transpose_b = false;
    Type input = Type::fp32, output = Type::fp32;  // of a and b; of c, d, bias and aux
    bool add = false;                              // c
    Epilogue epilogue = Epilogue::none;
    bool operator==(const ProductKind&) const = default;
};
struct ProductOperands {
    const void *a = nullptr, *b = nullptr, *c = nullptr;  // c is read if `add`, and may be d
    void* d = nullptr;
    void* bias = nullptr;  // [n]; bias_gradient: [m], written: the sums of op(a)'s rows
    void* aux = nullptr;   // [m, n]: gelu and gelu_bias write their input, gelu_backward reads it
};

// An epilogue that cuBLASLt lacks runs as a kernel of its own: the same result, and slower. Worth a line of the log,
// once for each epilogue, pair of types, and which matrices have rows of whole 16 bytes.
void say_not_fused(const ProductKind& kind);

class CudaBackend::Products {
  public:
    explicit Products(CudaContext& context);

    // False if cuBLASLt lacks this epilogue for such operands; nothing was done then. Without an epilogue it succeeds
    // or throws.
    bool run(const ProductKind& kind, const ProductOperands& operands);

    // cuBLASLt's choice depends on the kind and on the operands' alignment: log2 of bytes, of a, b, c, d, bias, aux.
    using Alignments = std::array<std::uint8_t, 6>;
    struct Key {
        ProductKind kind;
        Alignments alignments;
        bool operator==(const Key&) const = default;
        std::string text() const;  // all of it, for files
    };

    // For the choice among cuBLASLt's proposals. An algorithm's text is valid for one version and kind of GPU.
    static std::string text_of(const cublasLtMatmulAlgo_t& algorithm);
    static std::optional<cublasLtMatmulAlgo_t> algorithm_of(const std::string& text);
    std::vector<cublasLtMatmulAlgo_t> proposals(const Key& key, int most) const;  // of a key that has run
    // False if cuBLASLt refuses.
    bool issue(const Key& key, const ProductOperands& operands, const cublasLtMatmulAlgo_t& algorithm);
    bool takes(const Key& key, const cublasLtMatmulAlgo_t& algorithm) const;
    void use(const std::string& kind, const cublasLtMatmulAlgo_t& algorithm);
    // Sees every product before it runs.
    using Watch = std::function<void(const Key&, const ProductOperands&)>;
    class Watching {
      public:
        Watching(Products& products, const Watch& watch) : products_(products) { products_.watch_ = &watch; }
        Watching(const Watching&) = delete;
        Watching& operator=(const Watching&) = delete;
        ~Watching() { products_.watch_ = nullptr; }

      private:
        Products& products_;
    };

  private:
    bool run_whole(const ProductKind& kind, const ProductOperands& operands);
    struct Hash {
        std::size_t operator()(const Key& key) const;
    };
    struct Free {
        void operator()(cublasLtContext* handle) const { static_cast<void>(cublasLtDestroy(handle)); }
        void operator()(cublasLtMatmulDescOpaque_t* description) const {
            static_cast<void>(cublasLtMatmulDescDestroy(description));
        }
        void operator()(cublasLtMatrixLayoutOpaque_t* layout) const {
            static_cast<void>(cublasLtMatrixLayoutDestroy(layout));
        }
        void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const {
            static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
        }
    };
    using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Free>;
    using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Free>;
    using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Free>;
    struct Plan {
        Description description;
        Layout left, right, result;  // as cuBLASLt counts, column-major: b is left, a is right
        cublasLtMatmulAlgo_t algorithm{};
        bool possible = false;
    };
    static Layout make_layout(const ProductKind& kind, Type type, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, bool transposed);
    static void point_epilogue(const Plan& plan, const ProductKind& kind, const ProductOperands& operands);
    Plan describe(const Key& key, const ProductOperands& operands) const;
    struct Proposals {
        cublasStatus_t status;
        std::vector<cublasLtMatmulAlgo_t> algorithms;  // at least one if the status is good
    };
    Proposals propose(const Plan& plan, const Key& key, int most) const;
    bool takes(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm) const;
    Plan make(const Key& key, const ProductOperands& operands) const;
    cublasStatus_t issue(const Plan& plan, const Key& key, const ProductOperands& operands,
                         const cublasLtMatmulAlgo_t& algorithm);

    CudaContext& context_;
    std::unique_ptr<cublasLtContext, Free> handle_;
    Arena workspace_;
    std::unordered_map<Key, Plan, Hash> made_;
    std::map<std::string, cublasLtMatmulAlgo_t> chosen_;  // by the text of a key
    const Watch* watch_ = nullptr;
};

}  // namespace lockstep::kernels::cuda
