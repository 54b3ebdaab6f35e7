#define BOOST_TEST_MODULE norm
#include "reference/norm.hpp"

#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Accumulate;

namespace {

constexpr float epsilon = 1e-5f;
const double epsilon_value = static_cast<double>(epsilon);

struct Case {
    std::int64_t rows, width;
    bool centred, residual;
    std::int64_t skip = 0;  // elements by which every tensor's rows start past an aligned address
};

std::string name_of(const Case& c, Type type) {
    return fmt::format("{} [{}, {}] {}{}{}", c.centred ? "layer" : "rms", c.rows, c.width, type_name(type),
                       c.residual ? " with a residual" : "", c.skip ? " unaligned" : "");
}

using Results = std::vector<std::vector<char>>;

// One value that is small beside epsilon's root has no gradient but what rounding leaves of two large terms.
Values inputs(const Case& c, Type type) {
    Values x = random_rounded(type, static_cast<std::size_t>(c.rows * c.width), "x", 2);
    if (c.width == 1)
        for (double& value : x) value = value < 0 ? -1 : 1;
    return x;
}

Results check_forward(const Case& c, Type type) {
    const std::string what = name_of(c, type);
    const Shape rows{c.rows, c.width};
    const std::size_t count = static_cast<std::size_t>(element_count(rows)), terms = static_cast<std::size_t>(c.width);
    const Values x_values = inputs(c, type), added = random_rounded(type, count, "residual");
    const Values w = random_rounded(Type::fp32, terms, "weight"), b = random_rounded(Type::fp32, terms, "bias");
    Skewed x(type, rows, c.skip, x_values), residual(type, rows, c.skip, added), y(type, rows, c.skip);
    Skewed weight(Type::fp32, {c.width}, c.skip, w), bias(Type::fp32, {c.width}, c.skip, b);
    Skewed mean(Type::fp32, {c.rows}, c.skip), inverse(Type::fp32, {c.rows}, c.skip);
    const Tensor add = c.residual ? Tensor(residual) : Tensor();
    if (c.centred)
        backend().layer_norm_forward(y, mean, inverse, x, add, weight, bias, epsilon);
    else
        backend().rms_norm_forward(y, inverse, x, add, weight, epsilon);
    // The sum as `type` holds it is what is kept and what is normed.
    const Values normed = c.residual ? OnDevice(type, rows, plus(x_values, added)).values() : x_values;
    BOOST_CHECK_MESSAGE(x.values() == normed, what << ": x is not the sum");
    const auto expected = reference::norm_forward(normed, w, b, epsilon_value, c.centred);
    check_close(y.values(), expected.y, type, terms, what + " y");
    check_close(inverse.values(), expected.inverse, Type::fp32, terms, what + " inverse");
    if (c.centred) check_close(mean.values(), expected.mean, Type::fp32, terms, what + " mean");
    return {x.bytes(), y.bytes(), mean.bytes(), inverse.bytes()};
}

Results check_backward(const Case& c, Type type, Accumulate accumulate) {
    const bool adds = accumulate == Accumulate::yes;
    const std::string what = name_of(c, type) + (adds ? ", added" : "");
    const Shape rows{c.rows, c.width};
    const std::size_t count = static_cast<std::size_t>(element_count(rows)), terms = static_cast<std::size_t>(c.width);
    const std::size_t sums = terms + static_cast<std::size_t>(c.rows);
    const Values x_values = inputs(c, type), dy_values = random_rounded(type, count, "dy");
    // What is overwritten may be anything.
    const Values dx_before =
        adds ? random_rounded(type, count, "dx") : Values(count, std::numeric_limits<double>::quiet_NaN());
    const Values w = random_rounded(Type::fp32, terms, "weight");
    const Values dw_before = random_rounded(Type::fp32, terms, "dweight");
    const Values db_before = random_rounded(Type::fp32, terms, "dbias");
    const auto forward = reference::norm_forward(x_values, w, Values(terms), epsilon_value, c.centred);
    const auto expected = reference::norm_backward(dy_values, x_values, w, epsilon_value, c.centred);
    Skewed x(type, rows, c.skip, x_values), dy(type, rows, c.skip, dy_values), dx(type, rows, c.skip, dx_before);
    Skewed weight(Type::fp32, {c.width}, c.skip, w), dweight(Type::fp32, {c.width}, c.skip, dw_before);
    Skewed dbias(Type::fp32, {c.width}, c.skip, db_before);
    Skewed mean(Type::fp32, {c.rows}, c.skip, forward.mean), inverse(Type::fp32, {c.rows}, c.skip, forward.inverse);
    if (c.centred)
        backend().layer_norm_backward(dx, dweight, dbias, dy, x, weight, mean, inverse, accumulate);
    else
        backend().rms_norm_backward(dx, dweight, dy, x, weight, inverse, accumulate);
    // The gradient of one centred value is zero, and what is computed is rounding times 1/sqrt(epsilon) = 316.
    const std::size_t dx_terms = c.centred && c.width == 1 ? 316 * 316 : terms;
    // Of one value it is what rounding leaves of two terms of about 1, and is compared beside them.
    const Values beside = adds ? Values(count) : Values(count, c.width == 1 ? 1.0 : 0.0);
    const Values wanted = adds ? plus(dx_before, expected.dx) : expected.dx;
    check_close(plus(dx.values(), beside), plus(wanted, beside), type, dx_terms, what + " dx");
    check_close(dweight.values(), plus(dw_before, expected.dweight), Type::fp32, sums, what + " dweight");
    if (c.centred) check_close(dbias.values(), plus(db_before, expected.dbias), Type::fp32, sums, what + " dbias");
    return {dx.bytes(), dweight.bytes(), dbias.bytes()};
}

void check_backward(const Case& c, Type type) {
    for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) check_backward(c, type, accumulate);
}

