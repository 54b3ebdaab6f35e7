// Cross-entropy over a vocabulary divided among ranks.
#define BOOST_TEST_MODULE split_cross_entropy
#include "reference/split_cross_entropy.hpp"

#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

using Results = std::vector<std::vector<char>>;
using Cuts = std::vector<std::int64_t>;  // 0 … vocabulary
constexpr float scale = 0.125f;

std::size_t u(std::int64_t size) {
    return static_cast<std::size_t>(size);
}

std::vector<int> some_targets(std::size_t rows, const Cuts& cuts) {
    const int vocabulary = static_cast<int>(cuts.back());
    std::vector<int> targets = random_ids(rows, vocabulary, "targets");
    for (std::size_t r = 0; r < rows; ++r) {
        if (r % 7 == 1) targets[r] = vocabulary - 1;
        if (r % 7 == 3) targets[r] = -1;
        if (r % 7 == 4) targets[r] = static_cast<int>(cuts[1]) - 1;
    }
    return targets;
}

// What the ranks have, with what they exchange: maxima and sums.
struct Ranks {
    Cuts cuts;
    std::vector<std::unique_ptr<Columns>> logits;  // with a skip: of wider matrices
    std::int64_t rows;
    Values maxima, sums;

    Ranks(Type type, const Values& scores, const Cuts& at, std::int64_t skip)
        : cuts(at),
          rows(static_cast<std::int64_t>(scores.size()) / at.back()),
          maxima(u(rows), -HUGE_VAL),
          sums(2 * u(rows)) {
        for (std::size_t p = 0; p + 1 < cuts.size(); ++p)
            logits.push_back(std::make_unique<Columns>(
                type, rows, cuts[p + 1] - cuts[p], skip, skip == 0 ? 0 : 5,
                reference::columns_of(scores, u(cuts.back()), u(cuts[p]), u(cuts[p + 1] - cuts[p]))));
    }
    void take_maxima(const std::string& what) {
        for (std::size_t p = 0; p < logits.size(); ++p) {
            OnDevice mine(Type::fp32, {rows});
            mine.poison();
            backend().cross_entropy_maxima(mine, *logits[p]);
            const Values values = mine.values();
            BOOST_TEST((values == reference::cross_entropy_maxima(logits[p]->values(), u(cuts[p + 1] - cuts[p]))),
                       what);
            for (std::size_t r = 0; r < u(rows); ++r) maxima[r] = std::max(maxima[r], values[r]);
        }
    }
    void take_sums(const std::vector<int>& targets, const std::string& what) {
        const OnDevice ids(Type::int32, {rows}, as_values(targets)), highest(Type::fp32, {rows}, maxima);
        for (std::size_t p = 0; p < logits.size(); ++p) {
            OnDevice mine(Type::fp32, {rows, 2});
            mine.poison();
            backend().cross_entropy_sums(mine, *logits[p], highest, ids, cuts[p]);
            check_close(mine.values(),
                        reference::cross_entropy_sums(logits[p]->values(), maxima, targets, static_cast<int>(cuts[p])),
                        Type::fp32, u(cuts.back()), what + " sums");
            sums = plus(sums, mine.values());
        }
    }
    // The losses, and all gradients side by side.
    std::pair<OnDevice, Values> finish(const std::vector<int>& targets, const kernels::LossGradient& gradient,
                                       const Tensor& loss_scale, const std::string& what) {
        const OnDevice ids(Type::int32, {rows}, as_values(targets)), highest(Type::fp32, {rows}, maxima);
        const OnDevice totals(Type::fp32, {rows, 2}, sums);
        std::pair<OnDevice, Values> out{OnDevice(Type::fp32, {rows}), Values(u(rows * cuts.back()))};
        for (std::size_t p = 0; p < logits.size(); ++p) {
            const std::vector<char> before = out.first.bytes();
            out.first.poison();
            backend().cross_entropy_finish(out.first, *logits[p], highest, totals, ids, cuts[p], gradient, loss_scale);
            if (p > 0) BOOST_TEST((out.first.bytes() == before), what << ": the ranks' losses differ");
            reference::put_columns(out.second, u(cuts.back()), u(cuts[p]), u(cuts[p + 1] - cuts[p]),
                                   logits[p]->values());
        }
        return out;
    }
};

