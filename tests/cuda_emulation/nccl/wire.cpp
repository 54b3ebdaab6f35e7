#include "cuda_emulation/nccl/wire.hpp"

#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "base/error.hpp"
#include "cluster/mpi_check.hpp"

namespace lockstep::emulation::nccl::wire {
namespace {

struct Posted {
    std::vector<char> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
};

// What is on its way; never destroyed, since MPI may read it until it is finalised.
std::list<Posted>& posted() {
    static auto* list = new std::list<Posted>;
    return *list;
}

int checked_size(std::size_t bytes) {
    if (bytes > INT_MAX)
        throw usage_error("the stand-in for NCCL sends at most 2 GiB in one message, not {} bytes; use smaller buckets",
                          bytes);
    return static_cast<int>(bytes);
}

void keep(std::vector<char> bytes, MPI_Request request) {
    posted().push_back({std::move(bytes), request});
}

void forget_what_arrived() {
    for (auto at = posted().begin(); at != posted().end();) {
        int done = 0;
        LOCKSTEP_MPI(MPI_Test, &at->request, &done, MPI_STATUS_IGNORE);
        at = done ? posted().erase(at) : std::next(at);
    }
}

}  // namespace

bool usable() {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized && !finalized;
}

bool may_call() {
    if (!usable()) return false;
    int provided = 0, main = 0;
    LOCKSTEP_MPI(MPI_Query_thread, &provided);
    LOCKSTEP_MPI(MPI_Is_thread_main, &main);
    return main || provided == MPI_THREAD_MULTIPLE;
}

int rank() {
    int rank = 0;
    if (usable()) LOCKSTEP_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
    return rank;
}

double limit_seconds() {
    const char* text = std::getenv("LOCKSTEP_NCCL_TIMEOUT_SECONDS");
    if (!text) return 20;
    double seconds = 0;
    const char* end = text + std::strlen(text);
    const auto result = std::from_chars(text, end, seconds);
    if (result.ec != std::errc() || result.ptr != end || !(seconds > 0))
        throw usage_error("LOCKSTEP_NCCL_TIMEOUT_SECONDS is '{}'; give a number of seconds above 0", text);
    return seconds;
}

void pause(double waited) {
    if (waited < 0.001)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(std::chrono::microseconds(100));
}

int new_tag() {
    constexpr int first = 16384, count = 16383;  // up to 32766; MPI allows 32767 at least
    static int next = 0;
    next = (next + 1) % count;
    return first + next;
}

void post(int to, int tag, const void* data, std::size_t bytes) {
    forget_what_arrived();
    const auto* first = static_cast<const char*>(data);
    posted().push_back({{first, first + bytes}, MPI_REQUEST_NULL});
    LOCKSTEP_MPI(MPI_Isend, posted().back().bytes.data(), checked_size(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD,
                 &posted().back().request);
}

std::optional<Message> take(int tag) {
    int found = 0;
    MPI_Status status{};
    LOCKSTEP_MPI(MPI_Iprobe, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &found, &status);
    if (!found) return std::nullopt;
    int bytes = 0;
    LOCKSTEP_MPI(MPI_Get_count, &status, MPI_BYTE, &bytes);
    Message message;
    message.from = status.MPI_SOURCE;
    message.bytes.resize(static_cast<std::size_t>(bytes));
    LOCKSTEP_MPI(MPI_Recv, message.bytes.data(), bytes, MPI_BYTE, message.from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return message;
}

void Transfers::send(int to, int tag, const void* data, std::size_t bytes) {
    const auto* first = static_cast<const char*>(data);
    copies_.emplace_back(first, first + bytes);
    sends_.push_back(MPI_REQUEST_NULL);
    LOCKSTEP_MPI(MPI_Isend, copies_.back().data(), checked_size(bytes), MPI_BYTE, to, tag, MPI_COMM_WORLD,
                 &sends_.back());
}

void Transfers::receive(int from, int tag, void* data, std::size_t bytes) {
    receives_.push_back(MPI_REQUEST_NULL);
    LOCKSTEP_MPI(MPI_Irecv, data, checked_size(bytes), MPI_BYTE, from, tag, MPI_COMM_WORLD, &receives_.back());
}

bool Transfers::done() {
    int received = 0, sent = 0;
    LOCKSTEP_MPI(MPI_Testall, static_cast<int>(receives_.size()), receives_.data(), &received, MPI_STATUSES_IGNORE);
    LOCKSTEP_MPI(MPI_Testall, static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE);
    return received && sent;
}

Transfers::~Transfers() {
    // Only after a failure is anything left: receives must not write into memory that its owner may free.
    for (MPI_Request& request : receives_)
        if (request != MPI_REQUEST_NULL && MPI_Cancel(&request) == MPI_SUCCESS) MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (std::size_t index = 0; index < sends_.size(); ++index)
        if (sends_[index] != MPI_REQUEST_NULL) keep(std::move(copies_[index]), sends_[index]);
}

}  // namespace lockstep::emulation::nccl::wire
