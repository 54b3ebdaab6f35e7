// How often ranks call MPI: a start and a step need no more collectives with many ranks than with few, and what rank 0
// gathers grows by some kilobytes for each other rank. Without a trace, whose writing depends on the time.
#define BOOST_TEST_MODULE mpi_calls
#include <array>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

// What a rank called in a launch.
struct Calls {
    long collectives = 0, sends = 0;
    double gathered = 0;  // bytes
};

// Of the first two ranks.
std::array<Calls, 2> calls_of(const fs::path& folder, int ranks, int steps, const std::string& more) {
    fs::remove_all(folder / "runs");
    fs::remove_all(folder / "checkpoints");
    // Two micro-batches a rank, whatever the ranks.
    const std::string arguments =
        "train run.toml --device cpu --set model.mixer=attention --set batch.micro=1 "
        "--set trace.detail=off --set checkpoint.every=1000 --set schedule.warmup=1 --set batch.global=" +
        std::to_string(2 * ranks) + " --set schedule.steps=" + std::to_string(steps) + " --set parallel." + more;
    for (const char* file : {"calls.0", "calls.1"}) fs::remove(folder / file);
    const Result result = run(arguments, folder, ranks,
                              "LD_PRELOAD=" + build_path("tests/end_to_end/libmpi_call_counter.so") +
                                  " LOCKSTEP_MPI_CALLS=" + (folder / "calls").string());
    check_exit(result, 0);
    std::array<Calls, 2> calls;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        std::ifstream file((folder / "calls").string() + "." + std::to_string(rank));
        std::string name;
        long count = 0;
        double bytes = 0;
        while (file >> name >> count >> bytes) {
            if (name == "send") calls[rank].sends += count;
            if (name != "send" && name != "receive") calls[rank].collectives += count;
            if (name == "gather" || name == "allgather") calls[rank].gathered += bytes;
        }
        BOOST_REQUIRE_MESSAGE(calls[rank].collectives > 0, "no calls were counted");
    }
    return calls;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mpi_calls)

BOOST_AUTO_TEST_CASE(do_not_grow_with_the_ranks) {
    const Workplace place;
    constexpr int few = 1, many = 4;
    constexpr double most_bytes = 8192;  // of each other rank, by rank 0 at the start and the end
    for (const std::string more : {"zero=0", "zero=1", "zero=2"}) {
        std::array<long, 2> start_of_two{}, step_of_two{};
        double of_four = 0;
        for (const int ranks : {2, 4, 8}) {
            const auto less = calls_of(place.path(), ranks, few, more), all = calls_of(place.path(), ranks, many, more);
            for (std::size_t rank = 0; rank < all.size(); ++rank)
                BOOST_TEST_CONTEXT(more << ", rank " << rank << " of " << ranks) {
                    const long steps = all[rank].collectives - less[rank].collectives;
                    BOOST_TEST(steps % (many - few) == 0);
                    BOOST_TEST(all[rank].sends == less[rank].sends);
                    const long step = steps / (many - few), start = less[rank].collectives - few * step;
                    BOOST_TEST_MESSAGE(start << " collectives at start and end, " << step << " a step, "
                                             << less[rank].gathered << " bytes gathered");
                    if (ranks == 2) {
                        start_of_two[rank] = start;
                        step_of_two[rank] = step;
                    }
                    BOOST_TEST(step > 0);
                    BOOST_TEST(step == step_of_two[rank]);
                    BOOST_TEST(start == start_of_two[rank]);
                }
            if (ranks == 4) of_four = less[0].gathered;
            if (ranks == 8) BOOST_TEST(less[0].gathered - of_four <= 4 * most_bytes);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
