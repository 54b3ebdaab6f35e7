#define BOOST_TEST_MODULE product
#include "reference/product.hpp"

#include <array>
#include <cmath>

#include "device/sync.hpp"
#include "operations/support.hpp"
#include "reference/activation.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Accumulate;
using kernels::Transpose;

namespace {

std::size_t count_of(const Shape& shape) {
    return static_cast<std::size_t>(element_count(shape));
}

// A tensor with random values, and the same values for the reference.
struct Random {
    Random(Type type, const Shape& shape, const std::string& purpose, double scale = 1)
        : values(random_rounded(type, count_of(shape), purpose, scale)), memory(type, shape, values) {}
    operator Tensor() const { return memory.tensor(); }
    Values values;
    OnDevice memory;
};

Transpose transposed(bool yes) {
    return yes ? Transpose::yes : Transpose::no;
}

// Of the input and of the result.
struct Types {
    Type input, output;
};
// Every compute type to itself, the 16-bit ones also to fp32.
const std::vector<Types> all_types = [] {
    std::vector<Types> types;
    for (const Type type : compute_types) types.push_back({type, type});
    for (const Type type : compute_types)
        if (type != Type::fp32) types.push_back({type, Type::fp32});
    return types;
}();

std::string text(const Types& types) {
    return fmt::format("{} to {}", type_name(types.input), type_name(types.output));
}

void check_product(const Types& types, std::int64_t m, std::int64_t n, std::int64_t k, int form) {
    const bool ta = form & 1, tb = form & 2, add = form & 4;
    const Random a(types.input, ta ? Shape{k, m} : Shape{m, k}, "a"),
        b(types.input, tb ? Shape{n, k} : Shape{k, n}, "b");
    Random c(types.output, {m, n}, "c");
    Values expected = reference::product(a.values, ta, b.values, tb, static_cast<std::size_t>(m),
                                         static_cast<std::size_t>(n), static_cast<std::size_t>(k));
    if (add)
        expected = plus(expected, c.values);
    else
        c.memory.poison();  // what is there before must not matter
    backend().product(c, a, transposed(ta), b, transposed(tb), add ? Accumulate::yes : Accumulate::no);
    check_close(c.memory.values(), expected, types.output, static_cast<std::size_t>(k),
                fmt::format("{}: m {} n {} k {} ta {} tb {} add {}", text(types), m, n, k, ta, tb, add));
}

Values with_bias(Values y, const Values& bias) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
    return y;
}

// x [N, in] weight [out, in]ᵀ + bias.
Values linear(const Random& x, const Random& weight, const Values& bias, std::int64_t rows, std::int64_t out,
              std::int64_t in) {
    Values y = reference::product(x.values, false, weight.values, true, static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(out), static_cast<std::size_t>(in));
    return bias.empty() ? y : with_bias(std::move(y), bias);
}

struct Sizes {
    std::int64_t rows, out, in;
};
const std::vector<Sizes> linear_sizes = {{1, 1, 1},    {1, 32, 33},  {5, 1, 7},   {31, 33, 32}, {32, 64, 32},
                                         {33, 97, 65}, {65, 24, 97}, {97, 31, 1}, {64, 8, 31}};

}  // namespace

BOOST_AUTO_TEST_CASE(products_of_all_shapes_agree_with_the_reference) {
    for (const Types& types : all_types)
        for (const std::int64_t m : {1, 31, 32, 65})
            for (const std::int64_t n : {1, 32, 33, 97})
                for (const std::int64_t k : {1, 31, 33, 64})
                    for (int form = 0; form < 8; ++form) check_product(types, m, n, k, form);
}

BOOST_AUTO_TEST_CASE(long_sums_agree_with_the_reference) {
    for (const Types& types : all_types)
        for (int form = 0; form < 8; ++form) check_product(types, 3, 5, 4099, form);
    check_product({Type::bf16, Type::bf16}, 270, 290, 4500, 2);
    check_product({Type::bf16, Type::fp32}, 290, 270, 2500, 5);
}

