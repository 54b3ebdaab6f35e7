#define BOOST_TEST_MODULE kernels_split_norm
#include "reference/split_norm.hpp"

#include "reference/norm.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {

constexpr float epsilon = 1e-5f;
const double epsilon_value = static_cast<double>(epsilon);

struct Case {
    std::int64_t parts, rows, width;  // width of a part
};
std::size_t u(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

// What all ranks together have after forward and backward.
struct Whole {
    Floats mean, inverse, y, dx, dweight, dbias;
    explicit Whole(const Case& c)
        : mean({c.rows}),
          inverse({c.rows}),
          y({c.rows, c.parts * c.width}),
          dx(y.shape),
          dweight({c.parts * c.width}),
          dbias(dweight.shape) {}
};

struct Inputs {
    Floats x, weight, bias, dy, dweight, dbias;
    explicit Inputs(const Case& c)
        : x(random_floats({c.rows, c.parts * c.width}, "x", 2)),
          weight(random_floats({c.parts * c.width}, "weight")),
          bias(random_floats(weight.shape, "bias")),
          dy(random_floats(x.shape, "dy")),
          dweight(random_floats(weight.shape, "dweight")),
          dbias(random_floats(weight.shape, "dbias")) {
        for (std::size_t i = 0; i < x.data.size(); ++i) x[i] += 3.0f * static_cast<float>(i % 5);
    }
};

// The parts as the ranks would take them, each operation against its own reference.
Whole run_parts(kernels::Backend& backend, const Case& c, const Inputs& in, const std::string& what) {
    Whole out(c);
    const std::int64_t all_width = c.parts * c.width;
    const std::size_t terms = u(all_width), sums_terms = u(c.rows) + terms;
    const auto part = [&](const Floats& x, std::int64_t p) {
        const Values values = reference::columns_of(x.values(), u(all_width), u(p * c.width), u(c.width));
        return floats_of({static_cast<std::int64_t>(values.size()) / c.width, c.width}, values);
    };
    const auto put = [&](Floats& whole, std::int64_t p, const Floats& x) {
        Values all = whole.values();
        reference::put_columns(all, u(all_width), u(p * c.width), u(c.width), x.values());
        whole = floats_of(whole.shape, all);
    };

    Floats moments({c.parts, c.rows, 2}, 9.0f);
    for (std::int64_t p = 0; p < c.parts; ++p)
        backend.split_norm_moments(moments.tensor().slice(p, 1), part(in.x, p).tensor());
    Values expected_moments;
    for (std::int64_t p = 0; p < c.parts; ++p)
        for (const double value : reference::split_norm_moments(part(in.x, p).values(), u(c.width)))
            expected_moments.push_back(value);
    check_close(moments, expected_moments, u(c.width), what + " moments");
    backend.split_norm_statistics(out.mean.tensor(), out.inverse.tensor(), moments.tensor(), c.width, epsilon);
    const reference::Statistics of =
        reference::split_norm_statistics(expected_moments, u(c.parts), u(c.width), epsilon_value);
    check_close(out.mean, of.mean, terms, what + " mean");
    check_close(out.inverse, of.inverse, terms, what + " inverse");

    Floats sums({c.rows, 2});
    for (std::int64_t p = 0; p < c.parts; ++p) {
        Floats x = part(in.x, p), weight = part(in.weight, p), bias = part(in.bias, p), dy = part(in.dy, p);
        Floats y(x.shape, 9.0f), dweight = part(in.dweight, p), dbias = part(in.dbias, p), mine({c.rows, 2}, 9.0f);
        backend.split_norm_forward(y.tensor(), x.tensor(), out.mean.tensor(), out.inverse.tensor(), weight.tensor(),
                                   bias.tensor());
        check_close(y, reference::split_norm_forward(x.values(), of, weight.values(), bias.values()), terms,
                    what + " y of a part");
        const auto expected = reference::split_norm_backward_sums(dy.values(), x.values(), of, weight.values());
        const Values expected_dweight = plus(dweight.values(), expected.dweight);
        const Values expected_dbias = plus(dbias.values(), expected.dbias);
        backend.split_norm_backward_sums(mine.tensor(), dweight.tensor(), dbias.tensor(), dy.tensor(), x.tensor(),
                                         weight.tensor(), out.mean.tensor(), out.inverse.tensor());
        check_close(mine, expected.sums, terms, what + " sums of a part");
        check_close(dweight, expected_dweight, sums_terms, what + " dweight of a part");
        check_close(dbias, expected_dbias, sums_terms, what + " dbias of a part");
        backend.add(sums.tensor(), mine.tensor());
        put(out.y, p, y);
        put(out.dweight, p, dweight);
        put(out.dbias, p, dbias);
    }
    for (std::int64_t p = 0; p < c.parts; ++p) {
        Floats x = part(in.x, p), weight = part(in.weight, p), dy = part(in.dy, p), dx(x.shape, 9.0f);
        backend.split_norm_backward(dx.tensor(), dy.tensor(), x.tensor(), weight.tensor(), out.mean.tensor(),
                                    out.inverse.tensor(), sums.tensor(), all_width);
        check_close(
            dx,
            reference::split_norm_backward(dy.values(), x.values(), of, weight.values(), sums.values(), u(all_width)),
            terms, what + " dx of a part");
        put(out.dx, p, dx);
    }
    return out;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_reference_parts_together_are_the_reference_norm) {
    constexpr std::size_t parts = 3, width = 5, all_width = parts * width, rows = 4;
    const Values x = random_values(rows * all_width, "x"), dy = random_values(rows * all_width, "dy");
    const Values weight = random_values(all_width, "weight"), bias = random_values(all_width, "bias");
    const auto part = [&](const Values& v, std::size_t p) {
        return reference::columns_of(v, all_width, p * width, width);
    };
    Values moments, sums(2 * rows), y(x.size()), dx(x.size());
    for (std::size_t p = 0; p < parts; ++p)
        for (const double value : reference::split_norm_moments(part(x, p), width)) moments.push_back(value);
    const auto of = reference::split_norm_statistics(moments, parts, width, 1e-5);
    for (std::size_t p = 0; p < parts; ++p) {
        reference::put_columns(y, all_width, p * width, width,
                               reference::split_norm_forward(part(x, p), of, part(weight, p), part(bias, p)));
        sums = plus(sums, reference::split_norm_backward_sums(part(dy, p), part(x, p), of, part(weight, p)).sums);
    }
    for (std::size_t p = 0; p < parts; ++p)
        reference::put_columns(
            dx, all_width, p * width, width,
            reference::split_norm_backward(part(dy, p), part(x, p), of, part(weight, p), sums, all_width));
    const Values expected_y = reference::norm_forward(x, weight, bias, 1e-5, true).y;
    const Values expected_dx = reference::norm_backward(dy, x, weight, 1e-5, true).dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
        BOOST_TEST(std::abs(y[i] - expected_y[i]) < 1e-12);
        BOOST_TEST(std::abs(dx[i] - expected_dx[i]) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(not_a_number_stays_in_its_row) {
    const auto backend = kernels::make_cpu_backend();
    Floats x({3, 40}), moments({1, 3, 2}), mean({3}), inverse({3}), weight({40}, 1.0f), bias({40}), y({3, 40});
    x[45] = not_a_number;
    backend->split_norm_moments(moments.tensor(), x.tensor());
    backend->split_norm_statistics(mean.tensor(), inverse.tensor(), moments.tensor(), 40, epsilon);
    backend->split_norm_forward(y.tensor(), x.tensor(), mean.tensor(), inverse.tensor(), weight.tensor(),
                                bias.tensor());
    BOOST_TEST((y[0] == 0.0f && std::isnan(y[41]) && y[80] == 0.0f));
}

BOOST_AUTO_TEST_CASE(parts_do_not_depend_on_the_number_of_threads) {
    check_same_for_any_threads([](kernels::Backend& backend) {
        const Case c{2, 1009, 65};
        const Whole out = run_parts(backend, c, Inputs(c), "threads");
        return std::vector<Floats>{out.mean, out.inverse, out.y, out.dx, out.dweight, out.dbias};
    });
}
