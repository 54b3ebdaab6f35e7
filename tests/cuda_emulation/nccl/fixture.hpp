// What the tests of the stand-in share. Every rank has an emulated GPU of its own, but where a test says otherwise.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "nccl.h"

namespace lockstep::emulation::nccl::test {

inline int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}
inline int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

struct AtLeast {
    int ranks;
    boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
        boost::test_tools::assertion_result enough(world_size() >= ranks);
        enough.message() << "needs " << ranks << " ranks";
        return enough;
    }
};
inline boost::unit_test::precondition at_least(int ranks) {
    return boost::unit_test::precondition(AtLeast{ranks});
}

class Stream {
  public:
    Stream() { BOOST_REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() {
        for (bool drained = false; !drained;) try {  // what is left of a test that failed on purpose fails again
                drained = cudaStreamSynchronize(stream_) == cudaSuccess;
            } catch (const Error&) {
            }
        cudaStreamDestroy(stream_);
    }
    operator cudaStream_t() const { return stream_; }
    void wait() const { BOOST_REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess); }

  private:
    cudaStream_t stream_ = nullptr;
};

// Device memory, which the host can read here.
template <class Element>
class Buffer {
  public:
    explicit Buffer(std::size_t count, Element value = {}) : count_(count) {
        BOOST_REQUIRE(cudaMalloc(&data_, std::max<std::size_t>(1, count * sizeof(Element))) == cudaSuccess);
        std::fill(begin(), end(), value);
    }
    explicit Buffer(const std::vector<Element>& values) : Buffer(values.size()) {
        std::copy(values.begin(), values.end(), begin());
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { cudaFree(data_); }
    std::size_t size() const { return count_; }
    Element* data() const { return data_; }
    Element* begin() const { return data_; }
    Element* end() const { return data_ + count_; }
    Element& operator[](std::size_t index) const { return data_[index]; }

  private:
    Element* data_ = nullptr;
    std::size_t count_ = 0;
};

inline ncclUniqueId shared_id(int from = 0) {
    ncclUniqueId id{};
    if (world_rank() == from) BOOST_REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    MPI_Bcast(&id, sizeof id, MPI_BYTE, from, MPI_COMM_WORLD);
    return id;
}

// Of all ranks. Destroyed at its end, or aborted where it failed.
class World {
  public:
    explicit World(const char* name = nullptr, bool blocking = true) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.commName = name;
        config.blocking = blocking ? 1 : 0;
        const ncclResult_t made = ncclCommInitRankConfig(&comm_, world_size(), shared_id(), world_rank(), &config);
        BOOST_REQUIRE_MESSAGE(made == (blocking ? ncclSuccess : ncclInProgress), ncclGetLastError(nullptr));
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    ~World() {
        if (!comm_) return;
        ncclResult_t state = ncclSuccess;
        ncclCommGetAsyncError(comm_, &state);
        if (state == ncclSuccess)
            BOOST_CHECK_MESSAGE(ncclCommDestroy(comm_) == ncclSuccess, ncclGetLastError(nullptr));
        else
            ncclCommAbort(comm_);
    }
    operator ncclComm_t() const { return comm_; }
    ncclComm_t release() { return std::exchange(comm_, nullptr); }

  private:
    ncclComm_t comm_ = nullptr;
};

inline ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclInternalError;
    BOOST_REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    return state;
}

// The sentence with which draining the stream fails; empty where it does not fail.
inline std::string failure_of(const Stream& stream) {
    try {
        stream.wait();
    } catch (const Error& error) {
        BOOST_TEST(static_cast<int>(error.code()) == static_cast<int>(ExitCode::fault));
        return error.what();
    }
    return {};
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Between tests: a GPU of its own for each rank, the usual time limit, and no rank ahead of the others.
struct EachTest {
    EachTest() {
        setenv("LOCKSTEP_EMULATED_GPUS", "4", 1);
        BOOST_REQUIRE(cudaSetDevice(world_rank()) == cudaSuccess);
        unsetenv("LOCKSTEP_NCCL_TIMEOUT_SECONDS");
        MPI_Barrier(MPI_COMM_WORLD);
    }
    ~EachTest() { MPI_Barrier(MPI_COMM_WORLD); }
};

}  // namespace lockstep::emulation::nccl::test
