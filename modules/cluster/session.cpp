#include "cluster/session.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/whole_file.hpp"
#include "cluster/flight_recorder.hpp"
#include "cluster/mpi_check.hpp"
#include "cluster/mpi_host_group.hpp"

namespace lockstep::cluster {
namespace {

// How long a failed rank waits for the others to fail too before it aborts them.
constexpr double patience_seconds = 2;
// The same for a rank that is done.
constexpr double end_patience_seconds = 600;
// The launcher ends an aborting process within this time, or it ends itself.
constexpr unsigned abort_patience_seconds = 10;

std::vector<std::string> split_texts(const std::vector<char>& all, std::size_t width) {
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < all.size(); at += width)
        texts.emplace_back(all.data() + at, strnlen(all.data() + at, width));
    return texts;
}

volatile std::sig_atomic_t agreed_code = 0;
extern "C" void leave_as_agreed(int) {
    std::_Exit(agreed_code);
}

RankPlace find_place(int rank, int size) {
    constexpr std::size_t width = 256;
    std::array<char, width> host{};
    std::strncpy(host.data(), host_name().c_str(), width - 1);
    std::vector<char> hosts(width * static_cast<std::size_t>(size));
    LOCKSTEP_MPI(MPI_Allgather, host.data(), width, MPI_BYTE, hosts.data(), width, MPI_BYTE, MPI_COMM_WORLD);
    return place_among(split_texts(hosts, width), rank);
}

// One rank per node discovers the hardware and passes it on: many at once are slow on a large node.
Topology find_topology(const RankPlace& place, int rank) {
    MPI_Comm node = MPI_COMM_NULL;
    LOCKSTEP_MPI(MPI_Comm_split, MPI_COMM_WORLD, place.node, rank, &node);
    std::optional<Topology> own;
    std::string xml;
    if (place.local_rank == 0) {
        own.emplace(Topology::live());
        if (place.local_ranks > 1) xml = own->to_xml();
    }
    std::uint64_t length = xml.size();
    LOCKSTEP_MPI(MPI_Bcast, &length, 1, MPI_UINT64_T, 0, node);
    xml.resize(length);
    LOCKSTEP_MPI(MPI_Bcast, xml.data(), static_cast<int>(length), MPI_CHAR, 0, node);
    LOCKSTEP_MPI(MPI_Comm_free, &node);
    return own ? std::move(*own) : Topology::shared(xml);
}

}  // namespace

std::string mpi_library() {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    LOCKSTEP_MPI(MPI_Get_library_version, text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    return text;
}

void abort_all_ranks(ExitCode code) {
    alarm(abort_patience_seconds);
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
    std::_Exit(static_cast<int>(code));
}

Session::Session(int* argc, char*** argv) {
    int provided = 0;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        throw fault_error("MPI_Init failed; was the program started with this MPI's mpirun?");
    if (provided < MPI_THREAD_FUNNELED) throw fault_error("this MPI does not allow threads (MPI_THREAD_FUNNELED)");
    LOCKSTEP_MPI(MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    log::set_rank(rank());
    try {
        place_ = find_place(rank(), size());
        topology_ = std::make_shared<const Topology>(find_topology(place_, rank()));
        allowed_ = topology_->process_binding();
    } catch (const Error& error) {
        log::error("{}", error.what());
        MPI_Abort(MPI_COMM_WORLD, static_cast<int>(error.code()));
    }
}

Session::~Session() {
    if (finished_) {
        // All ranks are done. Some MPIs on some networks hang in MPI_Finalize.
        constexpr unsigned patience = 60;  // seconds
        std::signal(SIGALRM, leave_as_agreed);
        alarm(patience);
        MPI_Finalize();
        alarm(0);
    } else {
        MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::fault));
    }
}

int Session::rank() const {
    int rank = 0;
    LOCKSTEP_MPI(MPI_Comm_rank, MPI_COMM_WORLD, &rank);
    return rank;
}

int Session::size() const {
    int size = 1;
    LOCKSTEP_MPI(MPI_Comm_size, MPI_COMM_WORLD, &size);
    return size;
}

std::unique_ptr<HostGroup> Session::make_world_group(const std::string& name) const {
    return std::make_unique<MpiHostGroup>(all_ranks(), name);
}

int Session::run(const std::function<int()>& body) {
    MPI_Comm endings = MPI_COMM_NULL;
    LOCKSTEP_MPI(MPI_Comm_dup, MPI_COMM_WORLD, &endings);
    std::array<int, 2> own = {0, -INT_MAX};  // exit code; minus the reporting rank, lost connections after all else
    std::optional<Error> failure;
    try {
        own[0] = body();
    } catch (const Error& error) {
        failure = error;
    } catch (const std::exception& error) {
        failure = fault_error("internal error: {}", error.what());
    }
    if (failure) own = {static_cast<int>(failure->code()), -rank() - (failure->is_connection_error() ? size() : 0)};
    log::status_line("");

    const auto end_alone = [this](const Error& error) {
        flight_recorder().set_stage(FlightStage::failed);
        // The handler writes to a file system that may hang.
        alarm(abort_patience_seconds);
        if (failure_handler_) failure_handler_(error);
        log::error("{} (on rank {} of {}; aborting the others)", error.what(), rank(), size());
        // The launcher closes stderr on the abort: let the message through first.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        abort_all_ranks(error.code());
    };
    std::array<int, 2> all = own;
    const double start = seconds_now();
    try {
        MPI_Request request = MPI_REQUEST_NULL;
        LOCKSTEP_MPI(MPI_Iallreduce, own.data(), all.data(), 2, MPI_INT, MPI_MAX, endings, &request);
        for (int done = 0; !done;) {
            LOCKSTEP_MPI(MPI_Test, &request, &done, MPI_STATUS_IGNORE);
            if (done) break;
            if (failure && seconds_now() - start > patience_seconds) end_alone(*failure);
            if (!failure && seconds_now() - start > end_patience_seconds) {
                log::error("this rank is done, but the others have not finished for {:.0f} s: aborting them",
                           end_patience_seconds);
                abort_all_ranks(ExitCode::watchdog);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    } catch (const Error& error) {
        // Others are gone. Whoever knows why, such as the witness of their node, speaks first.
        while (seconds_now() - start < patience_seconds) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        end_alone(failure ? *failure : error);
    }
    if (failure && all[1] == own[1]) {
        if (failure_handler_) failure_handler_(*failure);
        log::set_rank(0);  // the message is for the run, not this rank
        log::error("{}", failure->what());
    }
    finished_ = true;
    agreed_code = all[0];
    return all[0];
}

}  // namespace lockstep::cluster
