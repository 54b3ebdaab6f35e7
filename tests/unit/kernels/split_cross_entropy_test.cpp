#define BOOST_TEST_MODULE kernels_split_cross_entropy
#include "reference/split_cross_entropy.hpp"

#include <bit>

#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;

namespace {

std::size_t u(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

struct Result {
    Floats losses, logits;
};

// The three operations on columns cut at `cuts` (0 … vocabulary), with what the ranks exchange between them. Every
// rank's losses must be the same.
Result run_parts(kernels::Backend& backend, const Floats& logits, std::vector<int> targets,
                 const std::vector<std::int64_t>& cuts, float gradient_scale, Tensor loss_scale,
                 const std::string& what) {
    const std::int64_t rows = static_cast<std::int64_t>(targets.size()), vocabulary = cuts.back();
    std::vector<Floats> parts;
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
        const std::int64_t count = cuts[p + 1] - cuts[p];
        parts.push_back(
            floats_of({rows, count}, reference::columns_of(logits.values(), u(vocabulary), u(cuts[p]), u(count))));
    }
    Floats maxima({rows}, -infinity), sums({rows, 2});
    for (Floats& part : parts) {
        Floats mine({rows}, 9.0f);
        backend.cross_entropy_maxima(mine.tensor(), part.tensor());
        check_close(mine, reference::cross_entropy_maxima(part.values(), u(part.shape[1])), 1, what + " maxima");
        for (std::size_t r = 0; r < u(rows); ++r) maxima[r] = std::max(maxima[r], mine[r]);
    }
    for (std::size_t p = 0; p < parts.size(); ++p) {
        Floats mine({rows, 2}, 9.0f);
        backend.cross_entropy_sums(mine.tensor(), parts[p].tensor(), maxima.tensor(), id_tensor(targets), cuts[p]);
        check_close(
            mine, reference::cross_entropy_sums(parts[p].values(), maxima.values(), targets, static_cast<int>(cuts[p])),
            u(vocabulary), what + " sums");
        backend.add(sums.tensor(), mine.tensor());
    }
    Result result{Floats({rows}, 9.0f), logits};
    Values all = logits.values();
    for (std::size_t p = 0; p < parts.size(); ++p) {
        Floats losses({rows}, 9.0f);
        backend.cross_entropy_finish(losses.tensor(), parts[p].tensor(), maxima.tensor(), sums.tensor(),
                                     id_tensor(targets), cuts[p], {gradient_scale}, loss_scale);
        if (p > 0) BOOST_TEST(same_bits(losses, result.losses), what);
        result.losses = losses;
        reference::put_columns(all, u(vocabulary), u(cuts[p]), u(cuts[p + 1] - cuts[p]), parts[p].values());
    }
    result.logits = floats_of(logits.shape, all);
    return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_reference_parts_together_are_the_reference) {
    const std::vector<int> targets = {3, -1, 0, 6};
    const Values logits = random_values(28, "logits");
    const auto left = reference::columns_of(logits, 7, 0, 3), right = reference::columns_of(logits, 7, 3, 4);
    Values maxima = reference::cross_entropy_maxima(left, 3);
    const Values others = reference::cross_entropy_maxima(right, 4);
    for (std::size_t r = 0; r < 4; ++r) maxima[r] = std::max(maxima[r], others[r]);
    const Values sums = plus(reference::cross_entropy_sums(left, maxima, targets, 0),
                             reference::cross_entropy_sums(right, maxima, targets, 3));
    const auto first = reference::cross_entropy_finish(left, maxima, sums, targets, 0);
    const auto second = reference::cross_entropy_finish(right, maxima, sums, targets, 3);
    const auto expected = reference::cross_entropy(logits, targets);
    Values dlogits(28);
    reference::put_columns(dlogits, 7, 0, 3, first.dlogits);
    reference::put_columns(dlogits, 7, 3, 4, second.dlogits);
    BOOST_TEST((first.losses == second.losses));
    for (std::size_t r = 0; r < 4; ++r) BOOST_TEST(std::abs(first.losses[r] - expected.losses[r]) < 1e-12);
    for (std::size_t i = 0; i < 28; ++i) BOOST_TEST(std::abs(dlogits[i] - expected.dlogits[i]) < 1e-12);
}

BOOST_AUTO_TEST_CASE(large_and_masked_logits_and_not_a_number) {
    for_each_instruction_set([](kernels::Backend& backend, const std::string& name) {
        Floats logits({4, 40}, -1000.0f);
        std::vector<int> targets = {0, 1, 2, -1};
        logits[0] = 1e5f;                                                             // all of the weight
        for (std::size_t i = 41; i < 80; ++i) logits[i] = i < 43 ? 2.0f : -infinity;  // the second part is masked whole
        logits[85] = not_a_number;
        const std::vector<std::int64_t> at = {0, 20, 40};
        std::vector<Floats> parts = {floats_of({4, 20}, reference::columns_of(logits.values(), 40, 0, 20)),
                                     floats_of({4, 20}, reference::columns_of(logits.values(), 40, 20, 20))};
        parts[0][65] = not_a_number;  // in a row that is left out
        Floats maxima({4}, -infinity), sums({4, 2}), losses({4});
        for (Floats& part : parts) {
            Floats mine({4});
            backend.cross_entropy_maxima(mine.tensor(), part.tensor());
            for (std::size_t r = 0; r < 4; ++r) maxima[r] = std::max(maxima[r], mine[r]);
        }
        for (std::size_t p = 0; p < 2; ++p) {
            Floats mine({4, 2});
            backend.cross_entropy_sums(mine.tensor(), parts[p].tensor(), maxima.tensor(), id_tensor(targets), at[p]);
            backend.add(sums.tensor(), mine.tensor());
        }
        for (std::size_t p = 0; p < 2; ++p)
            backend.cross_entropy_finish(losses.tensor(), parts[p].tensor(), maxima.tensor(), sums.tensor(),
                                         id_tensor(targets), at[p], {1.0f}, {});
        BOOST_TEST(losses[0] == 0.0f, name);
        BOOST_TEST(std::abs(losses[1] - std::log(2.0f)) < 1e-6f, name);
        BOOST_TEST((parts[1][39] == 0.0f && std::abs(parts[0][21] + 0.5f) < 1e-6f), name);
        BOOST_TEST((std::isnan(losses[2]) && losses[3] == 0.0f && parts[0][65] == 0.0f), name);
    });
}

BOOST_AUTO_TEST_CASE(parts_do_not_depend_on_the_number_of_threads) {
    check_same_for_any_threads([](kernels::Backend& backend) {
        const Floats logits = random_floats({501, 97}, "logits");
        const Result result =
            run_parts(backend, logits, random_ids(501, 97, "targets"), {0, 40, 97}, 0.5f, {}, "threads");
        return std::vector<Floats>{result.losses, result.logits};
    });
}

BOOST_AUTO_TEST_CASE(maxima_are_found_anywhere_and_leave_nan_out) {
    const auto maximum_of = [](kernels::Backend& backend, std::vector<std::uint16_t> halves, Type type) {
        Floats numbers({1, static_cast<std::int64_t>(halves.size())}), maximum({1}, 9.0f);
        for (std::size_t i = 0; i < halves.size(); ++i)
            numbers[i] = std::bit_cast<float>(std::uint32_t{halves[i]} << 16);
        backend.cross_entropy_maxima(
            maximum.tensor(), type == Type::fp32 ? numbers.tensor() : Tensor(halves.data(), Type::bf16, numbers.shape));
        return maximum[0];
    };
    const std::uint16_t not_numbers[] = {0x7fc0, 0xffc0, 0x7fff, 0xffff, 0x7f81, 0xff81};
    for_each_instruction_set([&](kernels::Backend& backend, const std::string& name) {
        for (const Type type : {Type::fp32, Type::bf16})
            for (const std::size_t count : {1u, 2u, 15u, 16u, 17u, 63u, 64u, 65u, 130u}) {
                const std::string what = name + " " + std::to_string(count);
                // Numbers of both signs or of one, a place without a number here and there, the largest at each place.
                for (const float largest : {300.0f, 0.5f, -0.5f}) {
                    std::vector<std::uint16_t> halves(count);
                    for (std::size_t i = 0; i < count; ++i) {
                        const float size = 1.0f + 0.5f * static_cast<float>(i % 97);
                        const float smaller = largest > 100 && i % 2 == 0 ? size : -size;
                        halves[i] = i % 7 == 3
                                        ? not_numbers[i % 6]
                                        : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(smaller) >> 16);
                    }
                    for (std::size_t place = 0; place < count; ++place) {
                        std::vector<std::uint16_t> row = halves;
                        row[place] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(largest) >> 16);
                        BOOST_TEST(maximum_of(backend, row, type) == largest, what << " at " << place);
                    }
                }
                std::vector<std::uint16_t> none(count);
                for (std::size_t i = 0; i < count; ++i) none[i] = not_numbers[i % 6];
                BOOST_TEST(maximum_of(backend, none, type) == -infinity, what);
                none[count / 2] = 0x7f80;
                BOOST_TEST(maximum_of(backend, none, type) == infinity, what);
            }
    });
}
