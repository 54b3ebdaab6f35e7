// The stand-in for NCCL (include/nccl.h). A call announces itself to its partners at once and queues its work on the
// stream; the work runs when the host drains the stream: it meets its partners, then moves data through MPI, on host
// memory, with reductions in rank order.
//
// What hangs or corrupts with the real library is an error here:
// - two ranks on one GPU: ncclInvalidUsage when the communicator is made;
// - ranks whose calls differ, or come in another order over the communicators they share (ledger.hpp); a rank that does
//   not come within LOCKSTEP_NCCL_TIMEOUT_SECONDS (20): the asynchronous error is set, and the drain throws;
// - buffers that overlap but are not in place as NCCL defines it, a split with calls still queued, a call on a stream
//   that is being captured, on a communicator that was destroyed, or on one that does not block before it is ready:
//   an error code at the call. ncclGetLastError says the sentence.
// Streams here run only when the host waits for one of them; while an operation waits for its partners the others go
// on. What a GPU does by itself meanwhile does not happen: a host that waits outside of CUDA and NCCL for a rank that
// needs work queued here is reported as a rank that does not come.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_emulation/nccl/exchange.hpp"
#include "nccl.h"

enum class Departure : std::uint8_t { none, destroyed, aborted };

// Kept until the process ends, so that a handle used after its end is an error and not a crash.
struct ncclComm {
    std::uint64_t id = 0;
    std::string name;
    int size = 0;
    int rank = 0;
    int device = 0;
    std::vector<int> members;           // world ranks
    std::vector<Departure> departures;  // of the members
    bool blocking = true;

    std::uint64_t collectives = 0;               // issued so far
    std::vector<std::uint64_t> sends, receives;  // issued so far, to and from each member
    std::uint64_t splits = 0;
    int unfinished = 0;  // units queued and not yet run

    // Of a communicator that does not block.
    std::unique_ptr<lockstep::emulation::nccl::Exchange> joining;
    std::vector<std::function<void()>> delayed;  // what it queues once its owner has asked for its state

    std::atomic<bool> ready{false};     // calls are allowed
    std::atomic<bool> closed{false};    // destroyed or aborted: the handle is not valid any more
    std::atomic<bool> aborted{false};   // its work ends without a word
    std::atomic<bool> departed{false};  // the members have been told of its end
    std::atomic<int> error{ncclSuccess};

    std::string error_text() const;
    // Keeps the first error.
    void set_error(ncclResult_t result, const std::string& sentence);

  private:
    mutable std::mutex mutex_;
    std::string error_text_;
};

namespace lockstep::emulation::nccl {

ncclComm* make_communicator(const ncclConfig_t* config);
const std::vector<std::unique_ptr<ncclComm>>& communicators();
bool is_handle(const ncclComm* comm);

// Fills in the communicator from what its members said of themselves; an error where two share a GPU.
void complete(ncclComm& comm, const std::vector<Member>& members, std::uint64_t id, const std::string& name);

}  // namespace lockstep::emulation::nccl
