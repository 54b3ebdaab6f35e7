// Fills, copies, sums and biases.
#define BOOST_TEST_MODULE elementwise
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;
using kernels::Accumulate;

namespace {

// Around a warp, the tile of an elementwise kernel (2048 to 8192 elements), primes, and enough for several threads.
const std::vector<std::int64_t> sizes = {1, 31, 32, 33, 97, 2047, 2048, 2049, 4095, 4097, 8191, 8193, 10007, 70001};

std::string at(Type type, std::int64_t size, std::int64_t start = 0) {
    return fmt::format("{}, {} elements from {}", type_name(type), size, start);
}

std::size_t count(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

// Starts that make 16-byte accesses possible, and impossible.
constexpr std::int64_t starts[] = {0, 1};

Values part(const Values& values, std::int64_t start, std::int64_t size) {
    return {values.begin() + start, values.begin() + start + size};
}

double total_of(Tensor x, bool squares, Accumulate accumulate, double before) {
    OnDevice total(Type::fp64, {1}, {before}), totals(Type::fp64, {2}, {before, 0.0});
    if (squares)
        backend().sum_of_squares(totals, x, accumulate);
    else
        backend().sum(total, x, accumulate);
    return squares ? totals.values()[0] : total.values()[0];
}

}  // namespace

BOOST_AUTO_TEST_CASE(fill_takes_any_type_and_writes_nothing_else) {
    std::vector<Type> types = compute_types;
    types.insert(types.end(), {Type::int32, Type::fp64});
    for (const Type type : types)
        for (const auto size : sizes)
            for (const auto start : starts) {
                Values expected(count(size + 2), 3);
                OnDevice y(type, {size + 2}, expected);
                std::fill_n(expected.begin() + start, size, -2);
                backend().fill(y.tensor().slice(start, size), -2);
                BOOST_TEST((y.values() == expected), at(type, size, start));
            }
}

// More tensors than one launch clears, neighbours and with gaps, none, and one that is long.
BOOST_AUTO_TEST_CASE(clear_writes_the_tensors_and_nothing_else) {
    for_each_backend([] {
        Values expected(count(130000), 3);
        const OnDevice all(Type::fp32, {130000}, expected);
        std::vector<Tensor> tensors;
        std::int64_t first = 1;
        const auto add = [&](std::int64_t size, std::int64_t gap) {
            tensors.push_back(all.tensor().slice(first, size));
            std::fill_n(expected.begin() + first, size, 0);
            first += size + gap;
        };
        for (std::int64_t number = 0; number < 70; ++number) add(number * number % 1100, number % 3);
        add(1024, 1);
        add(1025, 0);
        add(65537, 1);
        BOOST_REQUIRE(first <= 130000);
        backend().clear(tensors);
        backend().clear({});
        BOOST_TEST((all.values() == expected));
    });
}

BOOST_AUTO_TEST_CASE(copies_convert_with_one_rounding) {
    for_each_type([](Type from) {
        for_each_type([&](Type to) {
            for (const auto size : sizes)
                for (const auto start : starts) {
                    const Values values = random_rounded(from, count(size + 1), "x", 100);
                    const OnDevice x(from, {size + 1}, values);
                    OnDevice y(to, {size + 1});
                    y.poison();
                    backend().copy(y.tensor().slice(start, size), x.tensor().slice(start, size));
                    const OnDevice expected(to, {size}, part(values, start, size));  // rounded on the host
                    BOOST_TEST((part(y.values(), start, size) == expected.values()),
                               type_name(from) << " to " << at(to, size, start));
                }
        });
    });
    const OnDevice ids(Type::int32, {3}, {1, 2, 3});
    OnDevice copied(Type::int32, {3}), floats(Type::fp32, {3}), more(Type::int32, {4});
    copied.poison();
    backend().copy(copied, ids);
    BOOST_TEST((copied.values() == Values{1, 2, 3}));
    BOOST_CHECK_THROW(backend().copy(floats, ids), Error);
    BOOST_CHECK_THROW(backend().copy(more, ids), Error);
}

BOOST_AUTO_TEST_CASE(add_and_scale_follow_the_reference) {
    for_each_type([](Type type) {
        for (const auto size : sizes)
            for (const auto start : starts) {
                const Values x = random_rounded(type, count(size + 1), "x"),
                             y = random_rounded(type, count(size + 1), "y");
                OnDevice left(type, {size + 1}, y);
                const OnDevice right(type, {size + 1}, x);
                backend().add(left.tensor().slice(start, size), right.tensor().slice(start, size));
                Values expected = y;
                for (auto i = start; i < start + size; ++i) expected[count(i)] += x[count(i)];
                check_close(left.values(), expected, type, 1, "add, " + at(type, size, start));
                OnDevice sum(Type::fp32, {size + 1}, y);
                backend().add(sum.tensor().slice(start, size), right.tensor().slice(start, size));
                check_close(sum.values(), expected, Type::fp32, 1, "add to fp32, " + at(type, size, start));
            }
    });
    for (const auto size : sizes)
        for (const auto start : starts) {
            Values values = random_rounded(Type::fp32, count(size + 1), "x");
            OnDevice x(Type::fp32, {size + 1}, values);
            backend().scale(x.tensor().slice(start, size), 0.375f);
            for (auto i = start; i < start + size; ++i) values[count(i)] *= 0.375;
            check_close(x.values(), values, Type::fp32, 1, "scale, " + at(Type::fp32, size, start));
        }
}

BOOST_AUTO_TEST_CASE(sums_are_taken_in_double) {
    for_each_backend([] {
        for (const std::int64_t size : {1, 31, 32, 33, 4095, 4096, 4097, 20011})
            for (const auto start : starts) {
                const Values all = random_rounded(Type::fp32, count(size + 1), "x", 100);
                const OnDevice on_device(Type::fp32, {size + 1}, all);
                const Tensor x = on_device.tensor().slice(start, size);
                double sum = 0, squares = 0, absolute = 0;
                for (const double value : part(all, start, size)) {
                    sum += value;
                    absolute += std::abs(value);
                    squares += value * value;
                }
                for_each_order([&] {
                    OnDevice totals(Type::fp64, {3});
                    totals.poison();
                    backend().sum(totals.tensor().slice(0, 1), x, Accumulate::no);
                    backend().sum_of_squares(totals.tensor().slice(1, 2), x, Accumulate::no);
                    const Values values = totals.values();
                    BOOST_TEST(std::abs(values[0] - sum) <= 1e-13 * absolute, at(Type::fp32, size, start));
                    BOOST_TEST(std::abs(values[1] - squares) <= 1e-13 * squares, at(Type::fp32, size, start));
                    BOOST_TEST(values[2] == 0.0);
                    return std::vector<std::vector<char>>{totals.bytes()};
                });
                BOOST_TEST(std::abs(total_of(x, false, Accumulate::yes, 5) - sum - 5) <= 1e-13 * (absolute + 5));
                BOOST_TEST(std::abs(total_of(x, true, Accumulate::yes, 5) - squares - 5) <= 1e-13 * (squares + 5));
            }
        Values large(1000, 1e30);  // its squares are beyond fp32
        const OnDevice finite(Type::fp32, {1000}, large);
        BOOST_TEST(std::abs(total_of(finite, true, Accumulate::no, 0) / 1e63 - 1) < 1e-6);
        large[777] = static_cast<double>(kernel_tests::not_a_number);
        BOOST_TEST(std::isnan(total_of(OnDevice(Type::fp32, {1000}, large), true, Accumulate::no, 0)));
        large[777] = static_cast<double>(kernel_tests::infinity);
        BOOST_TEST(std::isinf(total_of(OnDevice(Type::fp32, {1000}, large), true, Accumulate::no, 0)));
        BOOST_TEST(total_of(finite.tensor().slice(0, 0), false, Accumulate::no, 1) == 0.0);
    });
}

BOOST_AUTO_TEST_CASE(zeros_are_counted) {
    for_each_backend([] {
        for (const std::int64_t size : {1, 31, 33, 4096, 4097, 20011, 1300001})
            for (const auto start : starts)
                for (const std::size_t every : {1u, 7u}) {
                    Values all = random_rounded(Type::fp32, count(size + 1), "x");
                    double zeros = 0;
                    for (std::size_t i = 0; i < all.size(); i += every) {
                        all[i] = i % 2 == 0 ? 0.0 : -0.0;
                        zeros += i >= count(start) && i < count(start + size) ? 1 : 0;
                    }
                    const OnDevice x(Type::fp32, {size + 1}, all);
                    const OnDevice totals(Type::fp64, {2}, {1, 10});
                    backend().sum_of_squares(totals, x.tensor().slice(start, size), Accumulate::no);
                    BOOST_TEST(totals.values()[1] == zeros, at(Type::fp32, size, start));
                    backend().sum_of_squares(totals, x.tensor().slice(start, size), Accumulate::yes);
                    BOOST_TEST(totals.values()[1] == 2 * zeros, at(Type::fp32, size, start));
                }
    });
}

BOOST_AUTO_TEST_CASE(blocks_are_squared_and_summed_on_their_own) {
    for_each_backend([] {
        for (const std::int64_t size : {1, 31, 512, 513, 20011})
            for (const std::int64_t block : {1, 33, 512, 30000})
                for (const auto start : starts) {
                    if (size / block > 1000) continue;
                    Values all = random_rounded(Type::fp32, count(size + 1), "x", 100);
                    for (std::size_t i = 0; i < all.size(); i += 5) all[i] = 0;
                    const OnDevice x(Type::fp32, {size + 1}, all);
                    const std::int64_t blocks = (size + block - 1) / block;
                    for_each_order([&] {
                        OnDevice totals(Type::fp64, {blocks, 2});
                        totals.poison();
                        backend().block_sums_of_squares(totals, x.tensor().slice(start, size), block);
                        const Values values = totals.values();
                        for (std::int64_t b = 0; b < blocks; ++b) {
                            double squares = 0, zeros = 0;
                            for (const double value : part(all, start + b * block, std::min(block, size - b * block))) {
                                squares += value * value;
                                zeros += value == 0 ? 1 : 0;
                            }
                            BOOST_TEST(std::abs(values[count(2 * b)] - squares) <= 1e-13 * squares,
                                       fmt::format("block {} of {}, ", b, block) + at(Type::fp32, size, start));
                            BOOST_TEST(values[count(2 * b + 1)] == zeros);
                        }
                        return std::vector<std::vector<char>>{totals.bytes()};
                    });
                }
    });
}

BOOST_AUTO_TEST_CASE(rows_are_summed_column_by_column) {
    for_each_backend([] {
        for (const std::int64_t rows : {0, 1, 2, 12, 255, 257, 1000})
            for (const std::int64_t columns : {1, 2, 3}) {
                const Values all = random_rounded(Type::fp32, count(rows * columns), "x", 100);
                const OnDevice x(Type::fp64, {rows, columns}, all);
                for_each_order([&] {
                    OnDevice total(Type::fp64, {columns});
                    total.poison();
                    backend().sum_rows(total, x);
                    const Values values = total.values();
                    for (std::int64_t column = 0; column < columns; ++column) {
                        double sum = 0, absolute = 0;
                        for (std::int64_t row = 0; row < rows; ++row) {
                            sum += all[count(row * columns + column)];
                            absolute += std::abs(all[count(row * columns + column)]);
                        }
                        BOOST_TEST(std::abs(values[count(column)] - sum) <= 1e-13 * absolute,
                                   fmt::format("column {} of {} in {} rows", column, columns, rows));
                    }
                    return std::vector<std::vector<char>>{total.bytes()};
                });
            }
    });
}

BOOST_AUTO_TEST_CASE(a_bias_is_added_to_every_row) {
    for_each_type([](Type type) {
        for (const std::int64_t rows : {1, 3, 33})
            for (const std::int64_t width : {1, 7, 8, 32, 129, 1024})
                for (const auto start : starts) {
                    const Values x = random_rounded(type, count((rows + 1) * width), "x"),
                                 b = random_rounded(type, count(width + 1), "b");
                    OnDevice y(type, {rows + 1, width}, x);
                    const OnDevice bias(type, {width + 1}, b);
                    backend().add_bias(y.tensor().slice(0, rows), bias.tensor().slice(start, width));
                    Values expected = x;
                    for (std::int64_t i = 0; i < rows * width; ++i) expected[count(i)] += b[count(start + i % width)];
                    check_close(y.values(), expected, type, 1, fmt::format("{} rows, ", rows) + at(type, width, start));
                }
    });
}

BOOST_AUTO_TEST_CASE(rows_may_be_columns_of_a_wider_matrix) {
    for_each_type([](Type type) {
        for (const std::int64_t rows : {2, 33})
            for (const std::int64_t width : {1, 8, 129, 264})
                for (const std::int64_t before : {0, 8, 3}) {
                    const std::string what = fmt::format("{} rows, ", rows) + at(type, width, before);
                    const Values x = random_rounded(type, count(rows * width), "x"),
                                 b = random_rounded(type, count(width), "b");
                    const OnDevice bias(type, {width}, b);
                    const Columns from(type, rows, width, before, 8, x), to(type, rows, width, 5, 3);
                    backend().copy(to, from);
                    BOOST_TEST((to.values() == x), what);
                    backend().add(to, from);
                    check_close(to.values(), plus(x, x), type, 1, what);
                    const Columns sum(Type::fp32, rows, width, 5, 3, x);
                    backend().add(sum, from);
                    check_close(sum.values(), plus(x, x), Type::fp32, 1, what);
                    BOOST_TEST(sum.untouched(), what);
                    Values expected = x, sums(count(width));
                    for (std::int64_t i = 0; i < rows * width; ++i) {
                        expected[count(i)] += b[count(i % width)];
                        sums[count(i % width)] += x[count(i)];
                    }
                    const Columns padded(type, rows, width, 8, 8 - width % 8);  // each row begins aligned
                    for (const Columns* out : {&to, &padded}) {
                        backend().copy(*out, from);
                        backend().add_bias(*out, bias);
                        check_close(out->values(), expected, type, 1, what);
                        BOOST_TEST(out->untouched(), what);
                    }
                    OnDevice dbias(Type::fp32, {width});
                    dbias.set(Values(count(width)));
                    backend().bias_backward(dbias, from);
                    check_close(dbias.values(), sums, Type::fp32, count(rows), what);
                }
    });
}

BOOST_AUTO_TEST_CASE(the_gradient_of_a_bias_is_a_column_sum) {
    struct Case {
        std::int64_t rows, width;
    };
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 1}, Case{4099, 1}, Case{257, 3}, Case{31, 8}, Case{513, 33}, Case{130, 264},
                              Case{2, 1000}, Case{1, 2051}, Case{1029, 64}})
            for (const auto start : starts) {
                const Values all = random_rounded(type, count(c.rows * c.width + 1), "dy");
                const OnDevice on_device(type, {c.rows * c.width + 1}, all);
                const Tensor dy = on_device.tensor().slice(start, c.rows * c.width).reshaped({c.rows, c.width});
                const Values before = random_rounded(Type::fp32, count(c.width), "before");
                Values expected = before;
                for (std::int64_t i = 0; i < c.rows * c.width; ++i)
                    expected[count(i % c.width)] += all[count(start + i)];
                for_each_order([&] {
                    OnDevice dbias(Type::fp32, {c.width}, before);
                    backend().bias_backward(dbias, dy);
                    check_close(dbias.values(), expected, Type::fp32, count(c.rows),
                                fmt::format("{} rows, ", c.rows) + at(type, c.width, start));
                    return std::vector<std::vector<char>>{dbias.bytes()};
                });
            }
    });
}