BOOST_AUTO_TEST_CASE(tensors_of_more_axes_count_as_rows) {
    for (const Types& types : all_types) {
        const Random a(types.input, {3, 5, 7}, "a"), b(types.input, {4, 7}, "b");
        const OnDevice c(types.output, {3, 5, 4});
        backend().product(c, a, Transpose::no, b, Transpose::yes, Accumulate::no);
        check_close(c.values(), reference::product(a.values, false, b.values, true, 15, 4, 7), types.output, 7,
                    text(types));
    }
}

// Large enough, and in rows of whole 16 bytes, to be computed in parts on a GPU: along one axis, and along all three.
BOOST_AUTO_TEST_CASE(large_products_of_odd_sizes_agree_with_the_reference) {
    struct Product {
        std::int64_t m, n, k;
    };
    for (const Types& types : {Types{Type::bf16, Type::bf16}, Types{Type::bf16, Type::fp32}})
        for (const auto [m, n, k] :
             {Product{264, 1025, 1024}, Product{263, 1024, 1024}, Product{264, 1024, 1027}, Product{527, 1029, 1027}})
            for (int form = 0; form < 8; ++form) {
                const bool ta = form & 1, tb = form & 2, add = form & 4;
                const std::string what = fmt::format("{}: m {} n {} k {} form {}", text(types), m, n, k, form);
                const auto random = [](Type type, std::int64_t rows, std::int64_t columns, const std::string& purpose) {
                    return random_rounded(type, static_cast<std::size_t>(rows * columns), purpose);
                };
                const Values a = random(types.input, m, k, "a"), b = random(types.input, k, n, "b"),
                             c = random(types.output, m, n, "c");
                constexpr std::int64_t widest = 1032;
                const std::int64_t columns_a = ta ? m : k, columns_b = tb ? k : n;
                const Columns on_a(types.input, ta ? k : m, columns_a, 0, widest - columns_a, a),
                    on_b(types.input, tb ? n : k, columns_b, 0, widest - columns_b, b),
                    on_c(types.output, m, n, 0, widest - n, c);
                Values expected = reference::product(a, ta, b, tb, static_cast<std::size_t>(m),
                                                     static_cast<std::size_t>(n), static_cast<std::size_t>(k));
                if (add) expected = plus(expected, c);
                backend().product(on_c, on_a, transposed(ta), on_b, transposed(tb),
                                  add ? Accumulate::yes : Accumulate::no);
                check_close(on_c.values(), expected, types.output, static_cast<std::size_t>(k), what);
                BOOST_TEST(on_c.untouched(), what);
            }
}

#ifdef LOCKSTEP_TEST_CPU
// More rows and columns than kernels take at a time.
BOOST_AUTO_TEST_CASE(products_in_parts_agree_with_the_reference) {
    for (const Type output : {Type::bf16, Type::fp32}) {
        check_product({Type::bf16, output}, 1057, 2081, 33, 2);
        check_product({Type::bf16, output}, 33, 2081, 1057, 1);
        check_product({Type::bf16, output}, 1057, 33, 70, 4);
    }
}

// A result too large to stay in a cache, in padded rows that begin at whole lines, has the bits of one whose rows do
// not.
BOOST_AUTO_TEST_CASE(large_results_are_those_of_unaligned_rows) {
    if (std::string(kernels::cpu_instruction_set()) != "amx") return;  // oneDNN may choose another kernel
    constexpr std::int64_t m = 1030, k = 5;
    for (const Type output : {Type::bf16, Type::fp32}) {
        const std::int64_t n = output == Type::bf16 ? 16329 : 8201, padded = (n + 63) / 64 * 64;
        const Random a(Type::bf16, {m, k}, "a"), b(Type::bf16, {n, k}, "b"), bias(Type::fp32, {n}, "bias");
        const Values zeros(static_cast<std::size_t>(m * n), 0.0);
        const Columns aligned(output, m, n, 0, padded - n, zeros), odd(output, m, n, 1, padded - n, zeros);
        backend().linear_forward(aligned, a, b, bias, {});
        backend().linear_forward(odd, a, b, bias, {});
        BOOST_TEST((aligned.values() == odd.values()));
        BOOST_TEST(aligned.untouched());
        BOOST_TEST(odd.untouched());
    }
}
#endif

