// Who waits for whom, and who is named: made-up ranks in every state.
#define BOOST_TEST_MODULE watch_report
#include "watch/watch_report.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "cluster/rank_list.hpp"
#include "watch/blame.hpp"

using namespace lockstep;
using namespace lockstep::watch;
using cluster::FlightKind;

namespace {

// A rank of `size` that has begun so many all-reduces of all ranks, and works.
RankReport working(int rank, int size, std::uint64_t begun) {
    RankReport report;
    auto& state = report.flight;
    state.rank = rank;
    state.ranks = size;
    state.host = "n" + std::to_string(rank / 2);
    state.process = 100 + rank;
    state.step = 7;
    state.region = "epoch/step/backward";
    watch::FlightGroup all;
    all.name = "all";
    all.members = cluster::rank_list_text([&] {
        std::vector<int> members;
        for (int member = 0; member < size; ++member) members.push_back(member);
        return members;
    }());
    all.collectives = begun;
    state.groups = {all};
    return report;
}

// One that waits in the last of them.
RankReport waiting(int rank, int size, std::uint64_t begun) {
    RankReport report = working(rank, size, begun);
    watch::FlightOperation operation;
    operation.number = begun;
    operation.group = "all";
    operation.kind = FlightKind::all_reduce;
    operation.bytes = 2048;
    report.flight.waiting = operation;
    report.flight.operations = {operation};
    return report;
}

RankReport receiving(int rank, int size, int from) {
    RankReport report = working(rank, size, 5);
    watch::FlightOperation operation;
    operation.number = 1;
    operation.group = "activations";
    operation.kind = FlightKind::receive;
    operation.peer = from;
    operation.bytes = 64;
    report.flight.waiting = operation;
    return report;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_that_works_while_the_others_wait) {
    const std::vector<RankReport> ranks = {waiting(0, 4, 9), waiting(1, 4, 9), working(2, 4, 8), waiting(3, 4, 9)};
    const auto laggards = find_laggards(ranks, 4);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 2);
    BOOST_TEST(laggards[0].missing == "all-reduce 9 of all (2.00 KiB)");
    BOOST_TEST(laggards[0].waiting == (std::vector<int>{0, 1, 3}), boost::test_tools::per_element());
    const std::string sentence = laggards_sentence(laggards, ranks, 4);
    BOOST_TEST(
        sentence ==
        "rank 2 (n1, process 102) works in step 7, epoch/step/backward, and ranks 0-1,3 wait for it at all-reduce "
        "9 of all (2.00 KiB)");
}

BOOST_AUTO_TEST_CASE(one_that_is_stopped_where_the_others_wait_too) {
    std::vector<RankReport> ranks = {waiting(0, 3, 9), waiting(1, 3, 9), waiting(2, 3, 9)};
    ranks[1].stopped = true;
    const auto laggards = find_laggards(ranks, 3);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 1);
    BOOST_TEST(contains(laggards_sentence(laggards, ranks, 3), "rank 1 (n0, process 101) is stopped"));
}

BOOST_AUTO_TEST_CASE(half_of_the_ranks_behind_the_others) {
    constexpr int size = 64;
    std::vector<RankReport> ranks;
    for (int rank = 0; rank < size; ++rank)
        ranks.push_back(rank % 2 == 0 ? waiting(rank, size, 9) : working(rank, size, 8));
    const auto laggards = find_laggards(ranks, size);
    BOOST_TEST_REQUIRE(laggards.size() == 32u);
    for (std::size_t i = 0; i < laggards.size(); ++i) {
        BOOST_TEST(laggards[i].rank == static_cast<int>(2 * i + 1));
        BOOST_TEST(laggards[i].missing == "all-reduce 9 of all (2.00 KiB)");
        BOOST_TEST(laggards[i].waiting.size() == (i < most_named_laggards ? 32u : 0u));
    }
    const std::string sentence = laggards_sentence(laggards, ranks, size);
    BOOST_TEST(
        contains(sentence, "rank 1 (n0, process 101) works in step 7, epoch/step/backward, and ranks 0-62:2 wait"),
        sentence);
    BOOST_TEST(sentence.ends_with("; and 28 more ranks"), sentence);
    BOOST_TEST(contains(watch_report_text("title", sentence, ranks, size), "not begun by 1-63:2"));
}

