#include "cuda_emulation/streams.hpp"

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda_emulation/block.hpp"
#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/graphs.hpp"

namespace lockstep::emulation {

namespace {

double passed_seconds = 0;  // beside those of the clock

struct Streams {
    std::vector<std::unique_ptr<CUstream_st>> list;
    std::map<int, CUstream_st*> defaults;                 // by device
    std::vector<std::unique_ptr<CUstream_st>> destroyed;  // with work left
    std::uint64_t issued = 0;
    std::vector<std::string> executed;
};

Streams& streams() {
    static Streams streams;
    return streams;
}

constexpr unsigned non_blocking = 1;  // cudaStreamNonBlocking

bool can_run(const CUstream_st& stream) {
    if (stream.busy || stream.queue.empty()) return false;
    const Operation& first = stream.queue.front();
    return (!first.after || first.after->done) && std::all_of(first.behind.begin(), first.behind.end(),
                                                              [](const auto& tie) { return *tie.first >= tie.second; });
}

std::vector<CUstream_st*> runnable() {
    std::vector<CUstream_st*> found;
    for (const auto* list : {&streams().list, &streams().destroyed})
        for (const auto& stream : *list)
            if (can_run(*stream)) found.push_back(stream.get());
    return found;
}

// Seed 0: in the order of issue. Else any; every third choice goes to the stream that was chosen last, so that one
// stream also gets far ahead of the others.
CUstream_st* choose(const std::vector<CUstream_st*>& candidates) {
    static const CUstream_st* last = nullptr;
    if (seed() == 0)
        return *std::min_element(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
            return a->queue.front().issue < b->queue.front().issue;
        });
    const std::uint64_t random = draw();
    const auto same = std::find(candidates.begin(), candidates.end(), last);
    CUstream_st* chosen =
        same != candidates.end() && random % 3 == 0 ? *same : candidates[(random >> 8) % candidates.size()];
    last = chosen;
    return chosen;
}

// After an error nothing that is queued means anything.
void clear_all() {
    for (auto* list : {&streams().list, &streams().destroyed})
        for (const auto& stream : *list)
            if (!stream->busy) {
                for (const Operation& operation : stream->queue)
                    if (operation.records) operation.records->done = true;
                *stream->done += stream->queue.size();
                stream->queue.clear();
            }
}

// Whether the operation was done; false: it needs others, or other ranks, first.
bool run_first(CUstream_st& stream) {
    struct Busy {
        CUstream_st& stream;
        explicit Busy(CUstream_st& which) : stream(which) { stream.busy = true; }
        ~Busy() { stream.busy = false; }
    };
    const Busy busy(stream);
    Operation& operation = stream.queue.front();
    bool done = true;
    try {
        if (operation.work) done = operation.work();
    } catch (...) {
        stream.busy = false;
        clear_all();
        throw;
    }
    if (!done) return false;
    if (operation.work) streams().executed.push_back(std::move(operation.name));
    if (operation.records) *operation.records = {true, seconds_now() + passed_seconds};
    stream.queue.pop_front();
    ++*stream.done;
    return true;
}

// Runs one operation that gets done; false: there is none that can.
bool step() {
    std::vector<CUstream_st*> candidates = runnable();
    while (!candidates.empty()) {
        CUstream_st* chosen = choose(candidates);
        if (run_first(*chosen)) return true;
        candidates.erase(std::find(candidates.begin(), candidates.end(), chosen));
        candidates.erase(
            std::remove_if(candidates.begin(), candidates.end(), [](const auto* s) { return !can_run(*s); }),
            candidates.end());
    }
    return false;
}

void drop_destroyed() {
    auto& list = streams().destroyed;
    list.erase(std::remove_if(list.begin(), list.end(), [](const auto& s) { return s->queue.empty() && !s->busy; }),
               list.end());
}

}  // namespace

std::recursive_mutex& device_lock() {
    static std::recursive_mutex lock;
    return lock;
}

cudaStream_t create_stream(unsigned flags, int priority, int device) {
    auto stream = std::make_unique<CUstream_st>();
    stream->flags = flags;
    stream->priority = priority;
    stream->device = device;
    streams().list.push_back(std::move(stream));
    return streams().list.back().get();
}

void destroy_stream(cudaStream_t stream) {
    auto& list = streams().list;
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& s) { return s.get() == stream; });
    if (!(*found)->queue.empty()) streams().destroyed.push_back(std::move(*found));
    list.erase(found);
}

bool is_stream(cudaStream_t stream) {
    for (const auto* list : {&streams().list, &streams().destroyed})
        if (std::any_of(list->begin(), list->end(), [&](const auto& s) { return s.get() == stream; })) return true;
    return false;
}

CUstream_st& resolve(cudaStream_t stream) {
    if (stream != nullptr) return *stream;
    CUstream_st*& found = streams().defaults[current_device()];
    if (found == nullptr) found = create_stream(0, 0, current_device());
    return *found;
}

void issue(CUstream_st& stream, Operation operation) {
    const auto tie = [&](const CUstream_st& other) {
        if (!idle(other)) operation.behind.emplace_back(other.done, other.issued);
    };
    const CUstream_st* legacy = streams().defaults.count(stream.device) ? streams().defaults[stream.device] : nullptr;
    if (&stream == legacy) {
        for (const auto& other : streams().list)
            if (other.get() != legacy && other->device == stream.device && !(other->flags & non_blocking)) tie(*other);
    } else if (legacy != nullptr && !(stream.flags & non_blocking)) {
        tie(*legacy);
    }
    operation.issue = streams().issued++;
    ++stream.issued;
    stream.queue.push_back(std::move(operation));
}

bool idle(const CUstream_st& stream) {
    return stream.queue.empty();
}

void work_until(const std::function<bool()>& done) {
    std::unique_lock lock(device_lock());
    while (!done()) {
        if (step()) continue;
        if (runnable().empty())  // else it waits for other ranks
            throw fault_error(
                "a stream waits for work that cannot run: it is queued behind the work that waits for it");
        lock.unlock();  // other threads may end the wait
        std::this_thread::yield();
        lock.lock();
    }
    drop_destroyed();
}

void work_until_idle(const CUstream_st& stream) {
    const std::uint64_t target = stream.issued;
    work_until([&] { return *stream.done >= target; });
}

void work_until_all_idle(int device) {
    work_until([&] {
        for (const auto* list : {&streams().list, &streams().destroyed})
            for (const auto& stream : *list)
                if (stream->device == device && !idle(*stream)) return false;
        return true;
    });
}

void work_once() {
    const std::lock_guard lock(device_lock());
    step();
    drop_destroyed();
}

void enqueue_polled(cudaStream_t stream, const char* name, std::function<bool()> work) {
    const std::lock_guard lock(device_lock());
    CUstream_st& where = resolve(stream);
    if (where.capture != nullptr)
        record_node(where, name, std::move(work));
    else
        issue(where, {name, std::move(work), nullptr, nullptr, {}, 0});
}

void enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
    enqueue_polled(stream, name, [work = std::move(work)] {
        work();
        return true;
    });
}

std::size_t pending_operations() {
    const std::lock_guard lock(device_lock());
    std::size_t count = 0;
    for (const auto* list : {&streams().list, &streams().destroyed})
        for (const auto& stream : *list) count += stream->queue.size();
    return count;
}

std::vector<std::string> take_executed() {
    const std::lock_guard lock(device_lock());
    return std::exchange(streams().executed, {});
}

void pass_time(double seconds) {
    const std::lock_guard lock(device_lock());
    passed_seconds += seconds;
}

}  // namespace lockstep::emulation