// The same kind of product, other tensors: what was kept from the first must not hold on to them.
BOOST_AUTO_TEST_CASE(a_product_may_be_repeated_with_other_memory) {
    for (const Types& types : all_types)
        for (int round = 0; round < 3; ++round) {
            const Random a(types.input, {33, 31}, fmt::format("a{}", round)), b(types.input, {31, 32}, "b");
            const OnDevice c(types.output, {33, 32});
            backend().product(c, a, Transpose::no, b, Transpose::no, Accumulate::no);
            check_close(c.values(), reference::product(a.values, false, b.values, false, 33, 32, 31), types.output, 31,
                        text(types));
        }
}

// Rows of odd width begin anywhere: pieces of larger tensors, aligned as their type only.
BOOST_AUTO_TEST_CASE(operands_may_be_unaligned) {
    for (const Types& types : all_types)
        for (std::int64_t first = 0; first < 4; ++first) {
            constexpr std::int64_t m = 9, n = 16, k = 7;
            const Random a(types.input, {20, k}, "a"), b(types.input, {20, n}, "b"), c(types.output, {20, n}, "c");
            const auto rows_of = [&](const Random& tensor, std::int64_t count, std::int64_t width) {
                const auto from = tensor.values.begin() + static_cast<std::ptrdiff_t>(first * width);
                return Values(from, from + static_cast<std::ptrdiff_t>(count * width));
            };
            backend().product(c.memory.tensor().slice(first, m), a.memory.tensor().slice(first, m), Transpose::no,
                              b.memory.tensor().slice(first, k), Transpose::no, Accumulate::no);
            Values expected = c.values;
            const Values inside =
                reference::product(rows_of(a, m, k), false, rows_of(b, k, n), false, m, n, static_cast<std::size_t>(k));
            std::copy(inside.begin(), inside.end(), expected.begin() + static_cast<std::ptrdiff_t>(first * n));
            check_close(c.memory.values(), expected, types.output, k,
                        fmt::format("{}, from row {}", text(types), first));
        }
}

// Every operand is columns of a wider matrix.
BOOST_AUTO_TEST_CASE(rows_may_lie_further_apart_than_they_are_long) {
    for (const Types& types : all_types)
        for (const auto& [m, n, k] :
             {std::array{1, 32, 33}, std::array{33, 1, 8}, std::array{31, 32, 1}, std::array{9, 40, 16}})
            for (int form = 0; form < 8; ++form) {
                const bool ta = form & 1, tb = form & 2, add = form & 4;
                const auto sizes = [](int count, int each) {
                    return static_cast<std::size_t>(count) * static_cast<std::size_t>(each);
                };
                const Values a = random_rounded(types.input, sizes(m, k), "a"),
                             b = random_rounded(types.input, sizes(k, n), "b"),
                             c = random_rounded(types.output, sizes(m, n), "c");
                const Columns at_a(types.input, ta ? k : m, ta ? m : k, 8, 3, a),
                    at_b(types.input, tb ? n : k, tb ? k : n, 0, 8, b);
                const Columns at_c(types.output, m, n, 3, 16, c);
                Values expected = reference::product(a, ta, b, tb, sizes(m, 1), sizes(n, 1), sizes(k, 1));
                if (add) expected = plus(expected, c);
                backend().product(at_c, at_a, transposed(ta), at_b, transposed(tb),
                                  add ? Accumulate::yes : Accumulate::no);
                const std::string what =
                    fmt::format("{}: m {} n {} k {} form {}, with strides", text(types), m, n, k, form);
                check_close(at_c.values(), expected, types.output, sizes(k, 1), what);
                BOOST_CHECK_MESSAGE(at_c.untouched(), what << ": wrote beside the result");
            }
}

