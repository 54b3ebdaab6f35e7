#include "device/cuda/context.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "device/available_memory.hpp"
#include "device/cuda/check.hpp"

namespace lockstep {
namespace {

constexpr int oldest_capability = 8;                                  // bf16 and cp.async need compute capability 8.0
constexpr std::size_t shared_memory_wanted = std::size_t{163} << 10;  // per block: the A100's
constexpr std::size_t event_count = 16;

CudaStream make_stream(int index, bool urgent) {
    check_cuda(cudaSetDevice(index), "selecting the GPU");
    int least = 0, greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "querying stream priorities");
    return CudaStream(urgent ? greatest : least);
}

cudaDeviceProp checked_properties(int index) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index), "querying the GPU's properties");
    if (properties.major < oldest_capability)
        throw usage_error(
            "GPU {} ({}) has compute capability {}.{}; the CUDA backend needs 8.0 (A100) or newer: use "
            "--device cpu or another GPU",
            index, properties.name, properties.major, properties.minor);
    if (properties.sharedMemPerBlockOptin < shared_memory_wanted)
        throw usage_error(
            "GPU {} ({}) has {} of shared memory per block, but the CUDA backend needs {}, as an A100 or newer "
            "data-centre GPU has: use --device cpu or another GPU",
            index, properties.name, human_bytes(static_cast<double>(properties.sharedMemPerBlockOptin)),
            human_bytes(static_cast<double>(shared_memory_wanted)));
    return properties;
}

}  // namespace

class CudaContext::Memory final : public MemorySource {
  public:
    explicit Memory(int index) : index_(index) {}

    void* allocate(std::size_t bytes) override {
        check_cuda(cudaSetDevice(index_), "selecting the GPU");  // another thread's may be another one
        void* memory = nullptr;
        const cudaError_t result = cudaMalloc(&memory, bytes);
        if (result == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            return nullptr;
        }
        check_cuda(result, "allocating memory");
        // On the legacy default stream, which the context's streams do not synchronize with: so the host waits.
        check_cuda(cudaMemset(memory, 0, bytes), "clearing memory");
        check_cuda(cudaStreamSynchronize(nullptr), "clearing memory");
        return memory;
    }
    void release(void* memory) override {
        static_cast<void>(cudaFree(memory));  // the driver may be gone at exit
    }
    std::string free_text() const override {
        std::size_t free = 0, total = 0;
        check_cuda(cudaMemGetInfo(&free, &total), "querying free memory");
        return fmt::format("{} of {} free", human_bytes(static_cast<double>(free)),
                           human_bytes(static_cast<double>(total)));
    }

  private:
    int index_;
};

class CudaContext::Pinned final : public MemorySource {
  public:
    explicit Pinned(int index) : index_(index) {}

    void* allocate(std::size_t bytes) override {
        check_cuda(cudaSetDevice(index_), "selecting the GPU");
        void* memory = nullptr;
        const cudaError_t result = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
        if (result == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            return nullptr;
        }
        check_cuda(result, "allocating pinned host memory");
        std::memset(memory, 0, bytes);
        return memory;
    }
    void release(void* memory) override {
        static_cast<void>(cudaFreeHost(memory));  // the driver may be gone at exit
    }
    std::string free_text() const override {
        return fmt::format("{} available", human_bytes(static_cast<double>(available_memory())));
    }

  private:
    int index_;
};

// Ring of pinned buffers. Small transfers share a buffer.
class CudaContext::Staging {
  public:
    explicit Staging(cudaStream_t stream) : stream_(stream) {}

