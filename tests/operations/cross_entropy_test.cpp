#define BOOST_TEST_MODULE cross_entropy
#include "reference/cross_entropy.hpp"

#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

constexpr float scale = 0.125f;
using Results = std::vector<std::vector<char>>;

// Targets at both ends, in between, and none.
std::vector<int> some_targets(std::size_t rows, int vocabulary) {
    std::vector<int> targets = random_ids(rows, vocabulary, "targets");
    for (std::size_t r = 0; r < rows; ++r) {
        if (r % 7 == 1) targets[r] = vocabulary - 1;
        if (r % 7 == 3) targets[r] = -1;
        if (r % 7 == 4) targets[r] = 0;
    }
    return targets;
}

// Losses and gradients of [rows, vocabulary] logits of which the first starts `skip` elements past an aligned address;
// with a loss scale where there are several rows, a z-loss where `skip` is odd, and a cap where it is 3.
Results check(Type type, std::int64_t rows, int vocabulary, std::int64_t skip) {
    const std::string what = fmt::format("[{}, {}] {} skip {}", rows, vocabulary, type_name(type), skip);
    const auto count = static_cast<std::size_t>(rows * vocabulary), terms = static_cast<std::size_t>(vocabulary);
    Values scores = random_rounded(type, count, "logits", 3);
    const float z_loss = skip % 2 == 1 ? 0.03f : 0.0f, cap = skip == 3 ? 4.0f : 0.0f;
    const std::vector<int> targets = some_targets(static_cast<std::size_t>(rows), vocabulary);
    Values with_skip(static_cast<std::size_t>(skip), 7.0);
    with_skip.insert(with_skip.end(), scores.begin(), scores.end());
    const OnDevice memory(type, {rows * vocabulary + skip}, with_skip), ids(Type::int32, {rows}, as_values(targets));
    const Tensor logits = memory.tensor().slice(skip, rows * vocabulary).reshaped({rows, vocabulary});
    OnDevice losses(Type::fp32, {rows}), only_losses(Type::fp32, {rows});
    losses.poison();
    only_losses.poison();
    if (cap > 0) {
        backend().cap_logits(logits, cap);
        for (double& score : scores) score = cap * std::tanh(score / cap);
        const Values all = memory.values(), capped(all.begin() + skip, all.end());
        check_close(capped, scores, type, 1, what + " capped");
        scores = capped;  // rounded
    }

    const auto before = memory.bytes();
    const float inverse_cap = cap > 0 ? 1 / cap : 0;
    backend().cross_entropy(only_losses, logits, ids, {0.0f, z_loss, inverse_cap}, {});
    BOOST_CHECK_MESSAGE(memory.bytes() == before, what << ": logits changed without a gradient");
    const OnDevice loss_scale(Type::fp64, {1}, {4.0});
    const bool scaled = rows > 1;
    backend().cross_entropy(losses, logits, ids, {scale, z_loss, inverse_cap}, scaled ? loss_scale.tensor() : Tensor());
    BOOST_CHECK_MESSAGE(only_losses.bytes() == losses.bytes(), what << ": the gradient changes the losses");

    const auto expected = reference::cross_entropy(scores, targets, z_loss, cap);
    check_close(losses.values(), expected.losses, Type::fp32, terms, what + " losses");
    const Values after = memory.values();
    BOOST_CHECK(std::equal(after.begin(), after.begin() + skip, with_skip.begin()));
    // Apart, since the gradients of the targets are larger by far.
    Values target_actual, target_expected, other_actual, other_expected;
    for (std::size_t i = 0; i < count; ++i) {
        const bool chosen = targets[i / terms] == static_cast<int>(i % terms);
        (chosen ? target_actual : other_actual).push_back(after[i + static_cast<std::size_t>(skip)]);
        (chosen ? target_expected : other_expected)
            .push_back((scaled ? 4 : 1) * static_cast<double>(scale) * expected.dlogits[i]);
    }
    if (vocabulary > 1) check_close(target_actual, target_expected, type, terms, what + " gradients of targets");
    if (vocabulary == 1)
        for (const double value : target_actual) BOOST_TEST(value == 0.0);
    check_close(other_actual, other_expected, type, terms, what + " gradients");
    return {losses.bytes(), memory.bytes()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(losses_and_gradients_agree_with_the_reference) {
    for_each_type([](Type type) {
        for (const int vocabulary : {1, 31, 32, 257, 1009})
            for (const std::int64_t rows : {1, 31, 33}) check(type, rows, vocabulary, 0);
    });
}

BOOST_AUTO_TEST_CASE(rows_need_no_alignment) {
    for_each_type([](Type type) {
        for (const int vocabulary : {3, 7, 64, 1008})
            for (const std::int64_t skip : {1, 3}) check(type, 9, vocabulary, skip);
    });
}

BOOST_AUTO_TEST_CASE(rows_may_be_padded) {
    for_each_type([](Type type) {
        for (const int vocabulary : {3, 31, 257})
            for (const std::int64_t padding : {1, 15}) {
                const std::int64_t rows = 9;
                const auto terms = static_cast<std::size_t>(vocabulary);
                const Values scores = random_rounded(type, terms * static_cast<std::size_t>(rows), "logits", 3);
                const std::vector<int> targets = some_targets(static_cast<std::size_t>(rows), vocabulary);
                const Columns logits(type, rows, vocabulary, 0, padding, scores);
                const OnDevice dense(type, {rows, vocabulary}, scores), ids(Type::int32, {rows}, as_values(targets)),
                    losses(Type::fp32, {rows}), other_losses(Type::fp32, {rows});
                backend().cross_entropy(losses, logits, ids, {scale}, {});
                backend().cross_entropy(other_losses, dense, ids, {scale}, {});
                check_close(losses.values(), other_losses.values(), Type::fp32, terms, "losses");
                check_close(logits.values(), dense.values(), type, terms, "gradients");
                BOOST_CHECK(logits.untouched());
            }
    });
}

BOOST_AUTO_TEST_CASE(logits_may_be_capped) {
    for_each_type([](Type type) {
        for (const std::int64_t columns : {1, 7, 64, 1009})
            for (const std::int64_t padding : {0, 1, 15}) {
                const Values scores = random_rounded(type, 5 * static_cast<std::size_t>(columns), "logits", 30);
                const Columns logits(type, 5, columns, 0, padding, scores);
                backend().cap_logits(logits, 30);
                Values expected = scores;
                for (double& score : expected) score = 30 * std::tanh(score / 30);
                check_close(logits.values(), expected, type, 1, fmt::format("{} columns and {}", columns, padding));
                BOOST_CHECK(logits.untouched());
            }
    });
}

BOOST_AUTO_TEST_CASE(a_row_may_be_larger_than_the_shared_memory) {
    for_each_backend([] {
        check(Type::fp32, 2, 60001, 0);
        check(Type::bf16, 2, 120001, 1);
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_matter) {
    for (const int vocabulary : {31, 1009, 5003}) for_each_order([&] { return check(Type::bf16, 5, vocabulary, 0); });
}

BOOST_AUTO_TEST_CASE(minus_infinity_is_probability_zero) {
    for_each_type([](Type type) {
        constexpr std::size_t vocabulary = 300;
        constexpr double none = -std::numeric_limits<double>::infinity();
        Values scores(vocabulary, none);  // also what most threads see alone
        scores[7] = 2;
        scores[200] = 2;
        const OnDevice logits(type, {1, vocabulary}, scores), target(Type::int32, {1}, {200.0}), loss(Type::fp32, {1});
        backend().cross_entropy(loss, logits, target, {1.0f}, {});
        check_close(loss.values(), {std::log(2.0)}, Type::fp32, vocabulary, "loss");
        const Values gradient = logits.values();
        for (std::size_t i = 0; i < vocabulary; ++i) BOOST_TEST(gradient[i] == (i == 7 ? 0.5 : i == 200 ? -0.5 : 0.0));
    });
}

BOOST_AUTO_TEST_CASE(large_logits_do_not_overflow) {
    for_each_backend([] {
        const OnDevice logits(Type::fp32, {2, 3}, {5000, 5001, 4999, -5000, -5001, -4999});
        const OnDevice targets(Type::int32, {2}, {0.0, 2.0}), losses(Type::fp32, {2});
        backend().cross_entropy(losses, logits, targets, {0.0f}, {});
        const double total = 1 + std::exp(1.0) + std::exp(-1.0);
        check_close(losses.values(), {std::log(total), std::log(total) - 1}, Type::fp32, 3, "losses");
    });
}

BOOST_AUTO_TEST_CASE(not_a_number_and_targets_beyond_the_vocabulary_reach_the_loss_of_their_row_only) {
    const bool cpu = backend().device().kind == DeviceKind::cpu;  // it refuses such targets
    for_each_type([&](Type type) {
        for (const std::size_t vocabulary : {5u, 64u, 1009u})
            for (const std::size_t place : {std::size_t(0), vocabulary / 2, vocabulary - 1}) {
                Values scores = random_rounded(type, 4 * vocabulary, "logits");
                scores[vocabulary + place] = std::numeric_limits<double>::quiet_NaN();
                scores[2 * vocabulary + place] = std::numeric_limits<double>::infinity();
                const OnDevice logits(type, {4, static_cast<std::int64_t>(vocabulary)}, scores);
                const OnDevice targets(Type::int32, {4}, {1.0, 1.0, 1.0, cpu ? 1.0 : static_cast<double>(vocabulary)});
                const OnDevice losses(Type::fp32, {4});
                backend().cross_entropy(losses, logits, targets, {1.0f}, {});
                const Values loss = losses.values();
                BOOST_TEST((std::isfinite(loss[0]) && std::isnan(loss[1]) && std::isnan(loss[2]) &&
                            std::isnan(loss[3]) != cpu));
            }
    });
}
