// Threads of this rank. Work is cut into the same pieces whatever the number of threads, so results do not depend on it
// unless a kernel says so.
#pragma once

#include <cstdint>
#include <type_traits>

namespace lockstep {

void set_threads(int count);  // also for the matrix-product library
int threads();

// `place` is called once in every thread but the first of a team, with its number from 1 on, before it does work: where
// it binds itself to a core. It must not throw. Threads that come later are placed too.
using PlaceThread = void (*)(int thread);
void set_thread_place(PlaceThread place);

namespace detail {
using Body = void (*)(void* context, std::int64_t first, std::int64_t last, int thread);
void parallel_run(std::int64_t count, std::int64_t grain, Body body, void* context);
}  // namespace detail

// Calls body(first, last, thread) over disjoint ranges that cover [0, count), about equally many to each thread, none
// smaller than `grain` but the last. One range runs in the calling thread.
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