Results check(Type type, std::int64_t rows, const Cuts& cuts, std::int64_t skip) {
    const std::size_t vocabulary = u(cuts.back()), count = u(rows) * vocabulary;
    const std::string what =
        fmt::format("[{}, {}] in {} {} skip {}", rows, vocabulary, cuts.size() - 1, type_name(type), skip);
    const Values scores = random_rounded(type, count, "logits", 3);
    const std::vector<int> targets = some_targets(u(rows), cuts);
    const float z_loss = skip % 2 == 1 ? 0.03f : 0.0f, cap = skip == 3 ? 20.0f : 0.0f;  // beyond all logits
    const float inverse_cap = cap > 0 ? 1 / cap : 0;
    Ranks ranks(type, scores, cuts, skip);
    ranks.take_maxima(what);
    ranks.take_sums(targets, what);
    const auto only_losses = ranks.finish(targets, {0.0f, z_loss}, {}, what);
    BOOST_TEST((only_losses.second == scores), what << ": logits changed without a gradient");
    const OnDevice loss_scale(Type::fp64, {1}, {4.0});
    const bool scaled = rows > 1;
    const auto both =
        ranks.finish(targets, {scale, z_loss, inverse_cap}, scaled ? loss_scale.tensor() : Tensor(), what);
    BOOST_TEST((only_losses.first.bytes() == both.first.bytes()), what << ": the gradient changes the losses");

    const auto expected = reference::cross_entropy(scores, targets, z_loss, cap);
    check_close(both.first.values(), expected.losses, Type::fp32, vocabulary, what + " losses");
    // Apart, since the gradients of the targets are larger by far.
    Values target_actual, target_expected, other_actual, other_expected;
    for (std::size_t i = 0; i < count; ++i) {
        const bool chosen = targets[i / vocabulary] == static_cast<int>(i % vocabulary);
        (chosen ? target_actual : other_actual).push_back(both.second[i]);
        (chosen ? target_expected : other_expected)
            .push_back((scaled ? 4 : 1) * static_cast<double>(scale) * expected.dlogits[i]);
    }
    check_close(target_actual, target_expected, type, vocabulary, what + " gradients of targets");
    check_close(other_actual, other_expected, type, vocabulary, what + " gradients");
    Results results = {both.first.bytes()};
    for (const auto& part : ranks.logits) results.push_back(part->bytes());
    return results;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_parts_together_are_cross_entropy) {
    for_each_type([](Type type) {
        for (const Cuts& cuts :
             {Cuts{0, 31}, {0, 1, 2}, {0, 16, 32}, {0, 1, 256, 257}, {0, 250, 500, 750, 1009}, {0, 5000, 9001}})
            for (const std::int64_t rows : {1, 31}) {
                if (rows == 1 && cuts.back() == 2) continue;  // its one loss is a small difference of large terms
                check(type, cuts.back() > 5000 ? 3 : rows, cuts, 0);
            }
    });
}

