// Threads, barriers, warp functions, shared memory of emulated kernels, and what they say of wrong ones.
#define BOOST_TEST_MODULE emulator
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "base/random.hpp"
#include "cuda_emulation/address_sanitizer.hpp"
#include "cuda_emulation/test_support.hpp"

namespace lockstep::emulation::test {

using kernels::cuda::shared_memory;

namespace {

constexpr unsigned all_lanes = 0xffffffffu;

// One block a row: strided sums by thread, a shuffle over each warp, shared memory over the warps.
__global__ void row_sums(float* sums, const float* x, int width) {
    float* work = shared_memory<float>();
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += static_cast<int>(blockDim.x))
        sum += x[static_cast<int>(blockIdx.x) * width + i];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(all_lanes, sum, distance);
    if (threadIdx.x % 32 == 0) work[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) sum += work[warp];
        sums[blockIdx.x] = sum;
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_AUTO_TEST_CASE(row_sums_are_right_in_every_order) {
    for (const int width : {1, 31, 32, 33, 97, 128, 131}) {
        const int rows = 5;
        std::vector<float> x(static_cast<std::size_t>(rows * width));
        const RandomStream stream(1, "emulator");
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(stream.bits(i) % 100));
        const DeviceMemory<float> input(x), output(rows);
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            const Seed scope(seed);
            BOOST_REQUIRE(cudaMemset(output.get(), 0xff, rows * sizeof(float)) == cudaSuccess);
            run_now("row_sums", rows, 96, 3 * sizeof(float), [&] { row_sums(output.get(), input.get(), width); });
            const std::vector<float> sums = output.values();
            for (int row = 0; row < rows; ++row) {
                float expected = 0;  // whole numbers: exact in any order
                for (int i = 0; i < width; ++i) expected += x[static_cast<std::size_t>(row * width + i)];
                BOOST_TEST(sums[static_cast<std::size_t>(row)] == expected);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(threads_and_blocks_have_their_indices) {
    std::set<std::vector<unsigned>> seen;
    const Seed scope(3);
    run_now("indices", dim3(3, 2, 2), dim3(4, 3, 2), 0, [&] {
        seen.insert({blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z});
        BOOST_TEST((gridDim.x == 3 && gridDim.y == 2 && gridDim.z == 2));
        BOOST_TEST((blockDim.x == 4 && blockDim.y == 3 && blockDim.z == 2));
    });
    BOOST_TEST(seen.size() == 12u * 24);
    BOOST_TEST(*seen.rbegin() == (std::vector<unsigned>{2, 1, 1, 3, 2, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(threads_that_returned_are_not_waited_for) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Seed scope(seed);
        int total = 0;
        run_now("early_return", 4, 100, sizeof(int), [&] {
            if (threadIdx.x >= 37) return;
            int* sum = shared_memory<int>();
            if (threadIdx.x == 0) *sum = 0;
            __syncthreads();
            atomicAdd(sum, static_cast<int>(threadIdx.x));
            __syncthreads();
            if (threadIdx.x == 36) total += *sum;
        });
        BOOST_TEST(total == 4 * 37 * 36 / 2);
    }
}

BOOST_AUTO_TEST_CASE(shuffles_read_the_lane_that_cuda_names) {
    const Seed scope(2);
    for (const int width : {32, 16, 8, 4, 2})
        for (int offset = 0; offset < 32; ++offset) {
            std::vector<int> direct(64), by_xor(64), down(64), up(64);
            run_now("shuffles", 1, 64, 0, [&] {
                const unsigned i = threadIdx.x;
                const int value = static_cast<int>(i);
                direct[i] = __shfl_sync(all_lanes, value, offset, width);
                by_xor[i] = static_cast<int>(__shfl_xor_sync(all_lanes, static_cast<float>(value), offset, width));
                down[i] = static_cast<int>(
                    __shfl_down_sync(all_lanes, static_cast<long long>(value), static_cast<unsigned>(offset), width));
                up[i] = static_cast<int>(
                    __shfl_up_sync(all_lanes, static_cast<double>(value), static_cast<unsigned>(offset), width));
            });
            for (int i = 0; i < 64; ++i) {
                const int warp = i / 32 * 32, lane = i % 32, group = lane / width * width, place = lane % width;
                const auto at = static_cast<std::size_t>(i);
                BOOST_TEST(direct[at] == warp + group + offset % width);
                BOOST_TEST(by_xor[at] == warp + ((lane ^ offset) < group + width ? lane ^ offset : lane));
                BOOST_TEST(down[at] == warp + (place + offset < width ? lane + offset : lane));
                BOOST_TEST(up[at] == warp + (place - offset >= 0 ? lane - offset : lane));
            }
        }
}

BOOST_AUTO_TEST_CASE(votes_and_counting_barriers) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const Seed scope(seed);
        run_now("votes", 1, 70, 0, [] {
            const bool odd = threadIdx.x % 2 == 1;
            const unsigned mask = threadIdx.x < 64 ? all_lanes : 0x3fu;
            BOOST_TEST(__ballot_sync(mask, odd) == (0xaaaaaaaau & mask));
            BOOST_TEST(__any_sync(mask, threadIdx.x == 33) == (threadIdx.x / 32 == 1));
            BOOST_TEST(__all_sync(mask, threadIdx.x != 33) == (threadIdx.x / 32 != 1));
            BOOST_TEST(__syncthreads_count(odd) == 35);
            BOOST_TEST(__syncthreads_or(threadIdx.x == 69) == 1);
            BOOST_TEST(__syncthreads_or(0) == 0);
            BOOST_TEST(__syncthreads_and(threadIdx.x != 69) == 0);
            BOOST_TEST(__syncthreads_and(1) == 1);
        });
    }
}

BOOST_AUTO_TEST_CASE(parts_of_a_warp_meet_apart) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Seed scope(seed);
        std::vector<int> sums(32);
        run_now("half_warps", 1, 32, 0, [&] {
            const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
            int sum = static_cast<int>(threadIdx.x);
            for (int distance = 8; distance > 0; distance /= 2) sum += __shfl_xor_sync(mask, sum, distance);
            if (threadIdx.x >= 16) __syncwarp(mask);
            sums[threadIdx.x] = sum;
        });
        for (std::size_t i = 0; i < 32; ++i) BOOST_TEST(sums[i] == (i < 16 ? 120 : 376));
    }
}

BOOST_AUTO_TEST_CASE(integer_functions) {
    run_now("integers", 1, 1, 0, [] {
        BOOST_TEST(__popc(0xf0f0u) == 8);
        BOOST_TEST(__ffs(8) == 4);
        BOOST_TEST(__ffs(0) == 0);
        BOOST_TEST(__clz(1) == 31);
        BOOST_TEST(__clz(0) == 32);
        BOOST_TEST(__umulhi(0x80000000u, 6) == 3u);
        BOOST_TEST(rsqrtf(4.0f) == 0.5f);
        int value = 5;
        BOOST_TEST(atomicMax(&value, 3) == 5);
        BOOST_TEST(atomicMax(&value, 9) == 5);
        BOOST_TEST(atomicCAS(&value, 9, 1) == 9);
        BOOST_TEST(atomicExch(&value, 7) == 1);
        BOOST_TEST(value == 7);
    });
}

BOOST_AUTO_TEST_CASE(the_last_block_sees_what_the_others_wrote) {
    const Seed scope(5);
    std::vector<int> parts(7, 0), order;
    unsigned finished = 0;
    int total = 0;
    run_now("last_block", 7, 32, 0, [&] {
        if (threadIdx.x != 0) return;
        order.push_back(static_cast<int>(blockIdx.x));
        parts[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
        __threadfence();
        if (atomicAdd(&finished, 1) == gridDim.x - 1)
            for (const int part : parts) total += part;
    });
    BOOST_TEST(total == 28);
    BOOST_TEST(std::set<int>(order.begin(), order.end()).size() == 7u);
}

BOOST_AUTO_TEST_CASE(a_seed_repeats_its_order_and_seeds_differ) {
    const auto order_of = [](std::uint64_t seed) {
        const Seed scope(seed);
        std::vector<unsigned> order;
        run_now("order", 5, 64, 0, [&] { order.push_back(blockIdx.x * 64 + threadIdx.x); });
        return order;
    };
    const std::vector<unsigned> plain = order_of(0);
    for (unsigned i = 0; i < plain.size(); ++i) BOOST_TEST(plain[i] == i);
    std::set<std::vector<unsigned>> orders;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        orders.insert(order_of(seed));
        BOOST_TEST(order_of(seed) == order_of(seed), boost::test_tools::per_element());
    }
    BOOST_TEST(orders.size() == 8u);
}

// Reverses a row through shared memory.
BOOST_AUTO_TEST_CASE(a_missing_barrier_shows_in_some_order) {
    const auto passes = [](bool barrier) {
        bool right = true;
        run_now("reverse", 1, 64, 64 * sizeof(float), [&] {
            float* row = shared_memory<float>();
            row[threadIdx.x] = static_cast<float>(threadIdx.x);
            if (barrier)
                __syncthreads();
            else
                __syncwarp();
            right = right && row[63 - threadIdx.x] == static_cast<float>(63 - threadIdx.x);
        });
        return right;
    };
    BOOST_TEST(failing_seeds([&] { return passes(true); }) == 0);
    BOOST_TEST(failing_seeds([&] { return passes(false); }) >= 10);
}

// A loop that reuses a buffer needs a barrier at its end, too.
BOOST_AUTO_TEST_CASE(a_missing_second_barrier_shows_in_some_order) {
    const auto passes = [](bool second) {
        bool right = true;
        run_now("rounds", 1, 96, sizeof(int), [&] {
            int* shared = shared_memory<int>();
            for (int round = 0; round < 4; ++round) {
                if (threadIdx.x == 0) *shared = round;
                __syncthreads();
                right = right && *shared == round;
                if (second) __syncthreads();
            }
        });
        return right;
    };
    BOOST_TEST(failing_seeds([&] { return passes(true); }) == 0);
    BOOST_TEST(failing_seeds([&] { return passes(false); }) >= 10);
}

BOOST_AUTO_TEST_CASE(shared_memory_starts_as_nan_in_every_block) {
    run_now("poison", 3, 1, 64, [] {
        float* floats = shared_memory<float>();
        BOOST_TEST(std::isnan(floats[15]));
        BOOST_TEST(std::isnan(kernels::cuda::to_float(shared_memory<kernels::cuda::bf16>()[3])));
        BOOST_TEST(std::isnan(kernels::cuda::to_float(shared_memory<kernels::cuda::fp16>()[3])));
        BOOST_TEST(reinterpret_cast<std::uintptr_t>(floats) % 128 == 0u);
        floats[15] = 1;
    });
}

BOOST_AUTO_TEST_CASE(shared_memory_ends_where_the_launch_says) {
    if (address_sanitizer) return;  // which ends the program there
    const auto write_at = [](int index) {
        return error_of([&] {
            run_now("stray", 2, 32, 40, [&] {
                volatile float* floats = shared_memory<float>();
                if (threadIdx.x == 0) floats[index] = 1;
            });
        });
    };
    BOOST_TEST(write_at(9) == "");
    BOOST_TEST(write_at(10) ==
               "kernel 'stray', block 0: a thread wrote past the end of the block's shared memory, "
               "which has 40 bytes");
    BOOST_TEST(contains(write_at(-1), "before the beginning"));
}

BOOST_AUTO_TEST_CASE(a_divergent_barrier_is_named) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Seed scope(seed);
        const std::string error = error_of([] {
            run_now("divergent", 1, 64, 0, [] {
                if (threadIdx.x < 16)
                    __syncthreads();
                else
                    __syncwarp();
            });
        });
        BOOST_TEST(contains(error,
                            "kernel 'divergent', block 0: its threads wait for one another for ever: threads 0-15 at "
                            "__syncthreads; threads 16-31 at __syncwarp with mask 0xffffffff; threads 32-63 "
                            "returned"));
    }
}

