// What ranks agree on in host memory.
#define BOOST_TEST_MODULE host_group
#define BOOST_TEST_NO_MAIN
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "cluster/agree.hpp"
#include "cluster/distinct_texts.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/session.hpp"

using namespace lockstep;
using cluster::HostMessage;
using cluster::Reduce;

namespace {

cluster::Session* session = nullptr;
cluster::HostGroup* everyone = nullptr;

}  // namespace

BOOST_AUTO_TEST_CASE(reductions_of_numbers) {
    const int own = session->rank(), ranks = session->size();
    std::vector<double> doubles = {own + 0.5, -static_cast<double>(own)};
    everyone->all_reduce(doubles, Reduce::maximum);
    BOOST_TEST(doubles == (std::vector<double>{ranks - 0.5, 0.0}));
    std::vector<std::int64_t> integers(300, std::int64_t{1} << 40);  // several pieces
    everyone->all_reduce(integers, Reduce::sum);
    BOOST_TEST(integers == std::vector<std::int64_t>(300, ranks * (std::int64_t{1} << 40)));
    BOOST_TEST(everyone->all_maximum(own) == ranks - 1);
    BOOST_TEST(everyone->all_sum(own) == ranks * (ranks - 1) / 2.0);
}

BOOST_AUTO_TEST_CASE(one_rank_tells_the_others) {
    const int last = session->size() - 1;
    const std::string text(2500, 'x');
    BOOST_TEST(everyone->broadcast_text(session->rank() == last ? text : "", last) == text);
    const char own = static_cast<char>('a' + session->rank());
    std::string wanted;
    for (int rank = 0; rank < session->size(); ++rank) wanted += std::string(1500, static_cast<char>('a' + rank));
    const std::string block(1500, own);
    const std::vector<char> all = everyone->gather(block.data(), block.size(), last);
    BOOST_TEST(std::string(all.begin(), all.end()) == (session->rank() == last ? wanted : ""));
}

BOOST_AUTO_TEST_CASE(texts_that_ranks_share_are_told_once) {
    const int own = session->rank(), ranks = session->size();
    // All ranks have "common", every second rank "even", each one of its own, and rank 0 a text twice.
    const std::string zeros("\0\0", 2);
    const auto texts_of = [&](int rank) {
        std::vector<std::string> texts = {"common", "own " + std::to_string(rank)};
        if (rank % 2 == 0) texts.insert(texts.begin(), "even");
        if (rank == 0) texts.insert(texts.end(), {"", zeros, ""});
        return texts;
    };
    const cluster::DistinctTexts distinct = cluster::gather_distinct_texts(texts_of(own), *everyone);
    BOOST_REQUIRE(distinct.of_rank.size() == static_cast<std::size_t>(ranks));
    std::vector<std::string> expected = {"even", "common", "own 0", "", zeros};
    for (int rank = 1; rank < ranks; ++rank) expected.push_back("own " + std::to_string(rank));
    BOOST_TEST(distinct.texts == expected);
    for (int rank = 0; rank < ranks; ++rank) {
        std::vector<std::string> found;
        for (const std::uint32_t text : distinct.of_rank[static_cast<std::size_t>(rank)])
            found.push_back(distinct.texts.at(text));
        BOOST_TEST(found == texts_of(rank));
    }
    BOOST_TEST(cluster::gather_distinct_texts({}, *everyone).texts.empty());
    const auto alone = cluster::make_solo_group();
    BOOST_TEST(cluster::gather_distinct_texts({"b", "a", "b"}, *alone).texts == (std::vector<std::string>{"b", "a"}));
}

BOOST_AUTO_TEST_CASE(one_failure_is_agreed_on) {
    const int own = session->rank(), last = session->size() - 1;
    const Error fault = fault_error("fault of rank {}", own), lost = connection_error("rank {} is alone", own);
    BOOST_TEST(!cluster::agree({}, *everyone).has_value());
    // Those that lost their connection to the last rank know less than it does.
    const auto of_last = cluster::agree(own == last ? fault : lost, *everyone);
    BOOST_REQUIRE(of_last.has_value());
    BOOST_TEST(of_last->rank == last);
    BOOST_TEST(of_last->error.what() == "fault of rank " + std::to_string(last));
    BOOST_TEST(!of_last->error.is_connection_error());
    const auto of_all = cluster::agree(lost, *everyone);
    BOOST_REQUIRE(of_all.has_value());
    BOOST_TEST(of_all->rank == 0);
    BOOST_TEST(of_all->error.is_connection_error());
    const auto of_some = cluster::agree(own == last ? std::optional(lost) : std::nullopt, *everyone);
    BOOST_REQUIRE(of_some.has_value());
    BOOST_TEST(of_some->rank == last);
    BOOST_TEST(of_some->error.is_connection_error());
}

