// LayerNorm over columns divided among ranks.
#define BOOST_TEST_MODULE split_norm
#include "reference/split_norm.hpp"

#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

constexpr float epsilon = 1e-5f;
using Results = std::vector<std::vector<char>>;

struct Case {
    std::int64_t parts, rows, width;  // width of a part
    std::int64_t skip = 0;            // elements by which every tensor's rows start past an aligned address
};

std::size_t u(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

// All parts, each operation against its reference on the same inputs, and all together against layer_norm_forward and
// layer_norm_backward of the whole rows.
Results check(const Case& c, Type type) {
    const std::string what =
        fmt::format("{} x [{}, {}] {}{}", c.parts, c.rows, c.width, type_name(type), c.skip ? " unaligned" : "");
    const std::int64_t all_width = c.parts * c.width;
    const Shape whole{c.rows, all_width}, rows{c.rows, c.width};
    const std::size_t count = u(element_count(whole)), terms = u(all_width), sum_terms = terms + u(c.rows);
    Values x = random_rounded(type, count, "x", 2), dy = random_rounded(type, count, "dy");
    for (std::size_t i = 0; i < count; ++i) x[i] = OnDevice(type, {1}, {x[i] + 2.0 * (i % 3 == 0)}).values()[0];
    const Values w = random_rounded(Type::fp32, terms, "weight"), b = random_rounded(Type::fp32, terms, "bias");
    const Values dw_before = random_rounded(Type::fp32, terms, "dweight");
    const Values db_before = random_rounded(Type::fp32, terms, "dbias");
    const auto part = [&](const Values& values, std::int64_t p) {
        return reference::columns_of(values, terms, u(p * c.width), u(c.width));
    };
    const auto put = [&](Values& values, std::int64_t p, const Values& of_part) {
        reference::put_columns(values, terms, u(p * c.width), u(c.width), of_part);
    };
    Results results;

    Values expected_moments;
    OnDevice moments(Type::fp32, {c.parts, c.rows, 2});
    moments.poison();
    for (std::int64_t p = 0; p < c.parts; ++p) {
        backend().split_norm_moments(moments.tensor().slice(p, 1), Skewed(type, rows, c.skip, part(x, p)));
        for (const double value : reference::split_norm_moments(part(x, p), u(c.width)))
            expected_moments.push_back(value);
    }
    check_close(moments.values(), expected_moments, Type::fp32, u(c.width), what + " moments");
    Skewed mean(Type::fp32, {c.rows}, c.skip), inverse(Type::fp32, {c.rows}, c.skip);
    backend().split_norm_statistics(mean, inverse, moments, c.width, epsilon);
    const auto merged =
        reference::split_norm_statistics(moments.values(), u(c.parts), u(c.width), static_cast<double>(epsilon));
    check_close(mean.values(), merged.mean, Type::fp32, u(c.parts), what + " mean");
    check_close(inverse.values(), merged.inverse, Type::fp32, u(c.parts), what + " inverse");
    results.insert(results.end(), {moments.bytes(), mean.bytes(), inverse.bytes()});

    const reference::Statistics of{mean.values(), inverse.values()};
    Values all_y(count), all_dx(count), all_dweight(terms), all_dbias(terms), all_sums(2 * u(c.rows));
    for (std::int64_t p = 0; p < c.parts; ++p) {
        const Skewed in(type, rows, c.skip, part(x, p)), gradient(type, rows, c.skip, part(dy, p));
        const Skewed weight(Type::fp32, {c.width}, c.skip, part(w, p)), bias(Type::fp32, {c.width}, c.skip, part(b, p));
        const Skewed dweight(Type::fp32, {c.width}, c.skip, part(dw_before, p));
        const Skewed dbias(Type::fp32, {c.width}, c.skip, part(db_before, p));
        const Skewed y(type, rows, c.skip), sums(Type::fp32, {c.rows, 2}, c.skip);
        backend().split_norm_forward(y, in, mean, inverse, weight, bias);
        check_close(y.values(), reference::split_norm_forward(part(x, p), of, part(w, p), part(b, p)), type, terms,
                    what + " y of a part");
        backend().split_norm_backward_sums(sums, dweight, dbias, gradient, in, weight, mean, inverse);
        const auto expected = reference::split_norm_backward_sums(part(dy, p), part(x, p), of, part(w, p));
        check_close(sums.values(), expected.sums, Type::fp32, terms, what + " sums");
        check_close(dweight.values(), plus(part(dw_before, p), expected.dweight), Type::fp32, sum_terms,
                    what + " dweight");
        check_close(dbias.values(), plus(part(db_before, p), expected.dbias), Type::fp32, sum_terms, what + " dbias");
        put(all_y, p, y.values());
        put(all_dweight, p, dweight.values());
        put(all_dbias, p, dbias.values());
        all_sums = plus(all_sums, sums.values());
        results.insert(results.end(), {y.bytes(), sums.bytes(), dweight.bytes(), dbias.bytes()});
    }
    const Skewed sums(Type::fp32, {c.rows, 2}, c.skip, all_sums);
    for (std::int64_t p = 0; p < c.parts; ++p) {
        const Skewed in(type, rows, c.skip, part(x, p)), gradient(type, rows, c.skip, part(dy, p));
        const Skewed weight(Type::fp32, {c.width}, c.skip, part(w, p)), dx(type, rows, c.skip);
        backend().split_norm_backward(dx, gradient, in, weight, mean, inverse, sums, all_width);
        check_close(dx.values(),
                    reference::split_norm_backward(part(dy, p), part(x, p), of, part(w, p), sums.values(), terms), type,
                    terms, what + " dx of a part");
        put(all_dx, p, dx.values());
        results.push_back(dx.bytes());
    }

    const OnDevice in(type, whole, x), gradient(type, whole, dy), weight(Type::fp32, {all_width}, w);
    const OnDevice bias(Type::fp32, {all_width}, b), dweight(Type::fp32, {all_width}, dw_before);
    const OnDevice dbias(Type::fp32, {all_width}, db_before), dx(type, whole, Values(count)), y(type, whole);
    const OnDevice whole_mean(Type::fp32, {c.rows}), whole_inverse(Type::fp32, {c.rows});
    backend().layer_norm_forward(y, whole_mean, whole_inverse, in, {}, weight, bias, epsilon);
    backend().layer_norm_backward(dx, dweight, dbias, gradient, in, weight, whole_mean, whole_inverse,
                                  kernels::Accumulate::no);
    check_close(mean.values(), whole_mean.values(), Type::fp32, terms, what + " mean of all");
    check_close(inverse.values(), whole_inverse.values(), Type::fp32, terms, what + " inverse of all");
    check_close(all_y, y.values(), type, terms, what + " y of all");
    check_close(all_dx, dx.values(), type, terms, what + " dx of all");
    check_close(all_dweight, dweight.values(), Type::fp32, sum_terms, what + " dweight of all");
    check_close(all_dbias, dbias.values(), Type::fp32, sum_terms, what + " dbias of all");
    return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_parts_together_are_layer_norm) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 1, 31},
                              {1, 33, 97},
                              {2, 31, 32},
                              {3, 33, 33},
                              {3, 31, 1},
                              {3, 9, 256},
                              {2, 9, 264},
                              {2, 7, 520},
                              {1, 5, 1024}})
            check(c, type);
    });
}