BOOST_AUTO_TEST_CASE(a_layer_may_write_columns_of_a_wider_matrix) {
    for (const Types& types : all_types)
        for (const Sizes& s : linear_sizes) {
            const Random x(types.input, {s.rows, s.in}, "x"), weight(types.input, {s.out, s.in}, "weight"),
                bias(types.input, {s.out}, "bias");
            const Columns y(types.output, s.rows, s.out, 8, 5);
            backend().linear_forward(y, x, weight, bias, {});
            check_close(y.values(), linear(x, weight, bias.values, s.rows, s.out, s.in), types.output,
                        static_cast<std::size_t>(s.in), text(types));
            BOOST_CHECK(y.untouched());
        }
}

BOOST_AUTO_TEST_CASE(empty_sums_are_zero_and_no_rows_do_nothing) {
    for (const Types& types : all_types) {
        OnDevice c(types.output, {2, 3});
        const OnDevice a(types.input, {2, 0}), b(types.input, {0, 3}), weight(types.input, {3, 0});
        const Random bias(types.input, {3}, "bias"), residual(types.output, {2, 3}, "residual");
        c.set(Values(6, 5.0));
        backend().product(c, a, Transpose::no, b, Transpose::no, Accumulate::yes);
        BOOST_TEST(c.values() == Values(6, 5.0));
        backend().product(c, a, Transpose::no, b, Transpose::no, Accumulate::no);
        BOOST_TEST(c.values() == Values(6, 0.0));
        backend().linear_forward(c, a, weight, bias, residual);
        check_close(c.values(), with_bias(residual.values, bias.values), types.output, 1, "no inputs");
        backend().linear_forward(c, a, weight, {}, {});
        BOOST_TEST(c.values() == Values(6, 0.0));

        OnDevice sums(types.output, {4, 3});
        sums.set(Values(12, 1.0));
        const OnDevice none(types.input, {0, 3}), no_rows(types.input, {0, 4}), nothing(types.output, {0, 3});
        const Random full(types.input, {4, 3}, "full");
        backend().product(nothing, no_rows, Transpose::no, full, Transpose::no, Accumulate::no);
        backend().linear_forward(nothing, none, Random(types.input, {3, 3}, "weight"), bias, {});
        // As the gradient of a weight from no rows: [4, 0] · [0, 3] added to what is there.
        backend().product(sums, no_rows, Transpose::yes, none, Transpose::no, Accumulate::yes);
        BOOST_TEST(sums.values() == Values(12, 1.0));
        if (types.output == Type::fp32) {
            OnDevice dbias(Type::fp32, {4});
            dbias.set(Values(4, 2.0));
            backend().linear_backward_parameters(sums, dbias, no_rows, none, Accumulate::yes);
            BOOST_TEST(sums.values() == Values(12, 1.0));
            BOOST_TEST(dbias.values() == Values(4, 2.0));
            backend().linear_backward_parameters(sums, dbias, no_rows, none, Accumulate::no);
            BOOST_TEST(sums.values() == Values(12, 0.0));
            BOOST_TEST(dbias.values() == Values(4, 0.0));
        }
    }
}

BOOST_AUTO_TEST_CASE(shapes_and_types_that_do_not_fit_are_refused) {
    const OnDevice a(Type::fp32, {2, 3}), b(Type::fp32, {4, 5}), c(Type::fp32, {2, 5}), half(Type::bf16, {3, 5}),
        small(Type::bf16, {2, 5}), right(Type::fp32, {3, 5});
    const auto run = [](const OnDevice& result, const OnDevice& left, const OnDevice& other) {
        backend().product(result, left, Transpose::no, other, Transpose::no, Accumulate::no);
    };
    BOOST_CHECK_THROW(run(c, a, b), Error);
    BOOST_CHECK_THROW(run(c, a, half), Error);
    BOOST_CHECK_THROW(run(small, a, right), Error);
    run(c, a, right);
}

BOOST_AUTO_TEST_CASE(not_a_number_comes_through_a_product) {
    for (const Types& types : all_types) {
        Values ones(12, 1.0);
        ones[5] = std::nan("");
        const OnDevice a(types.input, {3, 4}, ones), b(types.input, {4, 2}, Values(8, 1.0)), c(types.output, {3, 2});
        backend().product(c, a, Transpose::no, b, Transpose::no, Accumulate::no);
        const Values values = c.values();
        BOOST_TEST(std::isnan(values[2]));
        BOOST_TEST(std::isnan(values[3]));
        BOOST_TEST(values[0] == 4.0);
        BOOST_TEST(values[5] == 4.0);
    }
}