BOOST_AUTO_TEST_CASE(wrong_masks_are_named) {
    const auto error_in = [](const std::function<void()>& thread) {
        return error_of([&] { run_now("masks", dim3(1, 2), 32, 0, thread); });
    };
    BOOST_TEST(error_in([] { __syncwarp(0x3); }) ==
               "kernel 'masks', block (0, 0), thread 2: lane 2 calls __syncwarp with mask 0x00000003, which does not "
               "contain it");
    BOOST_TEST(contains(error_in([] {
                            if (threadIdx.x != 5) __ballot_sync(all_lanes, 1);
                        }),
                        "threads 0-4, 6-31 at __ballot_sync with mask 0xffffffff; threads 5 returned"));
    BOOST_TEST(contains(error_in([] {
                            if (threadIdx.x < 8)
                                __shfl_sync(all_lanes, 1, 0);
                            else
                                __shfl_xor_sync(all_lanes, 1, 1);
                        }),
                        "threads 0-7 at __shfl_sync with mask 0xffffffff; threads 8-31 at __shfl_xor_sync"));
    BOOST_TEST(contains(error_in([] {
                            if (threadIdx.x < 16) __shfl_xor_sync(0xffffu, 1, 16);
                        }),
                        "shuffles from lane 16, which is not in the mask 0x0000ffff"));
    BOOST_TEST(contains(error_in([] {
                            if (threadIdx.x == 0)
                                __syncthreads();
                            else
                                __syncthreads_or(1);
                        }),
                        "another kind of __syncthreads"));
    const std::string partial = error_of([] { run_now("partial", 1, 40, 0, [] { __syncwarp(); }); });
    BOOST_TEST(contains(partial, "threads 32-39 at __syncwarp with mask 0xffffffff"));
}

