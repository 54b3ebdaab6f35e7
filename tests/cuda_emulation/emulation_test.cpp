#define BOOST_TEST_MODULE emulator
#include <boost/test/unit_test.hpp>
#include <iostream>
#include <numeric>
#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda_emulation/device.hpp"
#include "kernels/cuda/hardware.hpp"
using namespace lockstep;
BOOST_AUTO_TEST_CASE(speed) {
    for (int s : {0, 1, 2, 3}) {
        emulation::set_seed(s);
        double t = seconds_now();
        long n = 0;
        emulation::run("speed", 100, 256, 1000, nullptr, [&] {
            for (int i = 0; i < 20; ++i) {
                __syncthreads();
                ++n;
            }
        });
        BOOST_TEST(n == 0);
        cudaDeviceSynchronize();
        std::cerr << "barriers " << seconds_now() - t << " s\n";
        BOOST_TEST(n == 100 * 256 * 20);
        t = seconds_now();
        emulation::run("shuffles", 100, 256, 1000, nullptr, [&] {
            float v = 1;
            for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(~0u, v, i);
            if (v != 32) emulation::fail("wrong sum");
        });
        cudaDeviceSynchronize();
        std::cerr << "shuffles " << seconds_now() - t << " s\n";
    }
    emulation::run("bad", 100, 256, 1000, nullptr, [&] {
        if (threadIdx.x < 16)
            __syncthreads();
        else if (threadIdx.x < 32)
            __syncwarp();
    });
    BOOST_CHECK_EXCEPTION(cudaDeviceSynchronize(), Error, [](const Error& e) {
        std::cerr << e.what() << "\n";
        return true;
    });
    emulation::run("bad", 1, 256, 1000, nullptr, [&] { __syncwarp(3); });
    BOOST_CHECK_EXCEPTION(cudaDeviceSynchronize(), Error, [](const Error& e) {
        std::cerr << e.what() << "\n";
        return true;
    });
}
