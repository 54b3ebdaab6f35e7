#include "base/error.hpp"
#include "kernels/cuda/products.hpp"

namespace lockstep::kernels::cuda {
namespace {

// Tensor::rows divides by the last size, which may be zero here.
std::int64_t leading_rows(const Tensor& tensor) {
    std::int64_t rows = 1;
    for (int axis = 0; axis + 1 < tensor.axes(); ++axis) rows *= tensor.size(axis);
    return rows;
}

ProductKind kind_of(const Tensor& d, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b) {
    ProductKind kind;
    kind.transpose_a = transpose_a == Transpose::yes;
    kind.transpose_b = transpose_b == Transpose::yes;
    kind.m = kind.transpose_a ? a.size(-1) : leading_rows(a);
    kind.k = kind.transpose_a ? leading_rows(a) : a.size(-1);
    kind.n = kind.transpose_b ? leading_rows(b) : b.size(-1);
    kind.stride_a = a.stride();
    kind.stride_b = b.stride();
    kind.stride_d = d.stride();
    kind.input = a.type();
    kind.output = d.type();
    LOCKSTEP_ASSERT((kind.transpose_b ? b.size(-1) : leading_rows(b)) == kind.k);
    LOCKSTEP_ASSERT(d.size(-1) == kind.n && leading_rows(d) == kind.m);
    LOCKSTEP_ASSERT(b.type() == a.type() && (d.type() == a.type() || d.type() == Type::fp32));
    return kind;
}

bool nothing(const ProductKind& kind) {
    return kind.m == 0 || kind.n == 0;
}

// cuBLASLt's GELU epilogues need 16-bit results with 16-byte aligned rows.
bool may_fuse_gelu(ProductKind kind, Epilogue epilogue, const Tensor& before) {
    constexpr std::int64_t piece = 16;
    if (kind.output == Type::fp32 || nothing(kind) || kind.k == 0) return false;
    if (kind.n % 8 == 0 && reinterpret_cast<std::uintptr_t>(before.data()) % piece == 0) return true;
    kind.epilogue = epilogue;
    say_not_fused(kind);
    return false;
}

}  // namespace

void CudaBackend::product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                          Accumulate accumulate) {
    ProductKind kind = kind_of(c, a, transpose_a, b, transpose_b);
    if (nothing(kind)) return;
    if (kind.k == 0) {
        if (accumulate == Accumulate::no) fill(c, 0.0f);
        return;
    }
    kind.add = accumulate == Accumulate::yes;
    products_->run(kind, {a.strided_data(), b.strided_data(), c.strided_data(), c.strided_data()});
}

void CudaBackend::linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) {
    ProductKind kind = kind_of(y, x, Transpose::no, weight, Transpose::yes);
    LOCKSTEP_ASSERT(bias.empty() || bias.count() == kind.n);
    LOCKSTEP_ASSERT(residual.empty() || (residual.type() == y.type() && residual.count() == y.count() && y.dense()));
    if (nothing(kind)) return;
    kind.add = !residual.empty();
    if (!bias.empty() && bias.type() != y.type()) {  // fp32 results of 16-bit layers
        const Tensor converted(scratch(static_cast<std::size_t>(kind.n) * type_bytes(y.type())), y.type(), {kind.n});
        copy(converted, bias);
        bias = converted;
    }
    if (kind.k == 0) {
        if (residual.empty())
            fill(y, 0.0f);
        else
            copy(y, residual);
    } else {
        const ProductOperands operands{x.strided_data(), weight.data(), residual.data(), y.strided_data(), bias.data()};
        if (!bias.empty()) {
            kind.epilogue = Epilogue::bias;
            if (products_->run(kind, operands)) return;
            kind.epilogue = Epilogue::none;
        }
        products_->run(kind, operands);
    }
    if (!bias.empty()) add_bias(y, bias);
}

// The epilogue overwrites the sums that it makes of dy, so those to be added go to scratch memory first.
void CudaBackend::linear_backward_parameters(Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Accumulate accumulate) {
    const bool adds = accumulate == Accumulate::yes;
    ProductKind kind = kind_of(dweight, dy, Transpose::yes, x, Transpose::no);
    LOCKSTEP_ASSERT(dbias.empty() || (dbias.type() == Type::fp32 && dbias.count() == kind.m));
    if (!dbias.empty() && !nothing(kind) && kind.k > 0 && dweight.type() == Type::fp32) {
        kind.add = adds;
        kind.epilogue = Epilogue::bias_gradient;
        const Tensor sums = adds ? Tensor(scratch(dbias.bytes()), Type::fp32, dbias.shape()) : dbias;
        void* const d = dweight.strided_data();
        if (products_->run(kind, {dy.strided_data(), x.strided_data(), d, d, sums.data()})) {
            if (adds) add(dbias, sums);
            return;
        }
    }
    product(dweight, dy, Transpose::yes, x, Transpose::no, accumulate);
    if (dbias.empty()) return;
    if (!adds) fill(dbias, 0.0f);
    bias_backward(dbias, dy);
}

void CudaBackend::linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) {
    ProductKind kind = kind_of(y, x, Transpose::no, weight, Transpose::yes);
    LOCKSTEP_ASSERT(before.type() == y.type() && before.count() == y.count() && before.data() != y.data());
    const Epilogue epilogue = bias.empty() ? Epilogue::gelu : Epilogue::gelu_bias;
    if ((bias.empty() || bias.type() == y.type()) && may_fuse_gelu(kind, epilogue, before)) {
        kind.epilogue = epilogue;
        if (products_->run(kind, {x.data(), weight.data(), nullptr, y.data(), bias.data(), before.data()})) return;
    }
    linear_forward(before, x, weight, bias, {});
    gelu_forward(y, before);
}

void CudaBackend::linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) {
    ProductKind kind = kind_of(dbefore, dy, Transpose::no, weight, Transpose::no);
    LOCKSTEP_ASSERT(before.type() == dbefore.type() && before.count() == dbefore.count());
    LOCKSTEP_ASSERT(before.data() != dbefore.data());
    if (nothing(kind)) return;
    if (may_fuse_gelu(kind, Epilogue::gelu_backward, before)) {
        kind.epilogue = Epilogue::gelu_backward;
        if (products_->run(kind, {dy.data(), weight.data(), nullptr, dbefore.data(), nullptr, before.data()})) return;
    }
    product(dbefore, dy, Transpose::no, weight, Transpose::no, Accumulate::no);
    gelu_backward(dbefore, dbefore, before);
}

}  // namespace lockstep::kernels::cuda
