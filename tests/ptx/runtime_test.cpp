// The stand-in for the CUDA runtime beneath nvcc's host objects: launches, what it refuses, streams and graphs.
#define BOOST_TEST_MODULE runtime
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "ptx/runtime_kernels.hpp"

using namespace lockstep::ptx_tests;

namespace {

template <class T>
struct OnDevice {
    T* data = nullptr;
    std::size_t count;
    explicit OnDevice(const std::vector<T>& values) : count(values.size()) {
        BOOST_REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T)) == cudaSuccess);
        BOOST_REQUIRE(cudaMemcpy(data, values.data(), count * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
    }
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    ~OnDevice() { cudaFree(data); }
    std::vector<T> values() const {
        std::vector<T> values(count);
        BOOST_REQUIRE(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
        return values;
    }
};

struct Stream {
    cudaStream_t stream = nullptr;
    Stream() { BOOST_REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { cudaStreamDestroy(stream); }
    operator cudaStream_t() const { return stream; }
};

// The exit code of a process that does this and means to end with `code`.
int exit_code_of(const std::function<void()>& action, int code) {
    const pid_t child = fork();
    if (child == 0) {
        static_cast<void>(freopen("/dev/null", "w", stderr));
        action();
        std::exit(code);
    }
    int status = 0;
    BOOST_REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

BOOST_AUTO_TEST_CASE(parameters_arrive_as_they_are_packed) {
    const OnDevice<double> out(std::vector<double>(6, 0.0));
    launch_packed(out.data, 'x', 1.0 / 3, {'y', 1e300, -7}, -32768, nullptr);
    BOOST_TEST(out.values() == (std::vector<double>{'x', 1.0 / 3, 'y', 1e300, -7, -32768}),
               boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(streams_order_launches_and_copies) {
    const Stream stream;
    const OnDevice<float> data({1, 2, 3});
    launch_bounded(data.data, 3, 2, 64, stream);
    launch_bounded(data.data, 3, 10, 32, stream);
    BOOST_REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    BOOST_TEST(data.values() == (std::vector<float>{20, 51, 82}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(more_threads_than_the_launch_bound_are_refused) {
    const OnDevice<float> data({1, 2, 3});
    launch_bounded(data.data, 3, 2, 65, nullptr);
    BOOST_TEST(cudaGetLastError() == cudaErrorInvalidValue);
    BOOST_TEST(data.values() == (std::vector<float>{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(shared_memory_above_48_kb_must_be_asked_for) {
    const OnDevice<float> data({1, 2, 3});
    const auto launched = [&](int bytes) {
        launch_turned(data.data, 3, static_cast<std::size_t>(bytes), nullptr);
        return cudaGetLastError();
    };
    const auto allow = [](int bytes) {
        const cudaError_t result =
            cudaFuncSetAttribute(turned_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        cudaGetLastError();
        return result;
    };
    int most = 0;
    BOOST_REQUIRE(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
    BOOST_TEST(launched(48 << 10) == cudaSuccess);
    BOOST_TEST(launched((48 << 10) + 1) == cudaErrorInvalidValue);
    BOOST_TEST(allow(most + 1) == cudaErrorInvalidValue);
    BOOST_TEST(allow(64 << 10) == cudaSuccess);
    BOOST_TEST(launched(64 << 10) == cudaSuccess);
    BOOST_TEST(launched((64 << 10) + 1) == cudaErrorInvalidValue);
    BOOST_TEST(allow(most) == cudaSuccess);
    BOOST_TEST(launched(most) == cudaSuccess);
    BOOST_TEST(data.values() == (std::vector<float>{3, 2, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_graph_launches_what_was_captured) {
    const Stream stream;
    const OnDevice<float> data({1, 2, 3});
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    BOOST_REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    launch_bounded(data.data, 3, 2, 64, stream);
    launch_turned(data.data, 3, 12, stream);
    BOOST_REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    BOOST_REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    BOOST_TEST(data.values() == (std::vector<float>{1, 2, 3}), boost::test_tools::per_element());
    for (int i = 0; i < 2; ++i) BOOST_REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
    BOOST_REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    BOOST_TEST(data.values() == (std::vector<float>{6, 11, 16}), boost::test_tools::per_element());
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
}

BOOST_AUTO_TEST_CASE(a_finding_fails_the_wait_and_the_process) {
    const OnDevice<float> data({1, 2, 3});
    const auto read_beyond = [&] {
        launch_beyond(data.data, 3, nullptr);
        if (cudaGetLastError() != cudaSuccess) _exit(10);
        if (cudaDeviceSynchronize() != cudaErrorLaunchFailure) _exit(11);
        if (cudaDeviceSynchronize() != cudaSuccess) _exit(12);
    };
    BOOST_TEST(exit_code_of(read_beyond, 0) == 1);
    BOOST_TEST(exit_code_of(read_beyond, 4) == 1);
    BOOST_TEST(exit_code_of([&] { launch_turned(data.data, 3, 12, nullptr); }, 4) == 4);
}

BOOST_AUTO_TEST_CASE(the_environment_chooses_the_architecture) {
    const char* text = std::getenv("LOCKSTEP_PTX_ARCHITECTURE");
    const bool is_80 = text != nullptr && std::string(text) == "sm_80";
    cudaDeviceProp properties;
    BOOST_REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    BOOST_TEST(properties.major == (is_80 ? 8 : 9));
    BOOST_TEST(properties.sharedMemPerBlockOptin == (is_80 ? 163u : 227u) * 1024);
}
