#define BOOST_TEST_MODULE ttt_mlp
#include "operations/ttt_documents.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

// Heads of 64 and 96 have kernels of their own in 16 bit; narrower ones are padded to 64.
BOOST_AUTO_TEST_CASE(agrees_with_the_reference) {
    for_each_type([](Type type) {
        for (const std::size_t length : {1, 15, 16, 17, 33}) compare_ttt({true, 1, length, 1, 64, 16}, type);
        for (const std::size_t width : {4, 8, 12, 30}) compare_ttt({true, 1, 33, 1, width, 16}, type);
        for (const std::size_t mini_batch : {1, 4, 5}) compare_ttt({true, 1, 17, 1, 12, mini_batch}, type);
        compare_ttt({true, 2, 33, 3, 16, 16}, type);
        compare_ttt({true, 1, 33, 1, 96, 16}, type);
    });
}

// States are kept and made again: the backward goes over several of them.
BOOST_AUTO_TEST_CASE(agrees_with_the_reference_across_kept_states) {
    for_each_type([](Type type) {
        compare_ttt({true, 1, 70, 1, 64, 16}, type);
        compare_ttt({true, 1, 70, 1, 96, 16}, type);
        compare_ttt({true, 2, 70, 3, 8, 4}, type);
        compare_ttt({true, 1, 70, 1, 12, 5}, type);
    });
}

// 38 mini-batches: the error must not grow with them.
BOOST_AUTO_TEST_CASE(long_sequences_keep_their_accuracy) {
    for_each_type([](Type type) { compare_ttt({true, 1, 600, 1, 32, 16}, type); });
}

// Mini-batches and heads that the tiles do not hold.
BOOST_AUTO_TEST_CASE(any_mini_batch_and_any_width) {
    for_each_type([](Type type) {
        compare_ttt({true, 2, 45, 2, 8, 33}, type);
        compare_ttt({true, 1, 20, 1, 100, 16}, type);
    });
    compare_ttt({true, 2, 45, 1, 7, 20}, Type::fp32);
}

// Tiles and general kernels, several blocks' pairs, states of each sequence's own.
BOOST_AUTO_TEST_CASE(scans_begin_from_and_end_in_given_states) {
    for_each_type([](Type type) {
        for (const std::size_t width : {7, 12}) compare_carried({true, 2, 25, 3, width, 5}, type);
        for (const std::size_t width : {64, 96}) compare_carried({true, 1, 32, 1, width, 16}, type);
        compare_carried({true, 2, 66, 2, 8, 33}, type);
    });
}

BOOST_AUTO_TEST_CASE(scans_over_parts_equal_the_scan_over_the_whole) {
    for_each_type([](Type type) {
        compare_parts({true, 2, 45, 2, 64, 16}, {32, 13}, type);
        compare_parts({true, 3, 41, 2, 8, 4}, {4, 36, 1}, type);
        compare_parts({true, 1, 135, 1, 12, 16}, {64, 64, 7}, type);
        compare_parts({true, 1, 41, 1, 96, 16}, {16, 16, 9}, type);
        compare_parts({true, 2, 25, 1, 7, 10}, {10, 10, 5}, type);
    });
}

// Tiles of both widths and general kernels.
BOOST_AUTO_TEST_CASE(documents_are_scanned_on_their_own) {
    for_each_type([](Type type) {
        compare_odd_documents(true, 1, 64, 16, type);
        compare_odd_documents(true, 2, 12, 5, type);
        compare_odd_documents(true, 2, 7, 19, type);
        compare_documents({true, 2, 81, 1, 96, 16}, {16, 16, {{7, 18, 30}, {90}}}, type);
    });
}

BOOST_AUTO_TEST_CASE(documents_of_whole_sequences_change_nothing) {
    for_each_type([](Type type) {
        for (const std::size_t width : {64, 12}) compare_whole_documents({true, 1, 85, 1, width, 16}, type);
        compare_whole_documents({true, 1, 61, 1, 7, 20}, type);
    });
}

BOOST_AUTO_TEST_CASE(a_packed_document_gives_what_it_gives_alone) {
    for_each_type([](Type type) {
        compare_packed({true, 1, 110, 2, 64, 16}, {70, 1, 39}, type);
        compare_packed({true, 2, 70, 1, 12, 4}, {30, 3, 33, 4}, type);
    });
}

BOOST_AUTO_TEST_CASE(the_order_of_threads_does_not_change_a_bit) {
    for_each_type([](Type type) {
        const TttProblem p = ttt_problem({true, 2, 37, 2, 12, 16}, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        for_each_order([&] { return run_ttt(p, type, dy).bytes; });
    });
    for (const std::size_t width : {64, 96}) {
        const TttProblem p = ttt_problem({true, 1, 37, 1, width, 16}, Type::bf16);
        const Values dy = random_rounded(Type::bf16, p.q.size(), "dy");
        for_each_order([&] { return run_ttt(p, Type::bf16, dy).bytes; });
    }
    for_each_type([](Type type) { for_each_order([&] { return carried_bytes({true, 2, 32, 2, 12, 8}, type); }); });
    for_each_type([](Type type) {
        for_each_order([&] { return documents_bytes({true, 2, 41, 2, 12, 8}, {4, 8, {{3, 10, 37}, {4, 15}}}, type); });
    });
}

BOOST_AUTO_TEST_CASE(what_is_not_a_number_stays_visible) {
    for_each_type([](Type type) {
        for (Values TttProblem::*member : {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size}) {
            TttProblem p = ttt_problem({true, 1, 40, 1, 16, 16}, type);
            (p.*member)[(p.*member).size() / 40 * 18] = std::numeric_limits<double>::quiet_NaN();  // token 18
            const TttResults results = run_ttt(p, type, random_rounded(type, p.q.size(), "dy"));
            const auto is_nan_at = [&](std::size_t token) { return std::isnan(results.values[0][token * 16 + 3]); };
            BOOST_TEST(!is_nan_at(15));  // the mini-batch before it
            BOOST_TEST(is_nan_at(18));
            if (member != &TttProblem::q) BOOST_TEST(is_nan_at(39));
            BOOST_TEST(std::isnan(results.values[6][0]));
        }
    });
}

BOOST_AUTO_TEST_CASE(tokens_may_be_columns_of_wider_matrices) {
    for_each_type([](Type type) {
        for (const std::size_t width : {64, 12}) check_columns({true, 1, 70, 2, width, 16}, type);
    });
}
