// Streams as queues. Nothing runs when it is issued; whoever waits works the queues off, in an order that is drawn from
// the seed and keeps only what CUDA keeps: the order within a stream, events, and the legacy default stream's ties to
// the streams that are not cudaStreamNonBlocking.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulation/emulation.hpp"

struct CUgraph_st;

namespace lockstep::emulation {

// One recording of an event: done once the work before it is.
struct Recording {
    bool done = false;
    double seconds = 0;
};

struct Operation {
    std::string name;
    std::function<bool()> work;              // returns whether it is done; empty: only waits
    std::shared_ptr<Recording> records;      // is done with this operation
    std::shared_ptr<const Recording> after;  // runs once this is done,
    std::vector<std::pair<std::shared_ptr<const std::uint64_t>, std::uint64_t>> behind;  // and these counts are reached
    std::uint64_t issue = 0;                                                             // over all streams
};

}  // namespace lockstep::emulation

struct CUstream_st {
    unsigned flags = 0;
    int priority = 0;
    int device = 0;
    bool busy = false;  // its first operation is running
    std::deque<lockstep::emulation::Operation> queue;
    std::uint64_t issued = 0;
    std::shared_ptr<std::uint64_t> done = std::make_shared<std::uint64_t>(0);

    CUgraph_st* capture = nullptr;      // what is being recorded, of all streams that take part
    std::vector<std::size_t> frontier;  // the nodes that the next one comes after
};

namespace lockstep::emulation {

// One lock for all of the device; held while a kernel runs.
std::recursive_mutex& device_lock();

cudaStream_t create_stream(unsigned flags, int priority, int device);
void destroy_stream(cudaStream_t stream);  // its work is still carried out
bool is_stream(cudaStream_t stream);
// The stream itself, or the current device's default stream.
CUstream_st& resolve(cudaStream_t stream);

void issue(CUstream_st& stream, Operation operation);
// Works queues off until done() is true. Throws what an operation throws, after which all queues are empty.
void work_until(const std::function<bool()>& done);
void work_until_idle(const CUstream_st& stream);
void work_until_all_idle(int device);
void work_once();  // one operation, if any can run

bool idle(const CUstream_st& stream);

}  // namespace lockstep::emulation
