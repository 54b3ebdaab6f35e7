// What stream capture records: operations and which of them come before which.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda_emulation/streams.hpp"

struct CUgraph_st {
    struct Node {
        std::string name;
        std::function<bool()> work;
        std::vector<std::size_t> after;
    };
    std::vector<Node> nodes;
    std::uint64_t id = 0;  // of the capture
    int mode = 0;
    std::thread::id thread;  // that began
    CUstream_st* origin = nullptr;
    std::vector<CUstream_st*> streams;  // that take part
    bool invalid = false;               // something that cannot be captured was asked for meanwhile
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<CUgraph_st::Node>> nodes;
};

namespace lockstep::emulation {

// The node comes after all that its stream issued or waited for in this capture.
void record_node(CUstream_st& stream, std::string name, std::function<bool()> work);
void join_capture(CUstream_st& stream, CUgraph_st& graph, const std::vector<std::size_t>& frontier);

// The capture under way with this number; nullptr: it has ended.
CUgraph_st* find_capture(std::uint64_t id);
// Whether a capture under way forbids this thread calls that wait or allocate; it is then invalid.
bool forbidden_by_capture();
void begin_capture(CUstream_st& stream, int mode);
bool is_joined(const CUgraph_st& graph);  // the origin comes after all the others
void end_capture(CUgraph_st& graph);      // its streams run again what is issued

// Runs the nodes, in an order drawn from the seed.
void run_graph(const std::vector<CUgraph_st::Node>& nodes);

}  // namespace lockstep::emulation