BOOST_AUTO_TEST_CASE(errors_of_mpi) {
    const auto caught = [](const auto&... arguments) {
        return cluster::caught([&] { cluster::check_mpi(arguments..., "MPI_Recv"); });
    };
    BOOST_TEST(!caught(MPI_SUCCESS).has_value());
    for (const int code : {MPI_ERR_OTHER, MPI_ERR_INTERN, MPI_ERR_UNKNOWN})
        BOOST_TEST(caught(code).value().is_connection_error());
    for (const int code : {MPI_ERR_TRUNCATE, MPI_ERR_RANK, MPI_ERR_COUNT, MPI_ERR_NO_MEM})
        BOOST_TEST(!caught(code).value().is_connection_error());
    // Of several requests, what went wrong first.
    std::array<MPI_Status, 4> statuses{};
    const auto of_requests = [&](const std::array<int, 4>& codes) {
        for (std::size_t i = 0; i < codes.size(); ++i) statuses[i].MPI_ERROR = codes[i];
        return caught(MPI_ERR_IN_STATUS, statuses.data(), 4).value();
    };
    BOOST_TEST(of_requests({MPI_SUCCESS, MPI_ERR_PENDING, MPI_ERR_OTHER, MPI_ERR_TRUNCATE}).is_connection_error());
    const Error truncated = of_requests({MPI_SUCCESS, MPI_ERR_PENDING, MPI_ERR_TRUNCATE, MPI_ERR_OTHER});
    BOOST_TEST(!truncated.is_connection_error());
    BOOST_TEST(std::string(truncated.what()).find("runcated") != std::string::npos, truncated.what());
}

BOOST_AUTO_TEST_CASE(solo_group_is_the_identity) {
    const auto alone = cluster::make_solo_group();
    BOOST_TEST(alone->size() == 1);
    BOOST_TEST(alone->all_sum(3.5) == 3.5);
    int sent = 7, got = 0;
    alone->exchange({{0, &got, sizeof got}}, {{0, &sent, sizeof sent}});
    BOOST_TEST(got == 7);
}

BOOST_AUTO_TEST_CASE(exchange_of_blocks_of_any_size) {
    const int own = session->rank(), ranks = session->size();
    // Two blocks from every rank to every rank, itself included; some are empty.
    const auto size_of = [](int from, int to, int block) { return (from * 5 + to * 3 + block * 211) % 7 * 97; };
    std::vector<std::vector<std::int32_t>> sent, got;
    std::vector<HostMessage> sends, receives;
    const auto block_of = [](std::vector<std::int32_t>& values, int rank) {
        return HostMessage{rank, values.data(), values.size() * sizeof(std::int32_t)};
    };
    sent.reserve(static_cast<std::size_t>(2 * ranks));
    got.reserve(static_cast<std::size_t>(2 * ranks));
    for (int block = 0; block < 2; ++block)
        for (int rank = 0; rank < ranks; ++rank) {
            sent.emplace_back(size_of(own, rank, block), own * 100 + rank * 10 + block);
            sends.push_back(block_of(sent.back(), rank));
            got.emplace_back(size_of(rank, own, block), -1);
            receives.push_back(block_of(got.back(), rank));
        }
    everyone->exchange(receives, sends);
    for (int block = 0; block < 2; ++block)
        for (int rank = 0; rank < ranks; ++rank)
            for (const std::int32_t value : got[static_cast<std::size_t>(block * ranks + rank)])
                BOOST_TEST(value == rank * 100 + own * 10 + block);
}

BOOST_AUTO_TEST_CASE(all_gather_of_blocks_of_any_size) {
    for (const std::size_t step : {std::size_t{0}, std::size_t{3}, std::size_t{5000}}) {
        std::string wanted;
        for (int rank = 0; rank < session->size(); ++rank)
            wanted += std::string(step * static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
        const std::string own(step * static_cast<std::size_t>(session->rank()),
                              static_cast<char>('a' + session->rank()));
        const std::vector<char> got = everyone->all_gather_bytes(own.data(), own.size());
        BOOST_TEST(std::string(got.begin(), got.end()) == wanted);
    }
}

int main(int argc, char** argv) {
    // Small messages go in pieces, and no send ends before its receive has begun.
    setenv("LOCKSTEP_MPI_PIECE_BYTES", "1000", 0);
    setenv("LOCKSTEP_SYNCHRONOUS_SENDS", "1", 0);
    cluster::Session started(&argc, &argv);
    session = &started;
    return started.run([&] {
        const auto made = started.make_world_group();
        everyone = made.get();
        return boost::unit_test::unit_test_main(init_unit_test, argc, argv);
    });
}
