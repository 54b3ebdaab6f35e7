#include "device/processor_counters.hpp"

#ifdef LOCKSTEP_PAPI

#include <omp.h>
#include <papi.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "device/parallel.hpp"

namespace lockstep {
namespace {

constexpr std::array<int, 2> counted = {static_cast<int>(PAPI_TOT_INS), static_cast<int>(PAPI_TOT_CYC)};
constexpr int processor_component = 0;  // perf_event is always PAPI's first

struct Member {
    unsigned long id = 0;
    clockid_t clock = 0;
};

std::vector<Member> team() {
    std::vector<Member> members(static_cast<std::size_t>(threads()));
#pragma omp parallel
    {
        const auto thread = static_cast<std::size_t>(omp_get_thread_num());
        if (thread < members.size()) {
            members[thread].id = static_cast<unsigned long>(syscall(SYS_gettid));
            pthread_getcpuclockid(pthread_self(), &members[thread].clock);
        }
    }
    return members;
}

double seconds_of(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

bool ProcessorCounters::built_in() {
    return true;
}

ProcessorCounters::ProcessorCounters() {
    start();
    if (!works()) stop();
    last_ = read();
}

ProcessorCounters::~ProcessorCounters() {
    stop();
}

// PAPI counts another thread only by an event set attached to it; so one thread can start and read them all.
void ProcessorCounters::start() {
    if (PAPI_library_init(PAPI_VER_CURRENT) != PAPI_VER_CURRENT) {
        reason_ = "PAPI does not initialize, or its version differs from the one this program was built with";
        return;
    }
    for (const int event : counted)
        if (const int status = PAPI_query_event(event); status != PAPI_OK) {
            reason_ = std::string("no hardware counters (PAPI: ") + PAPI_strerror(status) + ")";
            return;
        }
    const auto fine = [&](int status) {
        if (status != PAPI_OK) reason_ = std::string("PAPI: ") + PAPI_strerror(status);
        return status == PAPI_OK;
    };
    for (const Member& member : team()) {
        int events = PAPI_NULL;
        if (!fine(PAPI_create_eventset(&events))) return;
        threads_.push_back({events, member.clock});
        if (!fine(PAPI_assign_eventset_component(events, processor_component)) || !fine(PAPI_attach(events, member.id)))
            return;
        for (const int event : counted)
            if (!fine(PAPI_add_event(events, event))) return;
        if (!fine(PAPI_start(events))) return;
    }
}

void ProcessorCounters::stop() {
    for (Thread& thread : threads_) {
        PAPI_stop(thread.events, nullptr);
        PAPI_cleanup_eventset(thread.events);
        PAPI_destroy_eventset(&thread.events);
    }
    threads_.clear();
}

ProcessorCounts ProcessorCounters::read() const {
    ProcessorCounts sum;
    for (const Thread& thread : threads_) {
        std::array<long long, counted.size()> values{};
        if (PAPI_read(thread.events, values.data()) != PAPI_OK) return last_;
        sum.instructions += static_cast<double>(values[0]);
        sum.cycles += static_cast<double>(values[1]);
        sum.seconds += seconds_of(thread.clock);
    }
    return sum;
}

}  // namespace lockstep

#else

namespace lockstep {

bool ProcessorCounters::built_in() {
    return false;
}
ProcessorCounters::ProcessorCounters() : reason_("this program was built without PAPI") {}
ProcessorCounters::~ProcessorCounters() = default;
ProcessorCounts ProcessorCounters::read() const {
    return {};
}

}  // namespace lockstep

#endif

namespace lockstep {

ProcessorCounts ProcessorCounters::take() {
    const ProcessorCounts now = read();
    const ProcessorCounts past = last_;
    last_ = now;
    return {now.instructions - past.instructions, now.cycles - past.cycles, now.seconds - past.seconds};
}

}  // namespace lockstep
