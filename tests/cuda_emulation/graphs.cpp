#include "cuda_emulation/graphs.hpp"

#include <algorithm>
#include <set>
#include <thread>

#include "cuda_emulation/block.hpp"

namespace lockstep::emulation {

namespace {

// As cudaStreamCaptureMode has them.
constexpr int of_all_threads = 0, of_one_thread = 1;

std::vector<CUgraph_st*>& captures() {  // under way
    static std::vector<CUgraph_st*> captures;
    return captures;
}

void merge(std::vector<std::size_t>& into, const std::vector<std::size_t>& nodes) {
    into.insert(into.end(), nodes.begin(), nodes.end());
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

void record_node(CUstream_st& stream, std::string name, std::function<bool()> work) {
    CUgraph_st& graph = *stream.capture;
    graph.nodes.push_back({std::move(name), std::move(work), stream.frontier});
    stream.frontier = {graph.nodes.size() - 1};
}

void join_capture(CUstream_st& stream, CUgraph_st& graph, const std::vector<std::size_t>& frontier) {
    if (stream.capture == nullptr) {
        stream.capture = &graph;
        stream.frontier.clear();
        graph.streams.push_back(&stream);
    }
    merge(stream.frontier, frontier);
}

CUgraph_st* find_capture(std::uint64_t id) {
    for (CUgraph_st* graph : captures())
        if (graph->id == id) return graph;
    return nullptr;
}

bool forbidden_by_capture() {
    bool forbidden = false;
    for (CUgraph_st* graph : captures())
        if (graph->mode == of_all_threads ||
            (graph->mode == of_one_thread && graph->thread == std::this_thread::get_id()))
            forbidden = graph->invalid = true;
    return forbidden;
}

void begin_capture(CUstream_st& stream, int mode) {
    auto* graph = new CUgraph_st;  // the caller's, from cudaStreamEndCapture on
    static std::uint64_t number = 0;
    graph->id = ++number;
    graph->mode = mode;
    graph->thread = std::this_thread::get_id();
    graph->origin = &stream;
    join_capture(stream, *graph, {});
    captures().push_back(graph);
}

bool is_joined(const CUgraph_st& graph) {
    std::set<std::size_t> before(graph.origin->frontier.begin(), graph.origin->frontier.end());
    for (std::size_t i = graph.nodes.size(); i-- > 0;)
        if (before.count(i)) before.insert(graph.nodes[i].after.begin(), graph.nodes[i].after.end());
    return before.size() == graph.nodes.size();
}

void end_capture(CUgraph_st& graph) {
    for (CUstream_st* stream : graph.streams) {
        stream->capture = nullptr;
        stream->frontier.clear();
    }
    captures().erase(std::find(captures().begin(), captures().end(), &graph));
}

void run_graph(const std::vector<CUgraph_st::Node>& nodes) {
    std::vector<char> done(nodes.size(), 0);
    for (std::size_t left = nodes.size(); left > 0; --left) {
        std::vector<std::size_t> ready;
        for (std::size_t i = 0; i < nodes.size(); ++i)
            if (!done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](auto j) { return done[j]; }))
                ready.push_back(i);
        const std::size_t chosen = ready[seed() == 0 ? 0 : draw() % ready.size()];
        while (nodes[chosen].work && !nodes[chosen].work()) std::this_thread::yield();
        done[chosen] = 1;
    }
}

}  // namespace lockstep::emulation