BOOST_AUTO_TEST_CASE(linear_layers_add_bias_and_residual) {
    for (const Types& types : all_types)
        for (const Sizes& size : linear_sizes)
            for (const bool has_bias : {false, true})
                for (const int residuals : {0, 1, 2}) {  // none, another tensor, y itself
                    const auto [rows, out, in] = size;
                    const Random x(types.input, {rows, in}, "x"), weight(types.input, {out, in}, "weight"),
                        bias(types.input, {out}, "bias"), residual(types.output, {rows, out}, "residual");
                    const OnDevice other(types.output, {rows, out});
                    const Tensor y = residuals == 2 ? residual.memory.tensor() : other.tensor();
                    backend().linear_forward(y, x, weight, has_bias ? bias.memory.tensor() : Tensor(),
                                             residuals > 0 ? residual.memory.tensor() : Tensor());
                    Values expected = linear(x, weight, has_bias ? bias.values : Values(), rows, out, in);
                    if (residuals > 0) expected = plus(expected, residual.values);
                    const OnDevice& result = residuals == 2 ? residual.memory : other;
                    check_close(result.values(), expected, types.output, static_cast<std::size_t>(in) + 2,
                                fmt::format("{}: {} rows {} to {}, bias {}, residual {}", text(types), rows, in, out,
                                            has_bias, residuals));
                    if (residuals == 1) BOOST_TEST(residual.memory.values() == residual.values);  // it is read only
                }
}

// Twice, as for two micro-batches: gradients are added up.
BOOST_AUTO_TEST_CASE(gradients_of_weight_and_bias_are_added) {
    for_each_type([](Type type) {
        for (const Sizes& size : linear_sizes)
            for (const bool has_bias : {false, true}) {
                const auto [rows, out, in] = size;
                const Random dy(type, {rows, out}, "dy"), x(type, {rows, in}, "x"),
                    dweight(Type::fp32, {out, in}, "dweight"), dbias(Type::fp32, {out}, "dbias");
                for (int round = 0; round < 2; ++round)
                    backend().linear_backward_parameters(dweight, has_bias ? dbias.memory.tensor() : Tensor(), dy, x,
                                                         Accumulate::yes);
                const Values once = reference::product(dy.values, true, x.values, false, count_of({out}),
                                                       count_of({in}), count_of({rows}));
                const std::string what =
                    fmt::format("{}: {} rows {} to {}, bias {}", type_name(type), rows, in, out, has_bias);
                check_close(dweight.memory.values(), plus(plus(dweight.values, once), once), Type::fp32,
                            2 * count_of({rows}), what);
                Values sums = dbias.values;
                for (std::size_t i = 0; has_bias && i < dy.values.size(); ++i)
                    sums[i % sums.size()] += 2 * dy.values[i];
                check_close(dbias.memory.values(), sums, Type::fp32, 2 * count_of({rows}), what + ", dbias");
            }
    });
}

// As in the first micro-batch, whatever was there.
BOOST_AUTO_TEST_CASE(gradients_of_weight_and_bias_are_written) {
    for_each_type([](Type type) {
        for (const Sizes& size : linear_sizes)
            for (const bool has_bias : {false, true}) {
                const auto [rows, out, in] = size;
                const Random dy(type, {rows, out}, "dy"), x(type, {rows, in}, "x");
                OnDevice dweight(Type::fp32, {out, in}), dbias(Type::fp32, {out});
                dweight.poison();
                dbias.poison();
                const auto untouched = dbias.bytes();
                backend().linear_backward_parameters(dweight, has_bias ? dbias.tensor() : Tensor(), dy, x,
                                                     Accumulate::no);
                const std::string what =
                    fmt::format("{}: {} rows {} to {}, bias {}", type_name(type), rows, in, out, has_bias);
                check_close(dweight.values(),
                            reference::product(dy.values, true, x.values, false, count_of({out}), count_of({in}),
                                               count_of({rows})),
                            Type::fp32, count_of({rows}), what);
                Values sums(count_of({out}));
                for (std::size_t i = 0; i < dy.values.size(); ++i) sums[i % sums.size()] += dy.values[i];
                if (has_bias) check_close(dbias.values(), sums, Type::fp32, count_of({rows}), what + ", dbias");
                if (!has_bias) BOOST_CHECK_MESSAGE(dbias.bytes() == untouched, what);
            }
    });
}

