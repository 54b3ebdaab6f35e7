// Who called what, in which order. Every call is announced to its partners when it is made, so that calls that do not
// fit are known before anything waits for them:
// - any two ranks must make the same collective calls, in the same order over all the communicators they share;
// - the k-th send of one rank to another on a communicator fits the k-th receive there, with the same number of
//   collective calls of that communicator before both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_emulation/nccl/communicator.hpp"
#include "cuda_emulation/nccl/operation.hpp"

namespace lockstep::emulation::nccl {

struct Partner {
    int rank = 0;  // in the communicator
    bool called = false;
    bool here = false;  // its stream has come to the operation
    int tag = 0;        // of what it receives in the operation; known once it is here
};

struct Operation {
    Request request;
    const void* input = nullptr;
    void* output = nullptr;
    ncclComm* comm = nullptr;
    std::uint64_t call = 0;   // of this process, over all communicators; from 1
    std::uint64_t index = 0;  // of its kind on this communicator (collective; send to or receive from the peer)
    // Collective calls of this communicator before the call's group and at its end.
    std::uint64_t collectives_before = 0, collectives_after = 0;
    std::vector<Partner> partners;
};

namespace ledger {

// Announces the calls of one group.
void announce(const std::vector<std::shared_ptr<Operation>>& group);
// Tells the partners that this rank's stream has come to the operation, and the tag of what it receives.
void announce_presence(const Operation& operation, int tag);
// Takes in what the partners announced, and tells of communicators that were aborted. Sets the asynchronous error of
// communicators whose calls do not fit.
void take_announcements();
// Brings the operation's partners up to date; sets its communicator's error where their call does not fit.
void update(Operation& operation);
// Tells the members that this rank has left the communicator, and forgets its calls.
void leave(ncclComm& comm, Departure how);
// For errors: the last call this rank knows of that `rank` made to it, on any communicator.
std::string last_call_of(const ncclComm& comm, int rank);

}  // namespace ledger
}  // namespace lockstep::emulation::nccl