void check_both(Case c) {
    for_each_type([&](Type type) {
        for (const bool centred : {false, true}) {
            c.centred = centred;
            check_forward(c, type);
            check_backward(c, type);
        }
    });
}

}  // namespace

BOOST_AUTO_TEST_CASE(norms_agree_with_the_reference) {
    for (const std::int64_t width : {1, 31, 32, 33, 64, 96, 97, 255, 256, 257, 512, 768, 1024, 1025})
        for (const std::int64_t rows : {1, 31, 33})
            if (width < 512 || rows < 33)
                check_both({width < 512 ? rows : std::min<std::int64_t>(rows, 7), width, {}, false});
}

BOOST_AUTO_TEST_CASE(wide_rows_agree_with_the_reference) {
    for (const std::int64_t width : {1536, 2048, 2049, 2056, 4100, 4104, 8200}) check_both({3, width, {}, false});
}

BOOST_AUTO_TEST_CASE(a_residual_is_added_first_and_kept) {
    for_each_type([](Type type) {
        for (const bool centred : {false, true})
            for (const std::int64_t width : {33, 96, 768, 2049, 4104}) check_forward({5, width, centred, true}, type);
    });
}

BOOST_AUTO_TEST_CASE(rows_need_no_alignment) {
    for_each_type([](Type type) {
        for (const bool centred : {false, true})
            for (const std::int64_t width : {64, 97, 2056}) {
                check_forward({3, width, centred, true, 1}, type);
                check_backward({3, width, centred, false, 1}, type);
            }
    });
}

BOOST_AUTO_TEST_CASE(a_row_may_be_larger_than_the_shared_memory) {
    for (const bool residual : {false, true}) check_forward({2, 60000, true, residual}, Type::fp32);
}

// Narrow rows share a warp: every number of them in the last warp and block.
BOOST_AUTO_TEST_CASE(heads_agree_with_the_reference) {
    for (const std::int64_t width : {8, 56, 64, 72, 128, 136})
        for (const std::int64_t rows : {2, 3, 5, 17, 65}) check_both({rows, width, {}, false});
}

// More rows than all blocks take at once.
BOOST_AUTO_TEST_CASE(blocks_go_on_to_their_next_rows) {
    for_each_backend([] {
        check_backward({4500, 8, true, false}, Type::bf16);
        check_backward({601, 9, true, false}, Type::fp32);
        check_backward({1601, 1032, true, false}, Type::bf16);
        check_backward({17001, 24, false, false}, Type::bf16);
        check_backward({8501, 72, false, false}, Type::fp32);
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_matter) {
    for (const std::int64_t width : {33, 64, 96, 768, 1032, 2049, 4104})
        for (const bool centred : {false, true}) {
            for_each_order([&] { return check_forward({9, width, centred, true}, Type::bf16); });
            for_each_order([&] { return check_backward({9, width, centred, false}, Type::bf16, Accumulate::yes); });
        }
}

BOOST_AUTO_TEST_CASE(a_large_mean_does_not_spoil_the_variance) {
    for_each_backend([] {
        for (const std::int64_t width : {256, 257}) {  // kept in registers, kept in shared memory
            const auto count = static_cast<std::size_t>(width);
            Values x_values = random_rounded(Type::fp32, count, "x");
            for (double& value : x_values) value = static_cast<double>(static_cast<float>(value + 1000));
            const Values ones(count, 1.0), zeros(count);
            const OnDevice x(Type::fp32, {1, width}, x_values), weight(Type::fp32, {width}, ones);
            const OnDevice bias(Type::fp32, {width}, zeros), y(Type::fp32, {1, width});
            const OnDevice mean(Type::fp32, {1}), inverse(Type::fp32, {1});
            backend().layer_norm_forward(y, mean, inverse, x, {}, weight, bias, epsilon);
            const auto expected = reference::norm_forward(x_values, ones, zeros, epsilon_value, true);
            const Values actual = y.values();
            for (std::size_t i = 0; i < count; ++i)  // the mean is rounded to 6e-5, a 1e-4th of the spread
                BOOST_TEST(std::abs(actual[i] - expected.y[i]) < 5e-4);
        }
    });
}

BOOST_AUTO_TEST_CASE(rows_of_zeros_are_finite_and_not_a_number_stays_in_its_row) {
    for_each_type([](Type type) {
        for (const std::int64_t width : {40, 41}) {
            const auto count = static_cast<std::size_t>(width);
            Values x_values(3 * count);
            x_values[count + 5] = std::numeric_limits<double>::quiet_NaN();
            const OnDevice x(type, {3, width}, x_values), weight(Type::fp32, {width}, Values(count, 1.0));
            const OnDevice bias(Type::fp32, {width}, Values(count)), mean(Type::fp32, {3}), inverse(Type::fp32, {3});
            OnDevice y(type, {3, width});
            const auto check = [&] {
                const Values out = y.values();
                BOOST_TEST((out[0] == 0 && std::isnan(out[count + 1]) && out[2 * count] == 0));
            };
            backend().rms_norm_forward(y, inverse, x, {}, weight, epsilon);
            check();
            y.poison();
            backend().layer_norm_forward(y, mean, inverse, x, {}, weight, bias, epsilon);
            check();
        }
    });
}
