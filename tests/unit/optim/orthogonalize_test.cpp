// Muon's iteration against its naive twin, and what it is for.
#include "optim/orthogonalize.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "kernels/backend.hpp"
#include "reference/update.hpp"

using namespace lockstep;

namespace {

std::vector<double> matrix_of(std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(std::sin(static_cast<double>(i * i % 97)) + 0.1);
    return values;
}

std::vector<double> orthogonalized(const std::vector<double>& values, std::int64_t rows, std::int64_t columns,
                                   std::int64_t iterations, Type type) {
    const auto backend = kernels::make_cpu_backend();
    Tensor x, result;
    optim::Orthogonalizer orthogonalizer;
    const Arena arena = planned(backend->device(), "test", [&](Arena& in) {
        x = in.allocate(Type::fp32, {rows, columns});
        result = in.allocate(Type::fp32, {rows, columns});
        // Room for larger ones.
        orthogonalizer = optim::Orthogonalizer(in, type, rows * columns + 100, std::min(rows, columns) + 3);
    });
    std::copy(values.begin(), values.end(), x.fp32());
    backend->copy(result, orthogonalizer(*backend, x, iterations));
    return {result.fp32(), result.fp32() + rows * columns};
}

std::vector<double> transposed(const std::vector<double>& values, std::size_t columns) {
    std::vector<double> result;
    for (std::size_t c = 0; c < columns; ++c)
        for (std::size_t i = c; i < values.size(); i += columns) result.push_back(values[i]);
    return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(newton_schulz_follows_its_naive_twin) {
    for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 7}, {7, 1}, {5, 5}, {8, 33}, {33, 8}, {31, 48}})
        for (const int iterations : {1, 5}) {
            const auto x = matrix_of(std::int64_t{rows} * columns);
            const auto found = orthogonalized(x, rows, columns, iterations, Type::fp32);
            // The twin has its rows as the shorter side.
            const bool wide = rows <= columns;
            auto expected = wide ? x : transposed(x, static_cast<std::size_t>(columns));
            expected = reference::orthogonalized(expected, static_cast<std::size_t>(wide ? columns : rows), iterations);
            if (!wide) expected = transposed(expected, static_cast<std::size_t>(rows));
            double worst = 0;
            for (std::size_t i = 0; i < expected.size(); ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
            BOOST_TEST(worst < 2e-4, rows << " x " << columns << ", " << iterations << " iterations: " << worst);
        }
}

BOOST_AUTO_TEST_CASE(rows_become_nearly_orthogonal) {
    constexpr std::int64_t rows = 12, columns = 40;
    for (const Type type : {Type::fp32, Type::bf16}) {
        const auto x = orthogonalized(matrix_of(rows * columns), rows, columns, 5, type);
        for (std::int64_t r = 0; r < rows; ++r) {
            double own = 0;
            for (std::int64_t c = 0; c < columns; ++c) {
                const double value = x[static_cast<std::size_t>(r * columns + c)];
                own += value * value;
            }
            BOOST_TEST((own > 0.4 && own < 1.5), type_name(type) << ", row " << r << ": " << own);
            for (std::int64_t other = 0; other < r; ++other) {
                double product = 0;
                for (std::int64_t c = 0; c < columns; ++c)
                    product +=
                        x[static_cast<std::size_t>(r * columns + c)] * x[static_cast<std::size_t>(other * columns + c)];
                BOOST_TEST(std::abs(product) < 0.35, type_name(type) << ", rows " << r << " and " << other);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(a_matrix_of_zeros_stays_zero) {
    for (const double value : orthogonalized(std::vector<double>(15), 3, 5, 5, Type::fp32)) BOOST_TEST(value == 0);
}