    void upload(void* destination, const void* source, std::size_t bytes) {
        auto* to = static_cast<char*>(destination);
        const auto* from = static_cast<const char*>(source);
        while (bytes > 0) {
            if (used_ == buffer_bytes) next();
            const std::size_t count = std::min(bytes, buffer_bytes - used_);
            char* const place = buffers_[current_].memory.data() + used_;
            std::memcpy(place, from, count);
            check_cuda(cudaMemcpyAsync(to, place, count, cudaMemcpyHostToDevice, stream_), "copying to the GPU");
            used_ = std::min(buffer_bytes, (used_ + count + alignment - 1) / alignment * alignment);
            to += count;
            from += count;
            bytes -= count;
        }
    }

    // The host copies out of one buffer while the GPU fills the others.
    void download(void* destination, const void* source, std::size_t bytes) {
        auto* to = static_cast<char*>(destination);
        const auto* from = static_cast<const char*>(source);
        const std::size_t pieces = (bytes + buffer_bytes - 1) / buffer_bytes;
        const auto size_of = [&](std::size_t piece) { return std::min(buffer_bytes, bytes - piece * buffer_bytes); };
        std::array<std::size_t, buffer_count> place{};  // the buffer of each piece
        for (std::size_t issued = 0, done = 0; done < pieces;) {
            if (issued < pieces && issued - done < buffer_count) {
                next();
                place[issued % buffer_count] = current_;
                check_cuda(cudaMemcpyAsync(buffers_[current_].memory.data(), from + issued * buffer_bytes,
                                           size_of(issued), cudaMemcpyDeviceToHost, stream_),
                           "copying from the GPU");
                buffers_[current_].free.record(stream_);
                used_ = buffer_bytes;
                ++issued;
            } else {
                Buffer& buffer = buffers_[place[done % buffer_count]];
                buffer.free.wait();
                std::memcpy(to + done * buffer_bytes, buffer.memory.data(), size_of(done));
                ++done;
            }
        }
    }

  private:
    static constexpr std::size_t buffer_bytes = std::size_t{4} << 20, buffer_count = 4, alignment = 64;
    struct Buffer {
        PinnedMemory memory{buffer_bytes};
        CudaEvent free;  // the GPU is done with it
    };

    void next() {
        buffers_[current_].free.record(stream_);
        current_ = (current_ + 1) % buffer_count;
        buffers_[current_].free.wait();
        used_ = 0;
    }

    cudaStream_t stream_;
    std::array<Buffer, buffer_count> buffers_;
    std::size_t current_ = 0, used_ = 0;
};

CudaContext::CudaContext(int index)
    : index_(index),
      properties_(checked_properties(index)),
      compute_(make_stream(index, false)),
      communication_(make_stream(index, true)),
      memory_(std::make_unique<Memory>(index)),
      pinned_(std::make_unique<Pinned>(index)),
      staging_(std::make_unique<Staging>(compute())),
      events_(event_count) {}

CudaContext::~CudaContext() {
    // Memory released next may still be in use. Errors were reported before, or will be by whoever waits for a result.
    static_cast<void>(cudaStreamSynchronize(compute()));
    static_cast<void>(cudaStreamSynchronize(communication()));
}

Device CudaContext::device() const {
    return {DeviceKind::cuda, index_, memory_.get()};
}

Device CudaContext::pinned() const {
    return {DeviceKind::cpu, index_, pinned_.get()};
}

CudaStream CudaContext::make_communication_stream() const {
    return make_stream(index_, true);
}

void CudaContext::synchronize() {
    wait_for(compute(), "waiting for issued operations");
    wait_for(communication(), "waiting for issued communication");
}

void CudaContext::order(cudaStream_t earlier, cudaStream_t later) {
    CudaEvent& event = events_[next_event_];
    next_event_ = (next_event_ + 1) % events_.size();
    event.record(earlier);
    check_cuda(cudaStreamWaitEvent(later, event.get(), 0), "ordering two streams");
}

void CudaContext::upload(void* destination, const void* source, std::size_t bytes) {
    staging_->upload(destination, source, bytes);
}

void CudaContext::download(void* destination, const void* source, std::size_t bytes) {
    staging_->download(destination, source, bytes);
}

}  // namespace lockstep
