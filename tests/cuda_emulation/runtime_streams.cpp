// The runtime API: streams, events, graphs.
#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/graphs.hpp"
#include "cuda_emulation/kernels.hpp"
#include "cuda_emulation/runtime_state.hpp"

using namespace lockstep::emulation;

struct CUevent_st {
    unsigned flags = 0;
    std::shared_ptr<Recording> last;  // nullptr: never recorded
    // Where it was recorded last, if that is a capture.
    std::uint64_t capture = 0;
    std::vector<std::size_t> frontier;
};

namespace {

std::vector<std::unique_ptr<CUevent_st>>& events() {
    static std::vector<std::unique_ptr<CUevent_st>> events;
    return events;
}

bool is_event(cudaEvent_t event) {
    return std::any_of(events().begin(), events().end(), [&](const auto& e) { return e.get() == event; });
}

bool is_done(const CUevent_st& event) {
    return !event.last || event.last->done;
}

// Waiting for a stream that is being captured ends the capture, whatever its mode.
bool invalidate_capture(const CUstream_st& stream) {
    if (stream.capture == nullptr) return false;
    stream.capture->invalid = true;
    return true;
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(nullptr)) return returned(cudaErrorNoDevice);
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return returned(cudaErrorInvalidValue);
    *stream = create_stream(flags, std::clamp(priority, -5, 0), current_device());
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    *priority = resolve(stream).priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (stream == nullptr || !is_stream(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (invalidate_capture(*stream)) return returned(cudaErrorStreamCaptureUnsupported);
    destroy_stream(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (invalidate_capture(resolve(stream)) || forbidden_by_capture())
        return returned(cudaErrorStreamCaptureUnsupported);
    work_until_idle(resolve(stream));
    return returned(take_kernel_failure());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (invalidate_capture(resolve(stream)) || forbidden_by_capture())
        return returned(cudaErrorStreamCaptureUnsupported);
    work_once();
    return returned(idle(resolve(stream)) ? take_kernel_failure() : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
    const std::lock_guard lock(device_lock());
    if (!is_valid(nullptr)) return returned(cudaErrorNoDevice);
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureUnsupported);
    work_until_all_idle(current_device());
    return returned(take_kernel_failure());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream) || !is_event(event)) return returned(cudaErrorInvalidResourceHandle);
    CUstream_st& waiting = resolve(stream);
    if (event->capture != 0) {
        CUgraph_st* graph = find_capture(event->capture);
        if (graph == nullptr) return returned(cudaErrorCapturedEvent);
        if (waiting.capture != nullptr && waiting.capture != graph) {
            graph->invalid = waiting.capture->invalid = true;
            return returned(cudaErrorStreamCaptureMerge);
        }
        join_capture(waiting, *graph, event->frontier);
        return cudaSuccess;
    }
    if (waiting.capture != nullptr) {
        invalidate_capture(waiting);
        return returned(cudaErrorStreamCaptureIsolation);
    }
    if (!is_done(*event)) issue(waiting, {"wait", {}, nullptr, event->last, {}, 0});
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(nullptr)) return returned(cudaErrorNoDevice);
    events().push_back(std::make_unique<CUevent_st>());
    *event = events().back().get();
    (*event)->flags = flags;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream) || !is_event(event)) return returned(cudaErrorInvalidResourceHandle);
    CUstream_st& where = resolve(stream);
    if (where.capture != nullptr) {
        event->capture = where.capture->id;
        event->frontier = where.frontier;
        return cudaSuccess;
    }
    event->capture = 0;
    event->last = std::make_shared<Recording>();
    issue(where, {"record", {}, event->last, nullptr, {}, 0});
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const std::lock_guard lock(device_lock());
    if (!is_event(event)) return returned(cudaErrorInvalidResourceHandle);
    if (event->capture != 0) return returned(cudaErrorCapturedEvent);
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureUnsupported);
    const std::shared_ptr<const Recording> recording = event->last;
    work_until([&] { return !recording || recording->done; });
    return returned(take_kernel_failure());
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const std::lock_guard lock(device_lock());
    if (!is_event(event)) return returned(cudaErrorInvalidResourceHandle);
    if (event->capture != 0) return returned(cudaErrorCapturedEvent);
    if (forbidden_by_capture()) return returned(cudaErrorStreamCaptureUnsupported);
    const std::shared_ptr<const Recording> recording = event->last;
    work_once();
    return returned(!recording || recording->done ? take_kernel_failure() : cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const std::lock_guard lock(device_lock());
    if (!is_event(start) || !is_event(end) || !start->last || !end->last ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
        return returned(cudaErrorInvalidResourceHandle);
    if (!start->last->done || !end->last->done) return returned(cudaErrorNotReady);
    *milliseconds = static_cast<float>(1e3 * (end->last->seconds - start->last->seconds));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::lock_guard lock(device_lock());
    if (!is_event(event)) return returned(cudaErrorInvalidResourceHandle);
    events().erase(std::find_if(events().begin(), events().end(), [&](const auto& e) { return e.get() == event; }));
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    enqueue(stream, "host function", [=] { function(data); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (stream == nullptr) return returned(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != nullptr) return returned(cudaErrorInvalidValue);
    begin_capture(*stream, mode);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (stream == nullptr || stream->capture == nullptr) return returned(cudaErrorInvalidValue);
    std::unique_ptr<CUgraph_st> captured(stream->capture);
    *graph = nullptr;
    const bool matched = captured->origin == stream, joined = is_joined(*captured);
    end_capture(*captured);
    if (captured->invalid) return returned(cudaErrorStreamCaptureInvalidated);
    if (!matched) return returned(cudaErrorStreamCaptureUnmatched);
    if (!joined) return returned(cudaErrorStreamCaptureUnjoined);
    *graph = captured.release();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    const CUgraph_st* capture = resolve(stream).capture;
    *status = cudaStreamCaptureStatusNone;
    if (capture != nullptr)
        *status = capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    if (graph == nullptr || nodes != nullptr) return returned(cudaErrorInvalidValue);
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    if (graph == nullptr) return returned(cudaErrorInvalidValue);
    *executable = new CUgraphExec_st{std::make_shared<const std::vector<CUgraph_st::Node>>(graph->nodes)};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    return returned(executable == nullptr || !is_valid(stream) ? cudaErrorInvalidValue : cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    const std::lock_guard lock(device_lock());
    if (!is_valid(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (executable == nullptr) return returned(cudaErrorInvalidValue);
    if (invalidate_capture(resolve(stream))) return returned(cudaErrorStreamCaptureUnsupported);
    enqueue(stream, "graph", [nodes = executable->nodes] { run_graph(*nodes); });
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    if (executable == nullptr) return returned(cudaErrorInvalidValue);
    delete executable;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (graph == nullptr) return returned(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}
