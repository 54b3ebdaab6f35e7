#include "device/cuda/wait.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "device/cuda/check.hpp"

namespace lockstep {
namespace {

std::function<void()>& look_at_others() {
    static std::function<void()> look;
    return look;
}

bool done(cudaError_t state, const char* doing) {
    if (state == cudaErrorNotReady) {
        // CUDA keeps it as the last error, where the check of the next kernel would find it.
        static_cast<void>(cudaGetLastError());
        return false;
    }
    check_cuda(state, doing);
    return true;
}

template <class Query>
void wait_until_done(const Query& query, const char* doing) {
    constexpr int quick_looks = 1000;
    for (int looks = 0; !done(query(), doing); ++looks) {
        if (looks < quick_looks) continue;
        if (look_at_others()) look_at_others()();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

}  // namespace

bool is_done(cudaEvent_t event, const char* doing) {
    return done(cudaEventQuery(event), doing);
}

void wait_for(cudaEvent_t event, const char* doing) {
    wait_until_done([&] { return cudaEventQuery(event); }, doing);
}

void wait_for(cudaStream_t stream, const char* doing) {
    wait_until_done([&] { return cudaStreamQuery(stream); }, doing);
}

void while_waiting_for_gpu(std::function<void()> look) {
    look_at_others() = std::move(look);
}

}  // namespace lockstep