BOOST_AUTO_TEST_CASE(one_that_is_gone) {
    std::vector<RankReport> ranks = {waiting(0, 2, 9), working(1, 2, 8)};
    ranks[1].alive = false;
    BOOST_TEST(contains(laggards_sentence(find_laggards(ranks, 2), ranks, 2), "rank 1 (n0, process 101) is gone"));
}

BOOST_AUTO_TEST_CASE(one_of_which_nothing_is_heard) {
    const std::vector<RankReport> ranks = {waiting(0, 3, 9), waiting(2, 3, 9)};
    const auto laggards = find_laggards(ranks, 3);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 1);
    const std::string sentence = laggards_sentence(laggards, ranks, 3);
    BOOST_TEST(contains(sentence, "rank 1 did not report, and ranks 0,2 wait for it"), sentence);
    BOOST_TEST(contains(watch_report_text("title", sentence, ranks, 3), "No report from rank 1."));
}

// 0 waits for a message of 1, which waits for one of 2, which works: 2 is to blame.
BOOST_AUTO_TEST_CASE(along_a_chain_of_messages) {
    const std::vector<RankReport> ranks = {receiving(0, 3, 1), receiving(1, 3, 2), working(2, 3, 5)};
    const auto laggards = find_laggards(ranks, 3);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 2);
    BOOST_TEST(laggards[0].waiting == std::vector<int>{1}, boost::test_tools::per_element());
    BOOST_TEST(laggards[0].missing == "receive from rank 2 in activations (64 B)");
}

BOOST_AUTO_TEST_CASE(a_circle_names_its_messages) {
    std::vector<RankReport> ranks = {receiving(0, 2, 1), receiving(1, 2, 0)};
    ranks[0].flight.waiting->seconds = 5;
    ranks[1].flight.waiting->seconds = 6;
    const auto laggards = find_laggards(ranks, 2);
    BOOST_TEST(laggards.empty());
    BOOST_TEST(
        laggards_sentence(laggards, ranks, 2) ==
        "nothing from rank 0 (n0) has reached rank 1 (n0) for 6.0 s, in receive from rank 0 in activations (64 B); "
        "nothing from rank 1 (n0) has reached rank 0 (n0) for 5.0 s, in receive from rank 1 in activations (64 B)");
}