BOOST_AUTO_TEST_CASE(wide_rows) {
    for_each_type([](Type type) {
        for (const std::int64_t width : {1025, 2048, 2056, 4104, 8200}) check({2, 3, width}, type);
    });
}

BOOST_AUTO_TEST_CASE(rows_need_no_alignment) {
    for_each_type([](Type type) {
        for (const std::int64_t width : {64, 97, 1032}) check({2, 3, width, 1}, type);
    });
}

// More rows than all blocks take at once.
BOOST_AUTO_TEST_CASE(blocks_go_on_to_their_next_rows) {
    for_each_backend([] {
        check({2, 2200, 8}, Type::bf16);
        check({1, 301, 9}, Type::fp32);
        check({1, 301, 1032}, Type::bf16);
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_matter) {
    for (const std::int64_t width : {33, 96, 768, 1032, 2049})
        for_each_order([&] { return check({2, 9, width}, Type::bf16); });
}

BOOST_AUTO_TEST_CASE(a_large_mean_does_not_spoil_the_variance) {
    for_each_backend([] {
        for (const std::int64_t width : {128, 129}) {
            const std::size_t terms = u(2 * width);
            Values x = random_rounded(Type::fp32, terms, "x");
            for (double& value : x) value = static_cast<double>(static_cast<float>(value + 1000));
            const OnDevice in(Type::fp32, {2, width}, x), moments(Type::fp32, {2, 1, 2});
            const OnDevice mean(Type::fp32, {1}), inverse(Type::fp32, {1});
            for (const std::int64_t p : {0, 1})
                backend().split_norm_moments(moments.tensor().slice(p, 1), in.tensor().slice(p, 1));
            backend().split_norm_statistics(mean, inverse, moments, width, epsilon);
            const auto expected = reference::split_norm_statistics(reference::split_norm_moments(x, terms), 1, terms,
                                                                   static_cast<double>(epsilon));
            BOOST_TEST(std::abs(inverse.values()[0] / expected.inverse[0] - 1) < 1e-5);
        }
    });
}
