// Stands in for PAPI on machines without hardware counters: every attached thread has 2e9 cycles and 3e9 instructions
// for each second of its processor time. LOCKSTEP_PAPI_FAILS names a function that fails.
#include <papi.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

namespace {

struct Set {
    unsigned long thread = 0;
    std::vector<int> events;
    double start = 0;
    bool running = false;
    int reads = 0;
};
std::vector<Set> sets;

bool fails(const char* name) {
    const char* failing = std::getenv("LOCKSTEP_PAPI_FAILS");
    return failing && std::strcmp(failing, name) == 0;
}

// Linux's clock of a thread: its number inverted, then "of one thread" and "time it was scheduled".
double seconds_of(unsigned long thread) {
    timespec time{};
    clock_gettime(static_cast<clockid_t>((~static_cast<unsigned>(thread)) << 3 | 6), &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Set* find(int set) {
    return set >= 0 && static_cast<std::size_t>(set) < sets.size() ? &sets[static_cast<std::size_t>(set)] : nullptr;
}

}  // namespace

extern "C" {

int PAPI_library_init(int version) {
    return fails("library_init") ? PAPI_EINVAL : version;
}
int PAPI_query_event(int /*event*/) {
    return fails("query_event") ? PAPI_ENOEVNT : PAPI_OK;
}
char* PAPI_strerror(int status) {
    static char text[] = "the stand-in's error";
    return status == PAPI_OK ? nullptr : text;
}
int PAPI_create_eventset(int* set) {
    *set = static_cast<int>(sets.size());
    sets.emplace_back();
    return PAPI_OK;
}
int PAPI_assign_eventset_component(int set, int component) {
    return find(set) && component == 0 ? PAPI_OK : PAPI_EINVAL;
}
int PAPI_attach(int set, unsigned long thread) {
    if (!find(set) || fails("attach")) return PAPI_EPERM;
    find(set)->thread = thread;
    return PAPI_OK;
}
int PAPI_add_event(int set, int event) {
    if (!find(set) || fails("add_event")) return PAPI_ECNFLCT;
    find(set)->events.push_back(event);
    return PAPI_OK;
}
int PAPI_start(int set) {
    if (!find(set) || find(set)->running || find(set)->thread == 0) return PAPI_EINVAL;
    find(set)->running = true;
    find(set)->start = seconds_of(find(set)->thread);
    return PAPI_OK;
}
int PAPI_read(int set, long long* values) {
    if (!find(set) || !find(set)->running || fails("read") || (++find(set)->reads > 1 && fails("later")))
        return PAPI_ENOTRUN;
    const double seconds = seconds_of(find(set)->thread) - find(set)->start;
    for (const int event : find(set)->events)
        *values++ = static_cast<long long>(seconds * (event == static_cast<int>(PAPI_TOT_INS) ? 3e9 : 2e9));
    return PAPI_OK;
}
int PAPI_stop(int set, long long* /*values*/) {
    if (!find(set) || !find(set)->running) return PAPI_ENOTRUN;
    find(set)->running = false;
    return PAPI_OK;
}
int PAPI_cleanup_eventset(int set) {
    if (!find(set) || find(set)->running) return PAPI_EISRUN;
    find(set)->events.clear();
    return PAPI_OK;
}
int PAPI_destroy_eventset(int* set) {
    *set = PAPI_NULL;
    return PAPI_OK;
}
}
