#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "device/parallel.hpp"
#include "device/signal_block.hpp"
#include "kernels/cpu/bf16_product.hpp"
#include "kernels/cpu/element.hpp"
#include "kernels/cpu/products.hpp"
#include "kernels/cpu/ranges.hpp"
#include "kernels/cpu/scratch.hpp"
#include "kernels/cpu/scratch_sizes.hpp"
#include "kernels/cpu/vector/elementwise.hpp"

namespace lockstep::kernels {
namespace cpu {
namespace {

dnnl::memory::data_type data_type(Type type) {
    return type == Type::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// A row-major [rows, columns] operand, or one stored as its transpose, with `stride` elements from row to row as
// stored. The stride of an axis of one element means nothing, but oneDNN wants it to be that of a plain matrix.
dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, std::int64_t stride, bool transposed, Type type) {
    dnnl::memory::dims strides = {stride, 1};
    if (transposed && columns == 1) strides = {1, 1};  // stored as one row
    if (transposed && columns > 1) strides = {rows == 1 ? columns * stride : 1, stride};
    return {{rows, columns}, data_type(type), strides};
}

// Whether oneDNN's instruction set includes `set`: the values are bit masks. On other processors the same bits stand
// for their own instruction sets.
bool library_has([[maybe_unused]] dnnl::cpu_isa set) {
#ifdef LOCKSTEP_X86
    const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), wanted = static_cast<unsigned>(set);
    return (has & wanted) == wanted;
#else
    return false;
#endif
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
    mix(shape.stride_a);
    mix(shape.stride_b);
    mix(shape.stride_c);
    mix(shape.transpose_a + 2 * shape.transpose_b + 4 * shape.accumulate + 8 * shape.with_bias);
    mix(static_cast<std::int64_t>(shape.inputs) + 8 * static_cast<std::int64_t>(shape.output) +
        64 * static_cast<std::int64_t>(shape.bias) + 512 * static_cast<std::int64_t>(shape.threads));
    return hash ^ (hash >> 32);
}

CpuBackend::Products::Products() : takes_bf16_(library_has(dnnl::cpu_isa::avx512_core)) {}

CpuBackend::Products::Product CpuBackend::Products::make(const Shape& shape) const {
    const auto a = describe(shape.m, shape.k, shape.stride_a, shape.transpose_a, shape.inputs);
    const auto b = describe(shape.k, shape.n, shape.stride_b, shape.transpose_b, shape.inputs);
    const auto c = describe(shape.m, shape.n, shape.stride_c, false, shape.output);
    const auto bias = shape.with_bias ? describe(1, shape.n, shape.n, false, shape.bias) : dnnl::memory::desc();
    dnnl::primitive_attr attributes;
    if (shape.accumulate) {
        dnnl::post_ops operations;
        operations.append_sum(1.0f);
        attributes.set_post_ops(operations);
    }
#if DNNL_VERSION_MAJOR >= 3
    const auto description = shape.with_bias ? dnnl::matmul::primitive_desc(engine_, a, b, bias, c, attributes)
                                             : dnnl::matmul::primitive_desc(engine_, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc description(
        shape.with_bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c), attributes, engine_);
#endif
    Product product{dnnl::matmul(description),
                    dnnl::memory(a, engine_, DNNL_MEMORY_NONE),
                    dnnl::memory(b, engine_, DNNL_MEMORY_NONE),
                    dnnl::memory(c, engine_, DNNL_MEMORY_NONE),
                    dnnl::memory(bias, engine_, DNNL_MEMORY_NONE),
                    {}};
    product.arguments = {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}};
    if (shape.with_bias) product.arguments.emplace(DNNL_ARG_BIAS, product.bias);
    return product;
}

void CpuBackend::Products::run(const Shape& shape, void* c, const void* a, const void* b, const void* bias) {
    try {
        auto found = made_.find(shape);
        if (found == made_.end()) found = made_.emplace(shape, make(shape)).first;
        Product& product = found->second;
        product.a.set_data_handle(const_cast<void*>(a));  // oneDNN has no read-only memory; inputs are not written
        product.b.set_data_handle(const_cast<void*>(b));
        product.c.set_data_handle(c);
        if (shape.with_bias) product.bias.set_data_handle(const_cast<void*>(bias));
        const SignalBlock no_signals;
        product.primitive.execute(stream_, product.arguments);
        stream_.wait();
    } catch (const dnnl::error& error) {
        throw fault_error(
            "oneDNN failed in the matrix product [{}, {}] x [{}, {}] of {}: {} (status {}); run with "
            "ONEDNN_VERBOSE=1 to see its reason",
            shape.m, shape.k, shape.k, shape.n, type_name(shape.inputs), error.what(), static_cast<int>(error.status));
    }
}

void CpuBackend::multiply(Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, bool accumulate,
                          Tensor bias) {
    LOCKSTEP_ASSERT(a.type() == b.type() && (c.type() == a.type() || c.type() == Type::fp32));
    const std::int64_t m = transpose_a ? a.size(-1) : leading_rows(a), k = transpose_a ? leading_rows(a) : a.size(-1);
    const std::int64_t n = transpose_b ? leading_rows(b) : b.size(-1);
    LOCKSTEP_ASSERT((transpose_b ? b.size(-1) : leading_rows(b)) == k && c.size(-1) == n && leading_rows(c) == m);
    LOCKSTEP_ASSERT(bias.empty() || bias.count() == n);
    if (m == 0 || n == 0) return;
    if (k == 0) {
        if (!accumulate) fill(c, 0.0f);
        if (bias.empty()) return;
        Tensor added = bias;
        if (bias.type() != Type::fp32 && bias.type() != c.type()) {
            added = Tensor(scratch_->shared(n), Type::fp32, bias.shape());
            copy(added, bias);
        }
        add_bias(c, added);
        return;
    }
    if (a.type() == Type::bf16 && vector_.tiles) {
        TileFunctions::Result result{};
        result.c = c.strided_data();
        result.stride = c.stride();
        result.c_is_bf16 = c.type() == Type::bf16;
        result.accumulate = accumulate;
        result.bias = bias.data();
        result.bias_is_bf16 = !bias.empty() && bias.type() == Type::bf16;
        return bf16_multiply(*vector_.tiles,
                             {m, n, k, a.strided_as<bf16>(), a.stride(), transpose_a, b.strided_as<bf16>(), b.stride(),
                              transpose_b, result},
                             scratch_->of_product(bf16_product_floats(m, n, k)));
    }
    if (a.type() == Type::bf16 && !products_->takes_bf16()) {
        // Widened products have the same terms; only the order of their sums differs.
        const auto room_for = [](const Tensor& x) { return x.type() == Type::bf16 ? x.count() : 0; };
        float* room = scratch_->shared(room_for(a) + room_for(b) + room_for(c) + (bias.empty() ? 0 : room_for(bias)));
        const auto widen = [&](const Tensor& x, bool with_values) {
            if (x.empty() || x.type() == Type::fp32) return x;
            const Tensor wide(room, Type::fp32, x.shape());
            room += x.count();
            if (with_values) copy(wide, x);
            return wide;
        };
        const Tensor wide_c = widen(c, accumulate), wide_a = widen(a, true), wide_b = widen(b, true);
        multiply(wide_c, wide_a, transpose_a, wide_b, transpose_b, accumulate, widen(bias, true));
        if (c.type() == Type::bf16) copy(c, wide_c);
        return;
    }
    products_->run({m, n, k, a.stride(), b.stride(), c.stride(), transpose_a, transpose_b, accumulate, a.type(),
                    c.type(), bias.empty() ? Type::fp32 : bias.type(), !bias.empty(), threads()},
                   c.strided_data(), a.strided_data(), b.strided_data(), bias.data());
}

void CpuBackend::product(Tensor c, Tensor a, Transpose transpose_a, Tensor b, Transpose transpose_b,
                         Accumulate accumulate) {
    multiply(c, a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, accumulate == Accumulate::yes, {});
}

void CpuBackend::linear_forward(Tensor y, Tensor x, Tensor weight, Tensor bias, Tensor residual) {
    if (!residual.empty()) copy(y, residual);
    multiply(y, x, false, weight, true, !residual.empty(), bias);
}

void CpuBackend::linear_backward_parameters(Tensor dweight, Tensor dbias, Tensor dy, Tensor x, Accumulate accumulate) {
    product(dweight, dy, Transpose::yes, x, Transpose::no, accumulate);
    if (dbias.empty()) return;
    if (accumulate == Accumulate::no) fill(dbias, 0.0f);
    bias_backward(dbias, dy);
}

void CpuBackend::linear_gelu_forward(Tensor y, Tensor before, Tensor x, Tensor weight, Tensor bias) {
    linear_forward(before, x, weight, bias, {});
    gelu_forward(y, before);
}

std::int64_t linear_scratch_floats(std::int64_t rows, std::int64_t in, std::int64_t out, Type type) {
    if (type != Type::bf16 || !vector_functions().tiles) return 0;
    return std::max(
        {bf16_product_floats(rows, out, in), bf16_product_floats(rows, in, out), bf16_product_floats(out, in, rows)});
}

// Rows of linear_gelu_backward whose product is held in fp32 at a time.
static std::int64_t gelu_rows(std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t most = std::int64_t{1} << 21;  // elements
    const std::int64_t pieces = rows * width / most + 1;
    return (rows + pieces - 1) / pieces;
}

std::int64_t gelu_product_scratch_floats(std::int64_t rows, std::int64_t width, Type type) {
    return type == Type::fp32 ? 0 : gelu_rows(rows, width) * width;
}

void CpuBackend::linear_gelu_backward(Tensor dbefore, Tensor dy, Tensor weight, Tensor before) {
    if (dy.type() == Type::fp32) {
        product(dbefore, dy, Transpose::no, weight, Transpose::no, Accumulate::no);
        gelu_backward(dbefore, dbefore, before);
        return;
    }
    // The product stays in fp32 until multiplied, so that the result is rounded only once: some rows at a time.
    const std::int64_t rows = dy.rows(), width = weight.size(-1), in = dy.size(-1), step = gelu_rows(rows, width);
    float* exact = scratch_->kept(gelu_product_scratch_floats(rows, width, dy.type()));
    const auto multiply_gelu = vector_.of<bf16>().elementwise->gelu_backward_fp32;
    for (std::int64_t first = 0; first < rows; first += step) {
        const std::int64_t count = std::min(step, rows - first);
        const Tensor gradient = dy.reshaped({rows, in}).slice(first, count);
        multiply(Tensor(exact, Type::fp32, {count, width}), gradient, false, weight, false, false, {});
        bf16* out = dbefore.as<bf16>() + first * width;
        const bf16* x = before.as<bf16>() + first * width;
        for_elements(count * width, arithmetic_grain, [&](std::int64_t from, std::int64_t last) {
            multiply_gelu(out + from, exact + from, x + from, last - from);
        });
    }
}

}  // namespace cpu

bool cpu_multiplies_bf16() {
    const char* said = std::getenv("LOCKSTEP_CPU_BF16");
    const std::string_view word = said ? said : "";
    if (word.empty()) return cpu::library_has(dnnl::cpu_isa::avx512_core_bf16);
    if (word.size() != 1 || (word.front() != '0' && word.front() != '1'))
        throw usage_error("LOCKSTEP_CPU_BF16={} is unknown; use 0 or 1, or unset the variable", word);
    return word.front() == '1';
}

}  // namespace lockstep::kernels
