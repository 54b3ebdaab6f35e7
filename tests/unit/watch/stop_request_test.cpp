// Stop requests that arrive while the processor is anywhere, in a matrix product of oneDNN too.
#define BOOST_TEST_MODULE watch_stop_request
#include "watch/stop_request.hpp"

#include <csignal>
#include <ctime>

#include "unit/kernels/support.hpp"

using namespace lockstep;
using namespace lockstep::kernel_tests;
constexpr auto no = kernels::Transpose::no;

namespace {

// USR1 every 100 µs, to the process.
class ManySignals {
  public:
    ManySignals() {
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGUSR1;
        BOOST_REQUIRE(::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
        itimerspec every{};
        every.it_value.tv_nsec = every.it_interval.tv_nsec = 100'000;
        BOOST_REQUIRE(::timer_settime(timer_, 0, &every, nullptr) == 0);
    }
    ManySignals(const ManySignals&) = delete;
    ManySignals& operator=(const ManySignals&) = delete;
    ~ManySignals() { ::timer_delete(timer_); }

  private:
    timer_t timer_{};
};

}  // namespace

// Some of oneDNN's fp32 products point the stack register into the heap, where a signal's frame overwrites what others
// keep there. Which ones depends on the instruction set, the number of terms and the distance of rows.
BOOST_AUTO_TEST_CASE(a_signal_in_a_product_overwrites_nothing) {
    watch::watch_signals();
    const auto backend = kernels::make_cpu_backend();
    constexpr std::int64_t rows = 96, columns = 64;
    for (const int thread_count : {1, 2}) {
        set_threads(thread_count);
        for (const std::int64_t terms : {96, 194, 256, 300}) {
            for (const std::int64_t stride : {terms, (terms + 31) / 32 * 32}) {
                Floats a = random_floats({rows, stride}, "a"), b = random_floats({terms, columns}, "b");
                const Tensor left = a.tensor().columns(0, terms);
                Floats expected({rows, columns}), c({rows, columns});
                backend->product(expected.tensor(), left, no, b.tensor(), no, kernels::Accumulate::no);
                const ManySignals signals;
                int wrong = 0;
                for (int repeat = 0; repeat < 300; ++repeat) {
                    // Freed and taken anew, so that the heap below oneDNN's memory changes.
                    const std::vector<std::vector<char>> others(16, std::vector<char>(3000, 'x'));
                    backend->product(c.tensor(), left, no, b.tensor(), no, kernels::Accumulate::no);
                    wrong += c.data != expected.data;
                    for (const auto& other : others)
                        wrong += std::count(other.begin(), other.end(), 'x') != std::ssize(other);
                }
                BOOST_TEST(wrong == 0, terms << " terms in rows of " << stride << ", " << thread_count << " threads");
            }
        }
    }
    BOOST_TEST(watch::requested_signal() == SIGUSR1);
}
