#include "device/parallel.hpp"

#include <omp.h>

#include <algorithm>
#include <exception>

namespace lockstep {

void set_threads(int count) {
    omp_set_num_threads(count);
}
int threads() {
    return omp_get_max_threads();
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
#pragma omp parallel num_threads(static_cast <int>(pieces))
    {
        const std::int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        const std::int64_t first = count * thread / team, last = count * (thread + 1) / team;
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
