// copy_async_16, its groups, and what shows when a wait or a barrier is missing.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

#include "cuda_emulation/test_support.hpp"

namespace lockstep::emulation::test {

using kernels::cuda::copy_async_16;
using kernels::cuda::copy_async_commit;
using kernels::cuda::copy_async_wait;
using kernels::cuda::shared_memory;

namespace {

constexpr int tiles = 6, threads = 32, per_thread = 4;

// Sums tiles of 128 numbers that arrive in two stages, each read by another thread than the one that copied it.
struct Faults {
    bool no_wait = false, wait_too_weak = false, no_last_barrier = false;
};
__global__ void pipeline(float* sums, const float* x, Faults faults) {
    float* stage = shared_memory<float>();
    const int thread = static_cast<int>(threadIdx.x), width = threads * per_thread;
    const auto copy = [&](int tile) {
        if (tile < tiles)
            copy_async_16(stage + tile % 2 * width + per_thread * thread, x + tile * width + per_thread * thread);
        copy_async_commit();
    };
    float sum = 0;
    copy(0);
    for (int tile = 0; tile < tiles; ++tile) {
        copy(tile + 1);
        if (faults.wait_too_weak)
            copy_async_wait<2>();
        else if (!faults.no_wait)
            copy_async_wait<1>();
        __syncthreads();
        const int other = (thread * 7 + 3) % threads;
        for (int i = 0; i < per_thread; ++i) sum += stage[tile % 2 * width + per_thread * other + i];
        if (!faults.no_last_barrier) __syncthreads();
    }
    copy_async_wait<0>();
    sums[thread] = sum;
}

bool pipeline_is_right(Faults faults) {
    std::vector<float> x(tiles * threads * per_thread);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 37);
    const DeviceMemory<float> input(x), output(threads);
    run_now("pipeline", 1, threads, 2 * threads * per_thread * sizeof(float),
            [&] { pipeline(output.get(), input.get(), faults); });
    const std::vector<float> sums = output.values();
    for (int thread = 0; thread < threads; ++thread) {
        float expected = 0;
        for (int tile = 0; tile < tiles; ++tile)
            for (int i = 0; i < per_thread; ++i)
                expected += x[static_cast<std::size_t>(tile * threads * per_thread +
                                                       per_thread * ((thread * 7 + 3) % threads) + i)];
        if (!(sums[static_cast<std::size_t>(thread)] == expected)) return false;
    }
    return true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(asynchronous_copies)

BOOST_AUTO_TEST_CASE(a_right_pipeline_is_right_in_every_order) {
    BOOST_TEST(pipeline_is_right({}));
    BOOST_TEST(failing_seeds([] { return pipeline_is_right({}); }) == 0);
}

BOOST_AUTO_TEST_CASE(a_missing_wait_shows) {
    BOOST_TEST(!pipeline_is_right({.no_wait = true}));
    BOOST_TEST(!pipeline_is_right({.wait_too_weak = true}));
    BOOST_TEST(failing_seeds([] { return pipeline_is_right({.wait_too_weak = true}); }) == 20);
}

BOOST_AUTO_TEST_CASE(a_copy_into_a_place_that_is_still_read_shows) {
    BOOST_TEST(failing_seeds([] { return pipeline_is_right({.no_last_barrier = true}); }) >= 10);
}

BOOST_AUTO_TEST_CASE(places_that_are_not_valid_give_zeros) {
    run_now("zeros", 1, 1, 32, [] {
        float* shared = shared_memory<float>();
        copy_async_16(shared, nullptr, false);
        copy_async_commit();
        copy_async_wait<0>();
        for (int i = 0; i < 4; ++i) BOOST_TEST(shared[i] == 0.0f);
        BOOST_TEST(std::isnan(shared[4]));
    });
}

BOOST_AUTO_TEST_CASE(wrong_copies_are_named) {
    const DeviceMemory<float> x(std::vector<float>(64, 1.0f));
    const auto error_in = [&](const std::function<void()>& thread) {
        return error_of([&] { run_now("copies", 1, 1, 64, thread); });
    };
    BOOST_TEST(contains(error_in([&] { copy_async_16(shared_memory<float>(), x.get()); }),
                        "kernel 'copies', block 0, thread 0: returned with copies of copy_async_16 that it has not "
                        "waited for"));
    BOOST_TEST(contains(error_in([&] { copy_async_16(shared_memory<float>() + 1, x.get()); }), "not 16-byte aligned"));
    BOOST_TEST(contains(error_in([&] { copy_async_16(shared_memory<float>(), x.get() + 2); }), "not 16-byte aligned"));
    BOOST_TEST(contains(error_in([&] { copy_async_16(shared_memory<float>() + 16, x.get()); }),
                        "outside the block's shared memory"));
    BOOST_TEST(contains(error_in([&] { copy_async_16(x.get(), x.get()); }), "outside the block's shared memory"));
    // Copies that no commit has closed are in no group, and no wait waits for them.
    BOOST_TEST(contains(error_in([&] {
                            copy_async_16(shared_memory<float>(), x.get());
                            copy_async_wait<0>();
                        }),
                        "has not waited for"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
