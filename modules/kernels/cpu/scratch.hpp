// Scratch memory of the CPU backend's operations; grown on demand and reused.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "device/parallel.hpp"
#include "kernels/cpu/cpu_backend.hpp"

namespace lockstep::kernels::cpu {

class CpuBackend::Scratch {
  public:
    // Call outside parallel_for: `count` floats per thread. Discards their contents.
    void reserve(std::int64_t count) {
        if (threads_.size() < static_cast<std::size_t>(threads())) threads_.resize(static_cast<std::size_t>(threads()));
        for (auto& buffer : threads_) buffer.grow(count);
    }
    // Inside parallel_for: this thread's floats, 64-byte aligned.
    float* of(int thread) const { return threads_[static_cast<std::size_t>(thread)].data.get(); }
    // `count` floats shared by all threads, such as partial sums; valid until the next call.
    float* shared(std::int64_t count) {
        shared_.grow(count);
        return shared_.data.get();
    }
    // Others of the same kind: for operations that call others, and for matrix products.
    float* kept(std::int64_t count) {
        kept_.grow(count);
        return kept_.data.get();
    }
    float* of_product(std::int64_t count) {
        product_.grow(count);
        return product_.data.get();
    }

  private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    struct Buffer {
        std::unique_ptr<float, Free> data;
        std::int64_t count = 0;
        bool in_huge_pages = false;
        void grow(std::int64_t wanted) {
            if (wanted <= count) return;
            const std::size_t page = in_huge_pages ? std::size_t{2} << 20 : 64;
            const std::size_t bytes = (static_cast<std::size_t>(wanted) * sizeof(float) + page - 1) / page * page;
            data.reset(static_cast<float*>(std::aligned_alloc(page, bytes)));
            count = data ? wanted : 0;
            if (!data)
                throw fault_error("out of memory for {} bytes of scratch; use a smaller batch.micro or batch.length",
                                  bytes);
            if (in_huge_pages) static_cast<void>(::madvise(data.get(), bytes, MADV_HUGEPAGE));  // a hint
        }
    };
    std::vector<Buffer> threads_;
    Buffer shared_, kept_;
    Buffer product_{{}, 0, true};  // megabytes, walked through again and again
};

}  // namespace lockstep::kernels::cpu
