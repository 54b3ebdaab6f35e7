#include "device/parallel.hpp"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "device/signal_block.hpp"

namespace lockstep {
namespace {

std::atomic<PlaceThread> place_thread = nullptr;
std::atomic<int> times_placed = 0;
thread_local int last_placed = 0;
thread_local bool signals_blocked = false;

void place_once(int thread) {
    const int now = times_placed.load(std::memory_order_acquire);
    if (now == last_placed) return;
    last_placed = now;
    if (thread > 0) place_thread.load(std::memory_order_relaxed)(thread);
}

}  // namespace

void set_threads(int count) {
    omp_set_num_threads(count);
}
int threads() {
    return omp_get_max_threads();
}

void set_thread_place(PlaceThread place) {
    place_thread.store(place, std::memory_order_relaxed);
    times_placed.fetch_add(1, std::memory_order_release);
}

namespace detail {

void parallel_run(std::int64_t count, std::int64_t grain, Body body, void* context) {
    if (count <= 0) return;
    const std::int64_t pieces =
        std::min<std::int64_t>(threads(), std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, grain)));
    if (pieces == 1) {
        body(context, 0, count, 0);
        return;
    }
    std::exception_ptr problem;
    // Always the whole team, even if some threads are idle: libgomp ends threads that a smaller team does not need and
    // starts new ones for the next.
#pragma omp parallel
    {
        const std::int64_t thread = omp_get_thread_num();
        const std::int64_t parts = std::min<std::int64_t>(pieces, omp_get_num_threads());
        const std::int64_t first = count * std::min(thread, parts) / parts;
        const std::int64_t last = count * std::min(thread + 1, parts) / parts;
        if (thread > 0 && !std::exchange(signals_blocked, true)) block_signals();
        place_once(static_cast<int>(thread));
        try {
            if (first < last) body(context, first, last, static_cast<int>(thread));
        } catch (...) {
#pragma omp critical
            problem = std::current_exception();
        }
    }
    if (problem) std::rethrow_exception(problem);
}

}  // namespace detail
}  // namespace lockstep
