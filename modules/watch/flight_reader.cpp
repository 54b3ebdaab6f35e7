#include "watch/flight_reader.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "cluster/flight_page.hpp"

namespace lockstep::watch {
namespace {

constexpr auto acquire = std::memory_order_acquire;

template <std::size_t size>
std::string text_of(const std::array<char, size>& from) {
    return {from.data(), strnlen(from.data(), size)};
}

// Another process's page, mapped read-only.
class MappedPage {
  public:
    explicit MappedPage(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) return;
        struct stat about {};
        if (::fstat(file, &about) == 0 && about.st_size == static_cast<off_t>(sizeof(cluster::FlightPage))) {
            void* memory = ::mmap(nullptr, sizeof(cluster::FlightPage), PROT_READ, MAP_SHARED, file, 0);
            if (memory != MAP_FAILED) page_ = static_cast<const cluster::FlightPage*>(memory);
        }
        ::close(file);
        if (page_ &&
            (page_->magic != cluster::FlightPage::expected_magic || page_->bytes != sizeof(cluster::FlightPage)))
            release();
    }
    ~MappedPage() { release(); }
    MappedPage(const MappedPage&) = delete;
    MappedPage& operator=(const MappedPage&) = delete;
    const cluster::FlightPage* get() const { return page_; }

  private:
    void release() {
        if (page_) ::munmap(const_cast<cluster::FlightPage*>(page_), sizeof(cluster::FlightPage));
        page_ = nullptr;
    }
    const cluster::FlightPage* page_ = nullptr;
};

// Empty if overwritten meanwhile.
std::optional<FlightOperation> operation_of(const cluster::FlightPage& page, std::uint64_t sequence, double now) {
    if (sequence == 0) return std::nullopt;
    const cluster::FlightPage::Operation& from = page.operation[(sequence - 1) % cluster::FlightPage::kept_operations];
    if (from.sequence.load(acquire) != sequence) return std::nullopt;
    FlightOperation operation;
    operation.number = from.number;
    operation.bytes = from.bytes;
    operation.peer = from.peer;
    operation.on_device = from.on_device != 0;
    operation.kind = static_cast<cluster::FlightKind>(
        std::clamp(from.kind, 0, static_cast<std::int32_t>(cluster::FlightKind::receive)));
    const auto group = static_cast<std::size_t>(std::max(0, from.group));
    if (group < cluster::FlightPage::most_groups) operation.group = text_of(page.group[group].name);
    const double done = from.done.load(acquire);
    operation.done = done > 0;
    operation.begun_ago = std::max(0.0, now - from.begun);
    operation.seconds = std::max(0.0, (operation.done ? done : now) - from.begun);
    if (from.sequence.load(acquire) != sequence) return std::nullopt;
    return operation;
}

}  // namespace

std::optional<FlightState> read_flight(const std::string& path, std::size_t most_operations) {
    const MappedPage mapped(path);
    if (!mapped.get()) return std::nullopt;
    const cluster::FlightPage& page = *mapped.get();
    const double now = seconds_now();
    FlightState state;
    state.rank = page.rank;
    state.ranks = page.ranks;
    state.process = page.process;
    state.host = text_of(page.host);
    state.stage = static_cast<cluster::FlightStage>(
        std::clamp(page.stage.load(acquire), 0, static_cast<std::int32_t>(cluster::FlightStage::signalled)));
    state.step = page.step.load(acquire);
    const int region = page.region.load(acquire);
    if (region >= 0 && static_cast<std::size_t>(region) < cluster::FlightPage::most_regions)
        state.region = text_of(page.region_name[static_cast<std::size_t>(region)]);
    state.quiet_seconds = std::max(0.0, now - page.moved.load(acquire));
    state.unwatched_seconds = std::max(0.0, now - page.watched.load(acquire));
    state.signal = page.signal.load(acquire);
    state.waiting = operation_of(page, page.waiting.load(acquire), now);
    const auto groups = std::min<std::size_t>(page.groups.load(acquire), cluster::FlightPage::most_groups);
    for (std::size_t i = 0; i < groups; ++i) {
        const cluster::FlightPage::Group& group = page.group[i];
        state.groups.push_back({text_of(group.name), text_of(group.members), group.collectives.load(acquire),
                                group.messages.load(acquire)});
    }
    const std::uint64_t newest = page.operations.load(acquire);
    const std::uint64_t count =
        std::min<std::uint64_t>({newest, most_operations, cluster::FlightPage::kept_operations});
    for (std::uint64_t before = count; before-- > 0;)
        if (auto operation = operation_of(page, newest - before, now))
            state.operations.push_back(std::move(*operation));
    return state;
}

bool flight_alive(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool locked = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(file);
    return locked;
}

}  // namespace lockstep::watch
