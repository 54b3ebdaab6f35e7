// Devices, memory, and the codes of calls that CUDA refuses.
#include <nvtx3/nvToolsExt.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_emulation/address_sanitizer.hpp"
#include "cuda_emulation/test_support.hpp"

namespace lockstep::emulation::test {

namespace {

struct EmulatedGpus {
    explicit EmulatedGpus(const char* count) { setenv("LOCKSTEP_EMULATED_GPUS", count, 1); }
    EmulatedGpus(const EmulatedGpus&) = delete;
    EmulatedGpus& operator=(const EmulatedGpus&) = delete;
    ~EmulatedGpus() {
        unsetenv("LOCKSTEP_EMULATED_GPUS");
        cudaSetDevice(0);
        cudaGetLastError();
    }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(runtime)

BOOST_AUTO_TEST_CASE(as_many_gpus_as_the_environment_says) {
    int count = -1, device = -1;
    BOOST_TEST(cudaGetDeviceCount(&count) == cudaSuccess);
    BOOST_TEST(count == 1);
    {
        const EmulatedGpus none("0");
        BOOST_TEST(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
        BOOST_TEST(count == 0);
        BOOST_TEST(cudaGetLastError() == cudaErrorNoDevice);
        BOOST_TEST(cudaGetLastError() == cudaSuccess);
        void* memory = nullptr;
        BOOST_TEST(cudaMalloc(&memory, 4) == cudaErrorNoDevice);
    }
    const EmulatedGpus two("2");
    char first[16], second[16];
    BOOST_TEST(cudaDeviceGetPCIBusId(first, sizeof first, 0) == cudaSuccess);
    BOOST_TEST(cudaDeviceGetPCIBusId(second, sizeof second, 1) == cudaSuccess);
    BOOST_TEST(std::string(first) != second);
    BOOST_TEST(cudaDeviceGetByPCIBusId(&device, second) == cudaSuccess);
    BOOST_TEST(device == 1);
    BOOST_TEST(cudaSetDevice(2) == cudaErrorInvalidDevice);
    const Stream on_first;
    BOOST_TEST(cudaSetDevice(1) == cudaSuccess);
    BOOST_TEST(contains(error_of([&] { run("elsewhere", 1, 1, 0, on_first, [] {}); }),
                        "kernel 'elsewhere' was launched on a stream that is not one of GPU 1"));
}

BOOST_AUTO_TEST_CASE(a_gpu_says_what_it_is) {
    cudaDeviceProp properties;
    BOOST_REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    BOOST_TEST(properties.name == std::string("emulated GPU"));
    BOOST_TEST(properties.major == 9);
    int value = 0;
    BOOST_REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
    BOOST_TEST(value == properties.multiProcessorCount);
    BOOST_REQUIRE(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
    BOOST_TEST(value == 227 * 1024);
    const auto kernel = +[](float*) {};
    BOOST_TEST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, value) == cudaSuccess);
    BOOST_TEST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, value + 1) ==
               cudaErrorInvalidValue);
    BOOST_REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, kernel, 256, 100 * 1024) == cudaSuccess);
    BOOST_TEST(value == 2);
    BOOST_TEST(cudaGetErrorName(cudaErrorInvalidValue) == std::string("cudaErrorInvalidValue"));
    BOOST_TEST(cudaGetErrorString(cudaErrorMemoryAllocation) == std::string("out of memory"));
    cudaGetLastError();
}