BOOST_AUTO_TEST_CASE(after_an_error_kernels_run_as_before) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const Seed scope(seed);
        BOOST_CHECK_THROW(run_now("throws", 3, 96, 0,
                                  [] {
                                      __syncthreads();
                                      if (threadIdx.x == 70) throw std::out_of_range("of a thread");
                                      __syncthreads();
                                  }),
                          std::out_of_range);
        int count = 0;
        run_now("counts", 3, 96, 0, [&] {
            __syncthreads();
            ++count;
            __syncthreads();
        });
        BOOST_TEST(count == 3 * 96);
    }
}

BOOST_AUTO_TEST_CASE(launches_that_cuda_refuses) {
    const auto error_in = [](dim3 grid, dim3 block, std::size_t shared_bytes) {
        return error_of([&] { run("limits", grid, block, shared_bytes, nullptr, [] {}); });
    };
    BOOST_TEST(contains(error_in(1, 1025, 0), "a block of 1025 threads"));
    BOOST_TEST(contains(error_in(1, 0, 0), "a block of 0 threads"));
    BOOST_TEST(contains(error_in(dim3(1, 65536), 32, 0), "a grid of 1 x 65536 x 1 blocks"));
    BOOST_TEST(contains(error_in(0, 32, 0), "a grid of 0 x 1 x 1 blocks"));
    BOOST_TEST(contains(error_in(1, 32, 232449), "232449 bytes of shared memory"));
    int count = 0;
    run_now("limits", 1, 1024, 232448, [&] { ++count; });
    BOOST_TEST(count == 1024);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
