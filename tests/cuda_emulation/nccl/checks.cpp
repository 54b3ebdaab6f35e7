#include "cuda_emulation/nccl/checks.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>

#include "cuda_emulation/devices.hpp"
#include "cuda_emulation/nccl/wire.hpp"

namespace lockstep::emulation::nccl {
namespace {

// In place, as NCCL allows it, or apart; anything else is a race on a GPU.
void check_overlap(const Operation& operation) {
    const Request& request = operation.request;
    if (!operation.input || !operation.output || request.count == 0) return;
    const ncclComm& comm = *operation.comm;
    const auto ranks = static_cast<std::size_t>(comm.size), rank = static_cast<std::size_t>(comm.rank);
    const std::size_t bytes = request.count * element_bytes(request.type);
    const std::size_t read = bytes * (request.kind == Kind::reduce_scatter ? ranks : 1);
    const std::size_t written = bytes * (request.kind == Kind::all_gather ? ranks : 1);
    const auto* input = static_cast<const char*>(operation.input);
    const auto* output = static_cast<const char*>(operation.output);
    const std::less<> before;
    if (!before(input, output + written) || !before(output, input + read)) return;
    const bool in_place = request.kind == Kind::all_gather       ? input == output + rank * bytes
                          : request.kind == Kind::reduce_scatter ? output == input + rank * bytes
                                                                 : input == output;
    if (!in_place)
        throw failure(ncclInvalidUsage, "the buffers of {} overlap, but are not in place as NCCL defines it",
                      describe(request));
}

// Memory that a kernel of this GPU can reach, all of it within one allocation.
void check_memory(const Operation& operation, const void* memory, std::size_t bytes) {
    if (bytes == 0) return;
    const char* begin = nullptr;
    const Allocation* allocation = find_allocation(memory, &begin);
    if (!allocation)
        throw failure(ncclInvalidArgument, "a buffer of {} is host memory that the GPU cannot reach",
                      describe(operation.request));
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(memory) - begin);
    if (offset + bytes > allocation->bytes)
        throw failure(ncclInvalidArgument, "a buffer of {} ends {} bytes after its allocation",
                      describe(operation.request), offset + bytes - allocation->bytes);
    if (allocation->where == Where::device && allocation->device != operation.comm->device)
        throw failure(ncclInvalidArgument, "a buffer of {} is on GPU {}, the communicator {} on GPU {}",
                      describe(operation.request), allocation->device, operation.comm->name, operation.comm->device);
}

}  // namespace

void check_present() {
    const char* absent = std::getenv("LOCKSTEP_EMULATED_NCCL_ABSENT");
    if (absent && std::strcmp(absent, "1") == 0)
        throw failure(ncclSystemError, "NCCL cannot be used: LOCKSTEP_EMULATED_NCCL_ABSENT is 1");
}

void check_handle(const ncclComm* comm) {
    if (!comm) throw failure(ncclInvalidArgument, "the NCCL communicator is null");
    if (!is_handle(comm)) throw failure(ncclInvalidArgument, "the NCCL communicator was destroyed or aborted");
}

void check_usable(const ncclComm* comm) {
    check_handle(comm);
    if (comm->error != ncclSuccess) throw Failure{static_cast<ncclResult_t>(comm->error.load()), comm->error_text()};
    if (!comm->ready || !comm->delayed.empty())
        throw failure(ncclInvalidArgument,
                      "the NCCL communicator {} does not block, and its last call is still in progress; ask "
                      "ncclCommGetAsyncError until it says ncclSuccess",
                      comm->name);
    if (comm->size > 1 && !wire::may_call())
        throw failure(ncclSystemError, "NCCL's stand-in needs MPI, called by the thread that initialised it");
}

void check_config(const ncclConfig_t* config) {
    if (config && (config->magic != 0xcafebeef || config->size != sizeof(ncclConfig_t)))
        throw failure(ncclInvalidArgument, "the NCCL configuration was not made with NCCL_CONFIG_INITIALIZER");
}

void check_request(const Request& request, const ncclComm& comm) {
    if (element_bytes(request.type) == 0) throw failure(ncclInvalidArgument, "{} is no NCCL data type", request.type);
    if (request.operation < 0 || request.operation >= ncclNumOps)
        throw failure(ncclInvalidArgument, "{} is no NCCL reduction", request.operation);
    if (request.root < 0 || request.root >= comm.size)
        throw failure(ncclInvalidArgument, "{}: the communicator {} has {} ranks", describe(request), comm.name,
                      comm.size);
}

void check_stream(const Request& request, cudaStream_t stream) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess)
        throw failure(ncclUnhandledCudaError, "{} on a stream that does not exist", describe(request));
    if (capture != cudaStreamCaptureStatusNone)
        throw failure(ncclInvalidUsage, "{} on a stream that is being captured; communication stays outside graphs",
                      describe(request));
}

void check_buffers(const Operation& operation) {
    const Request& request = operation.request;
    const bool root = request.root == operation.comm->rank;
    const bool reads = request.kind != Kind::receive && (request.kind != Kind::broadcast || root);
    const bool writes = request.kind != Kind::send && (request.kind != Kind::reduce || root);
    if (request.count > 0 && ((reads && !operation.input) || (writes && !operation.output)))
        throw failure(ncclInvalidArgument, "a buffer of {} is null", describe(request));
    const std::size_t bytes = request.count * element_bytes(request.type);
    const auto ranks = static_cast<std::size_t>(operation.comm->size);
    if (reads) check_memory(operation, operation.input, bytes * (request.kind == Kind::reduce_scatter ? ranks : 1));
    if (writes) check_memory(operation, operation.output, bytes * (request.kind == Kind::all_gather ? ranks : 1));
    if (reads && writes) check_overlap(operation);
}

}  // namespace lockstep::emulation::nccl