BOOST_AUTO_TEST_CASE(device_memory_starts_as_nan_and_is_counted) {
    const std::size_t before = live_allocations();
    std::size_t free_before = 0, free_after = 0, total = 0;
    BOOST_REQUIRE(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
    {
        const DeviceMemory<float> memory(8);
        BOOST_TEST(live_allocations() == before + 1);
        BOOST_REQUIRE(cudaMemGetInfo(&free_after, &total) == cudaSuccess);
        BOOST_TEST(free_before - free_after == 32u);
        for (const float value : memory.values()) BOOST_TEST(std::isnan(value));
        BOOST_TEST(reinterpret_cast<std::uintptr_t>(memory.get()) % 256 == 0u);
    }
    BOOST_TEST(live_allocations() == before);
    void* memory = nullptr;
    BOOST_TEST(cudaMalloc(&memory, total + 1) == cudaErrorMemoryAllocation);
    BOOST_TEST(cudaGetLastError() == cudaErrorMemoryAllocation);
}

BOOST_AUTO_TEST_CASE(memory_that_was_not_allocated_is_refused) {
    int host = 0;
    const DeviceMemory<int> memory(4);
    BOOST_TEST(cudaFree(&host) == cudaErrorInvalidValue);
    BOOST_TEST(cudaFree(memory.get() + 1) == cudaErrorInvalidValue);
    BOOST_TEST(cudaFreeHost(memory.get()) == cudaErrorInvalidValue);
    BOOST_TEST(cudaFree(nullptr) == cudaSuccess);
    BOOST_TEST(cudaMemset(&host, 0, 4) == cudaErrorInvalidValue);
    BOOST_TEST(cudaMemset(memory.get(), 0, 17) == cudaErrorInvalidValue);
    BOOST_TEST(cudaMemset(memory.get() + 1, 0, 12) == cudaSuccess);
    std::vector<int> values(8);
    BOOST_TEST(cudaMemcpy(memory.get(), values.data(), 20, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    BOOST_TEST(cudaMemcpy(values.data(), memory.get() + 3, 8, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    BOOST_TEST(cudaMemcpy(values.data(), memory.get(), 16, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    BOOST_TEST(cudaMemcpy(values.data(), memory.get(), 16, cudaMemcpyDefault) == cudaSuccess);
    cudaPointerAttributes attributes;
    BOOST_REQUIRE(cudaPointerGetAttributes(&attributes, memory.get() + 3) == cudaSuccess);
    BOOST_TEST(attributes.type == cudaMemoryTypeDevice);
    BOOST_REQUIRE(cudaPointerGetAttributes(&attributes, &host) == cudaSuccess);
    BOOST_TEST(attributes.type == cudaMemoryTypeUnregistered);
    void* pinned = nullptr;
    BOOST_REQUIRE(cudaMallocHost(&pinned, 8) == cudaSuccess);
    BOOST_TEST(cudaMemcpy(memory.get(), pinned, 8, cudaMemcpyHostToDevice) == cudaSuccess);
    BOOST_TEST(cudaMemcpy(memory.get(), pinned, 9, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    BOOST_TEST(cudaFree(pinned) == cudaErrorInvalidValue);
    BOOST_TEST(cudaFreeHost(pinned) == cudaSuccess);
    cudaGetLastError();
}

BOOST_AUTO_TEST_CASE(a_kernel_that_writes_past_its_memory_is_named) {
    if (address_sanitizer) return;  // which ends the program there
    void* memory = nullptr;
    BOOST_REQUIRE(cudaMalloc(&memory, 12) == cudaSuccess);
    volatile int* values = static_cast<int*>(memory);
    run("inside", 1, 3, 0, nullptr, [=] { values[threadIdx.x] = 1; });
    BOOST_TEST(cudaDeviceSynchronize() == cudaSuccess);
    const int end = 0xa5a5a5a5;
    run("stray", 1, 4, 0, nullptr, [=] { values[threadIdx.x] = 1; });
    BOOST_TEST(error_of([] { cudaDeviceSynchronize(); }) ==
               "kernel 'stray': an allocation of 12 bytes was written past its end");
    values[3] = end;
    BOOST_TEST(cudaFree(memory) == cudaSuccess);
}

BOOST_AUTO_TEST_CASE(handles_that_do_not_exist_are_refused) {
    cudaStream_t stream = nullptr;
    BOOST_REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    BOOST_REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
    BOOST_TEST(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    BOOST_TEST(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
    BOOST_TEST(cudaEventRecord(nullptr) == cudaErrorInvalidResourceHandle);
    const Event without_time(cudaEventDisableTiming), with_time;
    BOOST_REQUIRE(cudaEventRecord(without_time) == cudaSuccess);
    BOOST_REQUIRE(cudaEventRecord(with_time) == cudaSuccess);
    BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    float milliseconds = 0;
    BOOST_TEST(cudaEventElapsedTime(&milliseconds, without_time, with_time) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

BOOST_AUTO_TEST_CASE(ranges_are_noted) {
    take_nvtx_names();
    nvtxRangePushA("forward");
    nvtxRangePushA("block 1");
    BOOST_TEST(nvtxRangePop() == 1);
    BOOST_TEST(nvtxRangePop() == 0);
    BOOST_TEST(nvtxRangePop() < 0);
    BOOST_TEST(take_nvtx_names() == (std::vector<std::string>{"forward", "block 1"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
