// The matrix products made so far. Making one costs oneDNN up to milliseconds, so each shape is made once and kept.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "kernels/cpu/cpu_backend.hpp"

namespace lockstep::kernels::cpu {

class CpuBackend::Products {
  public:
    struct Shape {
        std::int64_t m, n, k;
        bool transpose_a, transpose_b, accumulate;
        int threads;  // oneDNN divides the work when the primitive is made
        bool operator==(const Shape&) const = default;
    };
    // c (+)= op(a) op(b), all sizes above zero.
    void run(const Shape& shape, float* c, const float* a, const float* b);

  private:
    struct Hash {
        std::size_t operator()(const Shape& shape) const;
    };
    struct Product {
        dnnl::matmul primitive;
        dnnl::memory a, b, c;
        std::unordered_map<int, dnnl::memory> arguments;
    };
    Product make(const Shape& shape) const;

    dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_{engine_};
    std::unordered_map<Shape, Product, Hash> made_;
};

}  // namespace lockstep::kernels::cpu
