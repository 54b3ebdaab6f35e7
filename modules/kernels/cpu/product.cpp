#include "device/parallel.hpp"
#include "kernels/cpu/products.hpp"

namespace lockstep::kernels::cpu {
namespace {

// A row-major [rows, columns] operand, or one stored as its transpose. Where an axis is 1 both lie in memory alike; the
// plain strides are then given, as oneDNN takes {1, 1} for a matrix with rows of one element.
dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, bool transposed) {
    const bool swap = transposed && rows > 1 && columns > 1;
    const dnnl::memory::dims strides = swap ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
    return {{rows, columns}, dnnl::memory::data_type::f32, strides};
}

// Tensor::rows divides by the last size, which may be zero here.
std::int64_t leading_rows(const Tensor& tensor) {
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < tensor.axes(); ++axis) rows *= tensor.size(axis);
    return rows;
}

}  // namespace

std::size_t CpuBackend::Products::Hash::operator()(const Shape& shape) const {
    std::uint64_t hash = 0;
    const auto mix = [&](std::int64_t value) {
        hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    };
    mix(shape.m);
    mix(shape.n);
    mix(shape.k);
    mix(shape.transpose_a + 2 * shape.transpose_b + 4 * shape.accumulate +
        8 * static_cast<std::int64_t>(shape.threads));
    return hash ^ (hash >> 32);
}

CpuBackend::Products::Product CpuBackend::Products::make(const Shape& shape) const {
    const auto a = describe(shape.m, shape.k, shape.transpose_a);
    const auto b = describe(shape.k, shape.n, shape.transpose_b);
    const auto c = describe(shape.m, shape.n, false);
    dnnl::primitive_attr attributes;
    if (shape.accumulate) {
        dnnl::post_ops operations;
        operations.append_sum(1.0f);
        attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc description(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine_);
#endif
    Product product{dnnl::matmul(description),
                    dnnl::memory(a, engine_, DNNL_MEMORY_NONE),
                    dnnl::memory(b, engine_, DNNL_MEMORY_NONE),
                    dnnl::memory(c, engine_, DNNL_MEMORY_NONE),
                    {}};
    product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
    return product;
}

void CpuBackend::Products::run(const Shape& shape, float* c, const float* a, const float* b) {
    try {
        auto found = made_.find(shape);
        if (found == made_.end()) found = made_.emplace(shape, make(shape)).first;
        Product& product = found->second;
        product.a.set_data_handle(const_cast<float*>(a));  // oneDNN has no read-only memory; inputs are not written
        product.b.set_data_handle(const_cast<float*>(b));
        product.c.set_data_handle(c);
        product.primitive.execute(stream_, product.arguments);
        stream_.wait();
    } catch (const dnnl::error& error) {
        throw fault_error(
            "oneDNN failed in the matrix product [{}, {}] x [{}, {}]: {} (status {}); run with "
            "ONEDNN_VERBOSE=1 to see its reason",
            shape.m, shape.k, shape.k, shape.n, error.what(), static_cast<int>(error.status));
    }
}

void CpuBackend::product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                         Accumulate accumulate) {
    const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
    const std::int64_t m = ta ? a.size(-1) : leading_rows(a), k = ta ? leading_rows(a) : a.size(-1);
    const std::int64_t n = tb ? leading_rows(b) : b.size(-1);
    LOCKSTEP_ASSERT((tb ? b.size(-1) : leading_rows(b)) == k && c.size(-1) == n && leading_rows(c) == m);
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (accumulate == Accumulate::no) fill(c, 0.0f);
        return;
    }
    products_->run({m, n, k, ta, tb, accumulate == Accumulate::yes, threads()}, c.fp32(), a.fp32(), b.fp32());
}

void CpuBackend::linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) {
    if (!residual.empty()) copy(y, residual);
    product(y, x, Transpose::no, weight, Transpose::yes, residual.empty() ? Accumulate::no : Accumulate::yes);
    if (!bias.empty()) add_bias(y, bias);
}

void CpuBackend::linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) {
    linear_forward(before, x, weight, bias, {});
    gelu_forward(y, before);
}

void CpuBackend::linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) {
    product(dbefore, dy, Transpose::no, weight, Transpose::no, Accumulate::no);
    gelu_backward(dbefore, dbefore, before);
}

}  // namespace lockstep::kernels::cpu