// A collective that rank 1 has left, while what it sent has not reached the others.
BOOST_AUTO_TEST_CASE(a_link_that_is_cut) {
    std::vector<RankReport> ranks = {waiting(0, 3, 9), waiting(1, 3, 9), waiting(2, 3, 9)};
    for (RankReport& rank : ranks) rank.flight.host = "n" + std::to_string(rank.flight.rank);
    ranks[2].flight.waiting->seconds = 5.3;
    ranks[1].flight.operations[0].done = true;
    auto& waiting_on = *ranks[1].flight.waiting;
    waiting_on.number = 10;
    ranks[1].flight.groups[0].collectives = 10;
    const std::string sentence = laggards_sentence(find_laggards(ranks, 3), ranks, 3);
    BOOST_TEST(sentence ==
               "nothing from rank 1 (n1) has reached ranks 0,2 (n0, n2) for 5.3 s, in all-reduce 9 of all (2.00 KiB)");
    const NodeBlame blame = blamed_nodes(ranks, {"n0", "n1", "n2"});
    BOOST_TEST(blame.lost.empty());
    BOOST_TEST(blame.suspected == std::vector<std::string>{"n1"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_collective_that_nobody_leaves) {
    const std::vector<RankReport> ranks = {waiting(0, 2, 9), waiting(1, 2, 9)};
    BOOST_TEST(contains(laggards_sentence(find_laggards(ranks, 2), ranks, 2),
                        "ranks 0-1 (n0) have been in all-reduce 9 of all (2.00 KiB) for"));
    BOOST_TEST(contains(laggards_sentence(find_laggards(ranks, 2), ranks, 2), ", and none has left it"));
    BOOST_TEST(blamed_nodes(ranks, {"n0", "n0"}).suspected.empty());
}

BOOST_AUTO_TEST_CASE(who_has_left_a_group_of_unknown_members_is_not_claimed) {
    std::vector<RankReport> ranks = {waiting(0, 2, 9), waiting(1, 2, 9)};
    for (RankReport& rank : ranks) rank.flight.groups[0].members.clear();
    const std::string sentence = silence_sentence(find_silence(ranks, 2), ranks);
    BOOST_TEST(contains(sentence, "ranks 0-1 (n0) have been in all-reduce 9 of all (2.00 KiB) for"), sentence);
    BOOST_TEST(!contains(sentence, "has left it"), sentence);
}

BOOST_AUTO_TEST_CASE(one_rank_that_waits_alone) {
    const std::vector<RankReport> ranks = {waiting(0, 2, 9)};
    const Silence alone{{}, {0}, "all-reduce 9 of all", 5};
    BOOST_TEST(silence_sentence({alone}, ranks) ==
               "rank 0 (n0) has been in all-reduce 9 of all for 5.0 s, and no rank has left it");
}

BOOST_AUTO_TEST_CASE(nodes_that_are_lost_or_suspected) {
    const std::vector<std::string> hosts = {"n0", "n0", "n1", "n1", "n2", "n2"};
    // n1 does not report; on n2 one rank is stopped.
    std::vector<RankReport> ranks = {waiting(0, 6, 9), waiting(1, 6, 9), working(4, 6, 8), waiting(5, 6, 9)};
    ranks[2].stopped = true;
    NodeBlame blame = blamed_nodes(ranks, hosts);
    BOOST_TEST(blame.lost == std::vector<std::string>{"n1"}, boost::test_tools::per_element());
    BOOST_TEST(blame.suspected == std::vector<std::string>{"n2"}, boost::test_tools::per_element());
    BOOST_TEST(contains(laggards_sentence(find_laggards(ranks, 6), ranks, 6, hosts), "rank 2 (n1) did not report"));
    // A node all of whose ranks are gone is lost, too.
    ranks[2].alive = ranks[3].alive = false;
    blame = blamed_nodes(ranks, hosts);
    BOOST_TEST(blame.lost == (std::vector<std::string>{"n1", "n2"}), boost::test_tools::per_element());
    BOOST_TEST(blame.suspected.empty());
    // Of all nodes that are left it says nothing.
    ranks = {working(0, 6, 8), waiting(1, 6, 9), working(4, 6, 8), waiting(5, 6, 9)};
    ranks[0].stopped = ranks[2].stopped = true;
    blame = blamed_nodes(ranks, hosts);
    BOOST_TEST(blame.lost == std::vector<std::string>{"n1"}, boost::test_tools::per_element());
    BOOST_TEST(blame.suspected.empty());
    // If none is alive, nothing is known.
    for (RankReport& rank : ranks) rank.alive = false;
    BOOST_TEST(blamed_nodes(ranks, hosts).lost.empty());
}

BOOST_AUTO_TEST_CASE(groups_of_the_same_name_are_told_apart) {
    // Two groups "tensor": ranks 0 and 1, ranks 2 and 3. Rank 0 waits for 1; 2 and 3 have begun fewer and work.
    std::vector<RankReport> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        RankReport report = rank == 0 ? waiting(rank, 4, 9) : working(rank, 4, rank < 2 ? 8 : 3);
        report.flight.groups[0].name = "tensor";
        report.flight.groups[0].members = rank < 2 ? "0-1" : "2-3";
        if (report.flight.waiting) report.flight.waiting->group = "tensor";
        ranks.push_back(report);
    }
    const auto laggards = find_laggards(ranks, 4);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 1);
}

