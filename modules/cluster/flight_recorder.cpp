#include "cluster/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/clock.hpp"
#include "cluster/flight_page.hpp"
#include "cluster/rank_list.hpp"

namespace lockstep::cluster {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto release = std::memory_order_release;

template <std::size_t size>
void copy_text(std::array<char, size>& to, const std::string& from) {
    to.fill('\0');
    std::memcpy(to.data(), from.data(), std::min(from.size(), size - 1));
}

FlightPage::Operation& slot(FlightPage& page, std::uint64_t sequence) {
    return page.operation[(sequence - 1) % FlightPage::kept_operations];
}

void end_operation(FlightPage& page, std::uint64_t sequence, double now) {
    FlightPage::Operation& operation = slot(page, sequence);
    if (operation.sequence.load(relaxed) == sequence) operation.done.store(now, relaxed);
}

}  // namespace

const char* flight_kind_name(FlightKind kind) {
    switch (kind) {
        case FlightKind::all_reduce:
            return "all-reduce";
        case FlightKind::reduce_scatter:
            return "reduce-scatter";
        case FlightKind::all_gather:
            return "all-gather";
        case FlightKind::broadcast:
            return "broadcast";
        case FlightKind::gather:
            return "gather";
        case FlightKind::exchange:
            return "exchange";
        case FlightKind::barrier:
            return "barrier";
        case FlightKind::send:
            return "send";
        case FlightKind::receive:
            return "receive";
    }
    return "?";
}

FlightRecorder& flight_recorder() {
    static FlightRecorder recorder;
    return recorder;
}

FlightRecorder::FlightRecorder() : page_(new FlightPage) {
    page_->process = ::getpid();
}

// A mapped page is never unmapped: threads may still write to it.
FlightRecorder::~FlightRecorder() {
    if (!mapped_) delete page_;
}

bool FlightRecorder::share(const std::string& path) {
    if (mapped_) return true;
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    // Reserve the space: on a full file system the first write would kill the process.
    const int problem = ::posix_fallocate(file, 0, sizeof(FlightPage));
    void* memory =
        problem == 0 ? ::mmap(nullptr, sizeof(FlightPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    const bool locked = memory != MAP_FAILED && ::flock(file, LOCK_EX | LOCK_NB) == 0;
    const int error = problem != 0 ? problem : errno;
    if (!locked) {
        if (memory != MAP_FAILED) ::munmap(memory, sizeof(FlightPage));
        ::close(file);
        ::unlink(path.c_str());
        errno = error;
        return false;
    }
    // The page is trivially copyable, and nobody else reads it yet. The file stays open for its lock.
    FlightPage* const before = page_;
    std::memcpy(memory, static_cast<const void*>(before), sizeof(FlightPage));
    page_ = std::launder(static_cast<FlightPage*>(memory));
    delete before;
    set_watched(seconds_now(), seconds_now());  // until a thread monitors it
    mapped_ = true;
    return true;
}

void FlightRecorder::set_rank(int rank, int ranks, const std::string& host) {
    page_->rank = rank;
    page_->ranks = ranks;
    copy_text(page_->host, host);
}

void FlightRecorder::set_stage(FlightStage stage) {
    page_->stage.store(static_cast<std::int32_t>(stage), release);
}

void FlightRecorder::set_signalled(int signal) {
    page_->signal.store(signal, relaxed);
    set_stage(FlightStage::signalled);
}

int FlightRecorder::add_group(const std::string& name, const std::vector<int>& members) {
    const std::uint32_t number = page_->groups.load(relaxed);
    if (number == FlightPage::most_groups) return static_cast<int>(number) - 1;
    FlightPage::Group& group = page_->group[number];
    copy_text(group.name, name);
    const std::string text = rank_list_text(members);
    copy_text(group.members, text.size() < group.members.size() ? text : "");
    page_->groups.store(number + 1, release);
    return static_cast<int>(number);
}

std::uint64_t FlightRecorder::begin(int group, FlightKind kind, std::size_t bytes, int peer, bool on_device) {
    const std::uint64_t sequence = page_->operations.load(relaxed) + 1;
    FlightPage::Group& of = page_->group[static_cast<std::size_t>(group)];
    std::atomic<std::uint64_t>& count = is_message(kind) ? of.messages : of.collectives;
    FlightPage::Operation& operation = slot(*page_, sequence);
    operation.sequence.store(0, release);
    operation.number = count.load(relaxed) + 1;
    operation.bytes = bytes;
    operation.begun = seconds_now();
    operation.done.store(0, relaxed);
    operation.group = group;
    operation.kind = static_cast<std::int32_t>(kind);
    operation.peer = peer;
    operation.on_device = on_device ? 1 : 0;
    if (on_device) bytes_ += bytes;
    operation.sequence.store(sequence, release);
    page_->operations.store(sequence, release);
    count.store(operation.number, release);
    beat();
    return sequence;
}

void FlightRecorder::done(std::uint64_t sequence) {
    const FlightPage::Operation& operation = slot(*page_, sequence);
    if (operation.sequence.load(relaxed) == sequence && operation.done.load(relaxed) == 0) bytes_ += operation.bytes;
    end_operation(*page_, sequence, seconds_now());
    beat();
}

std::uint64_t FlightRecorder::wait_for(std::uint64_t sequence) {
    return page_->waiting.exchange(sequence, release);
}

std::uint64_t FlightRecorder::newest() const {
    return page_->operations.load(relaxed);
}

void FlightRecorder::device_reached(std::uint64_t sequence) {
    const double now = seconds_now();
    const std::uint64_t newest = page_->operations.load(relaxed);
    const std::uint64_t oldest = newest > FlightPage::kept_operations ? newest - FlightPage::kept_operations : 0;
    for (std::uint64_t each = std::max(device_done_, oldest) + 1; each <= sequence; ++each)
        if (slot(*page_, each).on_device != 0) end_operation(*page_, each, now);
    device_done_ = std::max(device_done_, sequence);
}

void FlightRecorder::name_region(int region, const std::string& path) {
    const auto number = static_cast<std::size_t>(region);
    if (number >= FlightPage::most_regions) return;
    copy_text(page_->region_name[number], path);
    page_->regions.store(std::max<std::uint32_t>(page_->regions.load(relaxed), static_cast<std::uint32_t>(number) + 1),
                         release);
}

void FlightRecorder::set_region(int region) {
    page_->region.store(region, relaxed);
    beat();
}

void FlightRecorder::set_step(std::int64_t step) {
    page_->step.store(step, relaxed);
    beat();
}

void FlightRecorder::beat() {
    page_->events.fetch_add(1, relaxed);
}

std::uint64_t FlightRecorder::events() const {
    return page_->events.load(relaxed);
}

void FlightRecorder::set_watched(double moved, double now) {
    page_->moved.store(moved, relaxed);
    page_->watched.store(now, relaxed);
}

}  // namespace lockstep::cluster