BOOST_AUTO_TEST_CASE(gelu_follows_a_linear_layer) {
    for_each_type([](Type type) {
        for (const Sizes& size : linear_sizes)
            for (const bool has_bias : {false, true}) {
                const auto [rows, out, in] = size;
                const double scale = 1 / std::sqrt(static_cast<double>(in));
                const Random x(type, {rows, in}, "x"), weight(type, {out, in}, "weight", scale),
                    bias(type, {out}, "bias");
                OnDevice y(type, {rows, out}), before(type, {rows, out});
                y.poison();
                before.poison();
                backend().linear_gelu_forward(y, before, x, weight, has_bias ? bias.memory.tensor() : Tensor());
                const Values expected = linear(x, weight, has_bias ? bias.values : Values(), rows, out, in);
                const std::string what =
                    fmt::format("{}: {} rows {} to {}, bias {}", type_name(type), rows, in, out, has_bias);
                check_close(before.values(), expected, type, static_cast<std::size_t>(in) + 2, what + ", before");
                check_close(y.values(), reference::activate(reference::gelu, expected), type,
                            static_cast<std::size_t>(in) + 2, what);
            }
    });
}

BOOST_AUTO_TEST_CASE(the_gradient_before_gelu_comes_from_the_layer_behind) {
    for_each_type([](Type type) {
        for (const Sizes& size : linear_sizes) {
            const auto [rows, out, in] = size;  // dy [rows, in], weight [in, out], before [rows, out]
            const Random dy(type, {rows, in}, "dy"), weight(type, {in, out}, "weight"),
                before(type, {rows, out}, "before");
            OnDevice dbefore(type, {rows, out});
            dbefore.poison();
            backend().linear_gelu_backward(dbefore, dy, weight, before);
            const Values dafter =
                reference::product(dy.values, false, weight.values, false, static_cast<std::size_t>(rows),
                                   static_cast<std::size_t>(out), static_cast<std::size_t>(in));
            check_close(dbefore.values(),
                        reference::activation_backward(reference::gelu_derivative, dafter, before.values), type,
                        static_cast<std::size_t>(in) + 2,
                        fmt::format("{}: {} rows {} to {}", type_name(type), rows, in, out));
            BOOST_TEST(before.memory.values() == before.values);
        }
    });
}

// oneDNN divides the terms of a sum among threads on processors without AVX-512 (docs/cpus.md promises nothing else).
static bool alike_on_any_threads() {
#if defined(LOCKSTEP_TEST_CPU) && defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") != 0;
#elif defined(LOCKSTEP_TEST_CPU)
    return false;
#else
    return true;
#endif
}

BOOST_AUTO_TEST_CASE(products_repeat_bit_for_bit_in_every_sync_mode) {
    for (const SyncMode mode : {SyncMode::async, SyncMode::launch}) {
        set_sync_mode(mode);
        for_each_order(
            [] {
                std::vector<std::vector<char>> results;
                for (const Types& types : all_types) {
                    const Random x(types.input, {33, 129}, "x"), weight(types.input, {64, 129}, "weight"),
                        bias(types.input, {64}, "bias");
                    const OnDevice y(types.output, {33, 64});
                    backend().linear_forward(y, x, weight, bias, {});
                    backend().product(y, x, Transpose::no, weight, Transpose::yes, Accumulate::yes);
                    results.push_back(y.bytes());
                }
                return results;
            },
            alike_on_any_threads());
    }
    set_sync_mode(SyncMode::async);
}