BOOST_AUTO_TEST_CASE(ranks_that_move_are_not_blamed) {
    std::vector<RankReport> ranks = {waiting(0, 2, 9), working(1, 2, 8)};
    ranks[1].flight.step = 8;
    BOOST_TEST(progress_sentence(ranks, 2) == "all 2 ranks are making progress, in steps 7 to 8");
    ranks[0].flight.quiet_seconds = 10;
    BOOST_TEST(contains(progress_sentence(ranks, 2), "rank 1"));
    BOOST_TEST(contains(progress_sentence(ranks, 3), "rank 2 did not report") == false);
    BOOST_TEST(progress_sentence({working(0, 1, 3)}, 1) == "the rank is making progress, in step 7");
}

// With NCCL a rank's GPU waits, and not the rank: what it has issued tells.
BOOST_AUTO_TEST_CASE(one_that_has_issued_less_than_the_others) {
    const std::vector<RankReport> ranks = {working(0, 3, 9), working(1, 3, 8), working(2, 3, 9)};
    const auto laggards = find_laggards(ranks, 3);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 1);
    BOOST_TEST(contains(laggards_sentence(laggards, ranks, 3), "and has not begun collective 9 of all"));
}

BOOST_AUTO_TEST_CASE(how_long_those_that_work_were_quiet) {
    std::vector<RankReport> ranks = {waiting(0, 3, 9), working(1, 3, 8), working(2, 3, 8)};
    ranks[0].flight.quiet_seconds = 1;
    ranks[1].flight.quiet_seconds = 30;
    ranks[2].flight.quiet_seconds = 2;
    BOOST_TEST(quiet_of_working(ranks) == 2);
    ranks[2].stopped = true;
    BOOST_TEST(quiet_of_working(ranks) == 30);
    BOOST_TEST(std::isinf(quiet_of_working({waiting(0, 1, 9)})));
}

BOOST_AUTO_TEST_CASE(four_thousand_ranks_are_reported_in_seconds) {
    constexpr int size = 4096;
    std::vector<RankReport> ranks;
    for (int rank = 0; rank < size; ++rank)
        ranks.push_back(rank == 77 ? working(rank, size, 8) : waiting(rank, size, 9));
    const auto laggards = find_laggards(ranks, size);
    BOOST_TEST_REQUIRE(laggards.size() == 1u);
    BOOST_TEST(laggards[0].rank == 77);
    BOOST_TEST(laggards[0].waiting.size() == 4095u);
    BOOST_TEST(contains(watch_report_text("t", "s", ranks, size), "not begun by 77"));
}

BOOST_AUTO_TEST_CASE(many_laggards_are_counted) {
    std::vector<RankReport> ranks = {waiting(0, 9, 9)};
    for (int rank = 1; rank < 9; ++rank) ranks.push_back(working(rank, 9, 8));
    BOOST_TEST(contains(laggards_sentence(find_laggards(ranks, 9), ranks, 9), "; and 4 more ranks"));
}

BOOST_AUTO_TEST_CASE(a_nodes_part_reads_back) {
    std::vector<RankReport> ranks = {waiting(0, 2, 9), receiving(1, 2, 0)};
    ranks[0].flight.quiet_seconds = 1.5;
    const auto again = node_report_from(node_report_text(ranks));
    BOOST_TEST_REQUIRE(again.size() == 2u);
    BOOST_TEST(watch_report_text("t", "s", again, 2) == watch_report_text("t", "s", ranks, 2));
    BOOST_TEST(again[0].flight.quiet_seconds == 1.5);
    for (const char* wrong : {"", "{", "[{}]", "[1]", "{\"rank\": 0}"})
        BOOST_CHECK_THROW(node_report_from(wrong), Error);
}

BOOST_AUTO_TEST_CASE(the_report_lists_every_rank_and_its_communications) {
    const std::vector<RankReport> ranks = {waiting(0, 2, 9), working(1, 2, 8)};
    const std::string text = watch_report_text("title", "sentence", ranks, 2);
    BOOST_TEST(text.rfind("title\nsentence\n", 0) == 0u);
    for (const char* part : {"all-reduce 9 of all (2.00 KiB), not begun by 1", "The last communications of rank 0",
                             "The last communications of rank 1, oldest first:\n  none", "pending"})
        BOOST_TEST(contains(text, part), part << " is missing in\n" << text);
}
