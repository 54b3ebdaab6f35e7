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

// The threads that have a clock; fewer than threads() where the system grants fewer.
std::vector<Member> team() {
    std::vector<Member> members(static_cast<std::size_t>(threads()));
#pragma omp parallel
    {
        const auto thread = static_cast<std::size_t>(omp_get_thread_num());
        Member member{static_cast<unsigned long>(syscall(SYS_gettid)), 0};
        if (thread < members.size() && pthread_getcpuclockid(pthread_self(), &member.clock) == 0)
            members[thread] = member;
    }
    std::erase_if(members, [](const Member& member) { return member.id == 0; });
    return members;
}

}  // namespace

bool ProcessorCounters::built_in() {
    return true;
}

ProcessorCounters::ProcessorCounters() {
    start();
    if (works()) take();
    if (!works()) stop();
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

ProcessorCounts ProcessorCounters::take() {
    ProcessorCounts now;
    for (const Thread& thread : threads_) {
        std::array<long long, counted.size()> values{};
        timespec time{};
        const int status = PAPI_read(thread.events, values.data());
        if (status != PAPI_OK)
            reason_ = std::string("PAPI: ") + PAPI_strerror(status);
        else if (clock_gettime(thread.clock, &time) != 0)
            reason_ = "a counted thread has ended";
        now.instructions += static_cast<double>(values[0]);
        now.cycles += static_cast<double>(values[1]);
        now.seconds += static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }
    if (!works()) {
        stop();
        return {};
    }
    const ProcessorCounts past = last_;
    last_ = now;
    return {now.instructions - past.instructions, now.cycles - past.cycles, now.seconds - past.seconds};
}

}  // namespace lockstep

#else

namespace lockstep {

bool ProcessorCounters::built_in() {
    return false;
}
ProcessorCounters::ProcessorCounters() : reason_("this program was built without PAPI") {}
ProcessorCounters::~ProcessorCounters() = default;
ProcessorCounts ProcessorCounters::take() {
    return {};
}

}  // namespace lockstep

#endif
