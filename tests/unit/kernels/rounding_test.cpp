// In bf16 a result is the sum made in fp32, rounded once: every element within half a unit of its own last place.
#define BOOST_TEST_MODULE kernels_rounding
#include "base/float16.hpp"
#include "reference/activation.hpp"
#include "reference/attention.hpp"
#include "reference/norm.hpp"
#include "reference/product.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
using kernels::Accumulate;
using kernels::Transpose;

namespace {

// bf16 numbers that own their memory.
struct Halves {
    std::vector<std::uint16_t> bits;
    Shape shape;

    explicit Halves(Shape sizes) : bits(static_cast<std::size_t>(element_count(sizes))), shape(std::move(sizes)) {}
    Halves(const Shape& sizes, const std::string& purpose, double scale = 1) : Halves(sizes) {
        const Floats values = random_floats(sizes, purpose, scale);
        std::transform(values.data.begin(), values.data.end(), bits.begin(), bf16_bits);
    }
    Tensor tensor() { return {bits.data(), Type::bf16, shape}; }
    Values values() const {
        Values values(bits.size());
        std::transform(bits.begin(), bits.end(), values.begin(), bf16_value);
        return values;
    }
};

// Each element within half a unit in its last place, and the error of an fp32 sum of `terms` numbers of `size`. `more`:
// of terms that were rounded before.
void check_rounded_once(const Halves& actual, const Values& expected, std::size_t terms, double size,
                        const std::string& what, double more = 0) {
    const Values values = actual.values();
    BOOST_REQUIRE_EQUAL(values.size(), expected.size());
    const double of_sum = size * reference::tolerance(reference::fp32_roundoff, terms);
    std::size_t wrong = 0;
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        int exponent = 0;
        std::frexp(expected[i], &exponent);
        const double half_unit = std::ldexp(1.0, exponent - 9);  // 8 significant bits
        const double error = std::abs(values[i] - expected[i]);
        if (!(error <= half_unit + of_sum + more)) ++wrong;
        worst = std::max(worst, error / half_unit);
    }
    BOOST_CHECK_MESSAGE(wrong == 0, what << ": " << wrong << " of " << values.size()
                                         << " elements are rounded more than once, the worst by " << worst
                                         << " half units");
}

constexpr std::int64_t rows = 33, inner = 97, width = 65;

}  // namespace

BOOST_AUTO_TEST_CASE(products_with_all_that_is_added) {
    const auto backend = kernels::make_cpu_backend();
    Halves x({rows, inner}, "x"), weight({width, inner}, "weight"), bias({width}, "bias"), before({rows, width}, "y");
    const Values product = reference::product(x.values(), false, weight.values(), true, rows, width, inner);
    Values with_bias = product;
    for (std::size_t i = 0; i < with_bias.size(); ++i) with_bias[i] += bias.values()[i % width];
    const double size = 30;  // of sums of 97 products of normal numbers
    Halves y({rows, width});
    backend->product(y.tensor(), x.tensor(), Transpose::no, weight.tensor(), Transpose::yes, Accumulate::no);
    check_rounded_once(y, product, inner, size, "product");
    y = before;
    backend->product(y.tensor(), x.tensor(), Transpose::no, weight.tensor(), Transpose::yes, Accumulate::yes);
    check_rounded_once(y, plus(product, before.values()), inner, size, "product, added");
    backend->linear_forward(y.tensor(), x.tensor(), weight.tensor(), bias.tensor(), {});
    check_rounded_once(y, with_bias, inner, size, "bias");
    backend->linear_forward(y.tensor(), x.tensor(), weight.tensor(), bias.tensor(), before.tensor());
    check_rounded_once(y, plus(with_bias, before.values()), inner, size, "bias and residual");
}

BOOST_AUTO_TEST_CASE(the_gradient_through_a_product_and_gelu) {
    const auto backend = kernels::make_cpu_backend();
    // Once small, once of more rows than are taken at a time.
    for (const std::int64_t count : {rows, std::int64_t{2100}}) {
        const std::int64_t out = count == rows ? width : 1024, in = count == rows ? inner : 3;
        Halves dy({count, in}, "dy"), weight({in, out}, "weight"), before({count, out}, "before");
        Halves dbefore({count, out});
        backend->linear_gelu_backward(dbefore.tensor(), dy.tensor(), weight.tensor(), before.tensor());
        const Values product =
            reference::product(dy.values(), false, weight.values(), false, static_cast<std::size_t>(count),
                               static_cast<std::size_t>(out), static_cast<std::size_t>(in));
        check_rounded_once(dbefore,
                           reference::activation_backward(reference::gelu_derivative, product, before.values()),
                           static_cast<std::size_t>(in), 30, fmt::format("{} rows", count));
    }
}

BOOST_AUTO_TEST_CASE(activations_norms_and_attention) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Halves x({rows, width}, "x", 3), dy({rows, width}, "dy"), y({rows, width});
        backend.gelu_forward(y.tensor(), x.tensor());
        check_rounded_once(y, reference::activate(reference::gelu, x.values()), 1, 10, name + " gelu");
        backend.gelu_backward(y.tensor(), dy.tensor(), x.tensor());
        check_rounded_once(y, reference::activation_backward(reference::gelu_derivative, dy.values(), x.values()), 1,
                           10, name + " gelu backward");

        Floats weight = random_floats({width}, "weight"), bias = random_floats({width}, "bias");
        Floats mean({rows}), inverse({rows});
        backend.layer_norm_forward(y.tensor(), mean.tensor(), inverse.tensor(), x.tensor(), {}, weight.tensor(),
                                   bias.tensor(), 1e-5f);
        check_rounded_once(y, reference::norm_forward(x.values(), weight.values(), bias.values(), 1e-5, true).y, width,
                           5, name + " norm");

        const kernels::AttentionShape shape{1, 70, 70, 2, 1, 33};
        const reference::AttentionShape same{1, 70, 70, 2, 1, 33};
        Halves q({70, 66}, "q"), k({70, 33}, "k"), v({70, 33}, "v"), out({70, 66});
        Floats log_sum_exp({1, 2, 70});
        backend.attention_forward(out.tensor(), log_sum_exp.tensor(), q.tensor(), k.tensor(), v.tensor(), shape);
        // In tiles the weights, whose sum is 1, are rounded to 8 bits, too.
        double largest = 0;
        for (const double value : v.values()) largest = std::max(largest, std::abs(value));
        check_rounded_once(out, reference::attention_forward(q.values(), k.values(), v.values(), same).y, 70, 3,
                           name + " attention", name == "amx" || name == "avx512_bf16" ? std::ldexp(largest, -9) : 0);
    });
}
