#include "kernels/cuda/recording.hpp"

#include "base/error.hpp"
#include "device/cuda/check.hpp"

namespace lockstep::kernels::cuda {
namespace {

struct Graph {
    cudaGraph_t graph = nullptr;
    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph() {
        if (graph) static_cast<void>(cudaGraphDestroy(graph));
    }
};

}  // namespace

CudaRecording::CudaRecording(std::shared_ptr<CudaContext> context, const std::function<void()>& issue)
    : context_(std::move(context)) {
    const cudaStream_t stream = context_->compute();
    Graph recorded;
    // Thread-local: other threads may use the GPU meanwhile.
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a stream capture");
    try {
        issue();
    } catch (...) {
        // The capture must end before the stream is usable again; the exception in flight has the reason.
        static_cast<void>(cudaStreamEndCapture(stream, &recorded.graph));
        static_cast<void>(cudaGetLastError());
        throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &recorded.graph), "ending a stream capture");
    check_cuda(cudaGraphInstantiate(&graph_, recorded.graph, 0), "instantiating a CUDA graph");
}

CudaRecording::~CudaRecording() {
    if (graph_) static_cast<void>(cudaGraphExecDestroy(graph_));
}

void CudaRecording::run() {
    check_cuda(cudaGraphLaunch(graph_, context_->compute()), "launching a CUDA graph");
}

bool is_recording(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream, &status), "querying whether a stream is being captured");
    return status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep::kernels::cuda
