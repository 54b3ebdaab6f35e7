// The messages under the stand-in: on MPI_COMM_WORLD, with tags of their own, so that nothing has to be made
// collectively. All of it is called by the thread that initialised MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::emulation::nccl::wire {

constexpr int join_tag = 16380, reply_tag = 16381, announcement_tag = 16382;

bool usable();              // MPI is initialised and not finalised
bool may_call();            // … and this thread may call it
int rank();                 // in MPI_COMM_WORLD; 0 where MPI is not usable
double limit_seconds();     // LOCKSTEP_NCCL_TIMEOUT_SECONDS, 20 where it is not set
void pause(double waited);  // between two looks at what has come

// A tag for what an operation receives: another than that of the 16,383 operations before.
int new_tag();

// Sends a copy of the bytes; returns at once.
void post(int to, int tag, const void* data, std::size_t bytes);

struct Message {
    int from = 0;
    std::vector<char> bytes;
};
std::optional<Message> take(int tag);  // a message of this tag, if one has come

// Receives and sends of an operation that runs. Those not finished when it is destroyed are cancelled.
class Transfers {
  public:
    Transfers() = default;
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;
    ~Transfers();
    void send(int to, int tag, const void* data, std::size_t bytes);  // of a copy
    void receive(int from, int tag, void* data, std::size_t bytes);
    bool done();

  private:
    std::vector<MPI_Request> receives_;
    std::vector<MPI_Request> sends_;
    std::vector<std::vector<char>> copies_;  // copies_[i] is what sends_[i] sends
};

}  // namespace lockstep::emulation::nccl::wire