BOOST_AUTO_TEST_CASE(rows_need_no_alignment) {
    for_each_type([](Type type) {
        for (const std::int64_t skip : {1, 3})
            for (const Cuts& cuts : {Cuts{0, 3, 7}, {0, 64, 200}}) check(type, 9, cuts, skip);
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_matter) {
    for (const Cuts& cuts : {Cuts{0, 16, 31}, {0, 500, 1009}, {0, 5003, 9001}})
        for_each_order([&] { return check(Type::bf16, 5, cuts, 0); });
}

BOOST_AUTO_TEST_CASE(a_part_may_be_masked_and_not_a_number_reaches_the_loss_of_its_row_only) {
    for_each_type([](Type type) {
        constexpr double none = -std::numeric_limits<double>::infinity();
        constexpr std::size_t vocabulary = 600;
        Values scores(4 * vocabulary, none);
        scores[7] = scores[200] = 2;  // row 0: all of it in the first part
        for (std::size_t row : {1u, 2u, 3u})
            std::fill_n(scores.begin() + static_cast<long>(row * vocabulary), vocabulary, 1);
        scores[vocabulary + 500] = std::numeric_limits<double>::quiet_NaN();
        scores[2 * vocabulary + 500] = -none;
        scores[3 * vocabulary + 100] = std::numeric_limits<double>::quiet_NaN();  // in a row that is left out
        const std::vector<int> targets = {200, 3, 3, -1};
        Ranks ranks(type, scores, {0, 300, 600}, 0);
        for (const auto& part : ranks.logits) {
            const OnDevice mine(Type::fp32, {4});
            backend().cross_entropy_maxima(mine, *part);
            for (std::size_t r = 0; r < 4; ++r) ranks.maxima[r] = std::max(ranks.maxima[r], mine.values()[r]);
        }
        const OnDevice ids(Type::int32, {4}, as_values(targets)), highest(Type::fp32, {4}, ranks.maxima);
        for (std::size_t p : {0u, 1u}) {
            const OnDevice mine(Type::fp32, {4, 2});
            backend().cross_entropy_sums(mine, *ranks.logits[p], highest, ids, ranks.cuts[p]);
            ranks.sums = plus(ranks.sums, mine.values());
        }
        const auto out = ranks.finish(targets, {1.0f}, {}, "masked");
        const Values losses = out.first.values();
        check_close({losses[0]}, {std::log(2.0)}, Type::fp32, vocabulary, "loss");
        BOOST_TEST((std::isnan(losses[1]) && std::isnan(losses[2]) && losses[3] == 0));
        for (std::size_t i = 0; i < vocabulary; ++i) {
            BOOST_TEST(out.second[i] == (i == 7 ? 0.5 : i == 200 ? -0.5 : 0.0));
            BOOST_TEST(out.second[3 * vocabulary + i] == 0.0);
        }
    });
}

#if !defined(LOCKSTEP_TEST_CPU)  // which records nothing
BOOST_AUTO_TEST_CASE(a_recording_sees_later_loss_scales) {
    const Values scores = random_rounded(Type::fp32, 300, "logits");
    const OnDevice source(Type::fp32, {3, 100}, scores), logits(Type::fp32, {3, 100}), whole(Type::fp32, {3, 100});
    const OnDevice targets(Type::int32, {3}, {5.0, 99.0, 0.0}), losses(Type::fp32, {3}), maxima(Type::fp32, {3});
    const OnDevice sums(Type::fp32, {3, 2});
    OnDevice loss_scale(Type::fp64, {1}, {1.0});
    const auto issue = [&] {
        backend().copy(whole, source);
        backend().copy(logits, source);
        backend().cross_entropy(losses, whole, targets, {1.0f}, loss_scale);
        backend().cross_entropy_maxima(maxima, logits);
        backend().cross_entropy_sums(sums, logits, maxima, targets, 0);
        backend().cross_entropy_finish(losses, logits, maxima, sums, targets, 0, {1.0f}, loss_scale);
    };
    issue();
    const Values once = logits.values(), whole_once = whole.values();
    const auto recording = backend().record(issue);
    BOOST_REQUIRE(recording != nullptr);
    for (const double factor : {4.0, 1024.0, 0.5}) {
        loss_scale.set({factor});
        recording->run();
        const Values now = logits.values(), whole_now = whole.values();
        for (std::size_t i = 0; i < now.size(); ++i)  // powers of two: exactly
            BOOST_TEST((now[i] == factor * once[i] && whole_now[i] == factor * whole_once[i]));
    }
}
#endif
