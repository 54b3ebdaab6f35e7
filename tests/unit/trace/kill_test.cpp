// A process that writes rows as fast as it can is killed at random moments; what it leaves must always be readable.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/random.hpp"
#include "trace/reader.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::trace;
using namespace lockstep::trace::test;

namespace {

[[noreturn]] void write_for_ever(const std::string& folder) {
    const Header header = make_header(4, {"epoch", "epoch/step", "epoch/step/forward"});
    WriterLimits limits;
    limits.file_bytes = 1;  // files of 64 rows, so that beginning a file is often what is interrupted
    TraceWriter writer(folder, header, 1u << 30, limits);
    for (std::int64_t first = 1;; first += 3) {
        RowBatch block = make_block(header, first, 3);
        block.events.push_back({first, 0, 0, 0, 1});
        writer.append(block);
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_kill_at_any_moment_leaves_a_readable_trace) {
    const RandomStream random(1, "kill");
    std::size_t rows_seen = 0;
    // On a slow machine, until a child has had the time to write something.
    for (std::uint64_t round = 0; round < 20 || (rows_seen == 0 && round < 30); ++round) {
        const TemporaryFolder folder("trace-kill");
        const pid_t child = ::fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            try {
                write_for_ever(folder.string());
            } catch (...) {
                ::_exit(1);
            }
        }
        const int moment = 3000 + static_cast<int>(60000 * random.uniform(round));
        std::this_thread::sleep_for(std::chrono::microseconds(moment) * (round < 20 ? 1 : 1 << (round - 19)));
        ::kill(child, SIGKILL);
        int status = 0;
        BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
        BOOST_TEST(WIFSIGNALED(status));
        if (trace_files(folder.string()).empty()) continue;  // killed before the first file had its name
        const Run run = open_run(folder.string());
        std::int64_t expected = 1;
        for (const RunPart& part : run.parts) {
            std::vector<double> times, losses;
            std::vector<std::uint32_t> calls;
            part.file.read_times(0, part.rows, times);
            part.file.read_calls(0, part.rows, calls);
            part.file.read_rank_loss(0, part.rows, losses);
            bool right = true;
            for (std::size_t row = 0; row < part.rows; ++row, ++expected, ++rows_seen) {
                right =
                    right && part.file.steps()[row].step == expected && part.file.steps()[row].tokens == expected * 10;
                for (std::size_t rank = 0; rank < 4; ++rank) {
                    right = right && losses[row * 4 + rank] == known_time(expected, rank, 7);
                    for (std::size_t region = 0; region < 3; ++region) {
                        const std::size_t cell = (row * 4 + rank) * 3 + region;
                        right = right && times[cell] == known_time(expected, rank, region) && calls[cell] == region + 1;
                    }
                }
            }
            BOOST_TEST(right);
            BOOST_TEST(part.file.read_events().size() <= part.rows);
        }
    }
    BOOST_TEST(rows_seen > 0u);
}
