// What the emulator's own tests share.
#pragma once

#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cuda_emulation/device.hpp"
#include "cuda_emulation/hardware.hpp"

namespace lockstep::emulation::test {

// A seed for a test, and none after it.
class Seed {
  public:
    explicit Seed(std::uint64_t value) { set_seed(value); }
    Seed(const Seed&) = delete;
    Seed& operator=(const Seed&) = delete;
    ~Seed() { set_seed(0); }
};

// Runs a kernel at once, on the default stream.
inline void run_now(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, std::function<void()> thread) {
    run(name, grid, block, shared_bytes, nullptr, std::move(thread));
    BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

// The sentence of the error that `action` throws; empty: none.
inline std::string error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}
inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// In how many of the seeds 1 to 20 the check fails.
inline int failing_seeds(const std::function<bool()>& passes) {
    int failing = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Seed scope(seed);
        failing += passes() ? 0 : 1;
    }
    return failing;
}

class Stream {
  public:
    explicit Stream(unsigned flags = cudaStreamNonBlocking) {
        BOOST_REQUIRE(cudaStreamCreateWithFlags(&stream_, flags) == cudaSuccess);
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { cudaStreamDestroy(stream_); }
    operator cudaStream_t() const { return stream_; }
    void wait() const { BOOST_REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess); }

  private:
    cudaStream_t stream_ = nullptr;
};

class Event {
  public:
    explicit Event(unsigned flags = cudaEventDefault) {
        BOOST_REQUIRE(cudaEventCreateWithFlags(&event_, flags) == cudaSuccess);
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    ~Event() { cudaEventDestroy(event_); }
    operator cudaEvent_t() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

template <class T>
class DeviceMemory {
  public:
    explicit DeviceMemory(std::size_t count) : count_(count) {
        BOOST_REQUIRE(cudaMalloc(&data_, count * sizeof(T)) == cudaSuccess);
    }
    explicit DeviceMemory(const std::vector<T>& values) : DeviceMemory(values.size()) {
        BOOST_REQUIRE(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() { cudaFree(data_); }
    T* get() const { return data_; }
    std::vector<T> values() const {
        std::vector<T> values(count_);
        BOOST_REQUIRE(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
        return values;
    }

  private:
    T* data_ = nullptr;
    std::size_t count_;
};

}  // namespace lockstep::emulation::test
