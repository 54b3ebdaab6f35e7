// Device scratch memory of the CUDA backend's operations; grown on demand and kept, since recordings use its addresses.
#pragma once

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/recording.hpp"

namespace lockstep::kernels::cuda {

class CudaBackend::Scratch {
  public:
    explicit Scratch(CudaContext& context) : context_(context) { grow(first); }

    void* get(std::size_t bytes) {
        if (bytes > blocks_.back().capacity()) grow(bytes);
        return blocks_.back().data();
    }

  private:
    // Enough for most models' partial sums; grows by at least half, so that all blocks together are at most three times
    // the largest request.
    static constexpr std::size_t first = std::size_t{16} << 20, step = std::size_t{2} << 20;

    void grow(std::size_t bytes) {
        if (is_recording(context_.compute()))
            throw fault_error(
                "an operation being captured into a CUDA graph needs {} of workspace for the first time; it must run "
                "once before it is captured",
                human_bytes(static_cast<double>(bytes)));
        const std::size_t last = blocks_.empty() ? 0 : blocks_.back().capacity();
        const std::size_t wanted = std::max(bytes, last + last / 2);
        blocks_.emplace_back(context_.device(), (wanted + step - 1) / step * step, "the kernel workspace");
    }

    CudaContext& context_;
    std::vector<Arena> blocks_;
};

}  // namespace lockstep::kernels::cuda
