// This rank's threads. Work is divided the same way whatever their number, so results do not depend on it unless a
// kernel says so. Signals interrupt the first thread only.
#pragma once

#include <cstdint>
#include <type_traits>

namespace lockstep {

void set_threads(int count);  // also of the BLAS library
int threads();

// `place` is called once on each thread of a team but the first, with its number (from 1), before it does work, to bind
// it to a core. Must not throw. Threads created later are placed too.
using PlaceThread = void (*)(int thread);
void set_thread_place(PlaceThread place);

namespace detail {
using Body = void (*)(void* context, std::int64_t first, std::int64_t last, int thread);
void parallel_run(std::int64_t count, std::int64_t grain, Body body, void* context);
}  // namespace detail

// Calls body(first, last, thread) on disjoint ranges that cover [0, count), about equal in size, none smaller than
// `grain` but the last. A single range runs on the calling thread.
template <class Function>
void parallel_for(std::int64_t count, std::int64_t grain, Function&& body) {
    detail::parallel_run(
        count, grain,
        [](void* context, std::int64_t first, std::int64_t last, int thread) {
            (*static_cast<std::remove_reference_t<Function>*>(context))(first, last, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace lockstep
