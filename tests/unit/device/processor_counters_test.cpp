#define BOOST_TEST_MODULE processor counters
#include "device/processor_counters.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "device/parallel.hpp"

using namespace lockstep;

namespace {

// Seconds of each thread's processor time, at least.
void work(double seconds) {
    parallel_for(threads(), 1, [&](std::int64_t first, std::int64_t last, int) {
        const auto now = [] {
            timespec time{};
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
            return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
        };
        if (first == last) return;
        for (const double begin = now(); now() < begin + seconds;) {
        }
    });
}

void check(const ProcessorCounts& counts, double least_seconds) {
    BOOST_TEST(counts.seconds >= least_seconds);
    // The two clocks are read one after the other.
    BOOST_TEST(std::abs(counts.cycles / counts.seconds / 2e9 - 1) < 0.2);
    BOOST_TEST(std::abs(counts.instructions / counts.cycles - 1.5) < 1e-6);
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_threads_of_the_team_are_counted) {
    for (const int count : {1, 3}) {
        set_threads(count);
        ProcessorCounters counters;
        BOOST_TEST(counters.works(), counters.reason());
        work(0.02);
        check(counters.take(), 0.02 * count);
        work(0.01);
        check(counters.take(), 0.01 * count);
        const ProcessorCounts idle = counters.take();
        BOOST_TEST(idle.seconds < 0.01);
        BOOST_TEST(idle.cycles < 2e7);
    }
}

BOOST_AUTO_TEST_CASE(a_failure_is_the_reason_and_nothing_is_counted) {
    set_threads(2);
    for (const char* function : {"library_init", "query_event", "attach", "add_event", "read"}) {
        setenv("LOCKSTEP_PAPI_FAILS", function, 1);
        ProcessorCounters counters;
        BOOST_TEST(!counters.works());
        BOOST_TEST(counters.reason().find("PAPI") != std::string::npos, counters.reason());
        work(0.001);
        const ProcessorCounts counts = counters.take();
        BOOST_TEST(counts.instructions == 0);
        BOOST_TEST(counts.cycles == 0);
        BOOST_TEST(counts.seconds == 0);
    }
    unsetenv("LOCKSTEP_PAPI_FAILS");
}

BOOST_AUTO_TEST_CASE(counters_that_cannot_be_read_are_given_up) {
    set_threads(2);
    ProcessorCounters counters;
    work(0.01);
    setenv("LOCKSTEP_PAPI_FAILS", "read", 1);
    BOOST_TEST(counters.take().cycles == 0);
    BOOST_TEST(!counters.works());
    BOOST_TEST(counters.reason() == "PAPI: the stand-in's error");
    unsetenv("LOCKSTEP_PAPI_FAILS");
    work(0.01);
    BOOST_TEST(counters.take().seconds == 0);
}
