// Cache of matrix products. Creating one costs oneDNN up to milliseconds, so each shape is created once.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "kernels/cpu/cpu_backend.hpp"

namespace lockstep::kernels::cpu {

class CpuBackend::Products {
  public:
    struct Shape {
        std::int64_t m, n, k;
        std::int64_t stride_a, stride_b, stride_c;  // from row to row, as stored
        bool transpose_a, transpose_b, accumulate;
        Type inputs, output, bias;  // bias: over the output's columns
        bool with_bias;
        int threads;  // oneDNN divides the work when the primitive is created
        bool operator==(const Shape&) const = default;
    };
    Products();
    // Whether oneDNN supports bf16 products on this processor, possibly emulated.
    bool takes_bf16() const { return takes_bf16_; }
    // c (+)= op(a) op(b) + bias, all sizes positive.
    void run(const Shape& shape, void* c, const void* a, const void* b, const void* bias);

  private:
    struct Hash {
        std::size_t operator()(const Shape& shape) const;
    };
    struct Product {
        dnnl::matmul primitive;
        dnnl::memory a, b, c, bias;
        std::unordered_map<int, dnnl::memory> arguments;
    };
    Product make(const Shape& shape) const;

    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_{engine_};
    std::unordered_map<Shape, Product, Hash> made_;
    bool takes_bf16_;
};

}  // namespace lockstep::kernels::cpu
