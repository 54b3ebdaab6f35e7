// What goes wrong with NCCL, and how the stand-in says it.
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "cuda_emulation/nccl/fixture.hpp"

using namespace lockstep;
using namespace lockstep::emulation::nccl::test;

namespace {

void limit_to(const char* seconds) {
    setenv("LOCKSTEP_NCCL_TIMEOUT_SECONDS", seconds, 1);
}

struct Buffers {
    Buffer<float> memory = Buffer<float>(128);
    float* in = memory.data();
    float* out = memory.data() + 64;
};

ncclResult_t sum(Buffers& buffers, ncclComm_t comm, cudaStream_t stream, std::size_t count = 4) {
    return ncclAllReduce(buffers.in, buffers.out, count, ncclFloat, ncclSum, comm, stream);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(failures, EachTest)

BOOST_AUTO_TEST_CASE(two_ranks_on_one_gpu, *at_least(2)) {
    BOOST_REQUIRE(cudaSetDevice(world_rank() == world_size() - 1 ? 0 : world_rank()) == cudaSuccess);
    ncclComm_t comm = nullptr;
    BOOST_TEST(ncclCommInitRank(&comm, world_size(), shared_id(), world_rank()) == ncclInvalidUsage);
    BOOST_TEST(comm == nullptr);
    const std::string sentence = ncclGetLastError(nullptr);
    BOOST_TEST(contains(sentence, "ranks 0 and " + std::to_string(world_size() - 1)), sentence);
    BOOST_TEST(contains(sentence, "both on GPU 0"), sentence);
}

BOOST_AUTO_TEST_CASE(different_operations, *at_least(2)) {
    World world("shards");
    Stream stream;
    Buffers buffers;
    if (world_rank() == 0)
        BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    else
        BOOST_TEST(ncclBroadcast(buffers.in, buffers.out, 4, ncclFloat, 1, world, stream) == ncclSuccess);
    const std::string sentence = failure_of(stream);
    if (world_rank() < 2 || !sentence.empty()) {
        BOOST_TEST(contains(sentence, "ncclAllReduce of 4 float32, sum on communicator shards (rank 0"), sentence);
        BOOST_TEST(contains(sentence, "ncclBroadcast of 4 float32 from rank 1 on communicator shards (rank"), sentence);
    }
    BOOST_TEST(state_of(world) == ncclInvalidUsage);
    BOOST_TEST(ncclGetLastError(world) == sentence);
    BOOST_TEST(sum(buffers, world, stream) == ncclInvalidUsage);  // and it stays failed
    BOOST_TEST(ncclCommDestroy(world) == ncclInvalidUsage);
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(different_counts_types_and_reductions, *at_least(2)) {
    for (int what = 0; what < 3; ++what) {
        World world;
        Stream stream;
        Buffers buffers;
        const bool odd = world_rank() == 1;
        BOOST_TEST(ncclAllReduce(buffers.in, buffers.out, odd && what == 0 ? 5 : 4,
                                 odd && what == 1 ? ncclInt32 : ncclFloat, odd && what == 2 ? ncclMax : ncclSum, world,
                                 stream) == ncclSuccess);
        const std::string sentence = failure_of(stream);
        BOOST_TEST(contains(sentence, "ncclAllReduce of 4 float32, sum"), sentence);
        const std::string other[] = {"of 5 float32, sum", "of 4 int32, sum", "of 4 float32, max"};
        BOOST_TEST(contains(sentence, other[what]), sentence);
        MPI_Barrier(MPI_COMM_WORLD);  // all have seen it before anyone aborts
    }
}

BOOST_AUTO_TEST_CASE(another_order_over_two_communicators, *at_least(2)) {
    World one("one"), other("other");
    Stream first, second;
    Buffers buffers;
    const bool turned = world_rank() == 1;
    BOOST_TEST(sum(buffers, turned ? other : one, turned ? second : first) == ncclSuccess);
    BOOST_TEST(sum(buffers, turned ? one : other, turned ? first : second) == ncclSuccess);
    const std::string sentence = failure_of(first);
    BOOST_TEST(contains(sentence, "communicator one"), sentence);
    BOOST_TEST(contains(sentence, "communicator other"), sentence);
    BOOST_TEST(contains(sentence, "same order"), sentence);
    BOOST_TEST(state_of(one) == ncclInvalidUsage);
    BOOST_TEST(state_of(other) == ncclInvalidUsage);
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(rank_that_never_comes, *at_least(2)) {
    limit_to("0.3");
    World world("late");
    Stream stream;
    Buffers buffers;
    const int absent = world_size() - 1;
    if (world_rank() != absent) {
        BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
        const std::string sentence = failure_of(stream);
        BOOST_TEST(contains(sentence, "waited 0.3 s"), sentence);
        BOOST_TEST(contains(sentence, "rank " + std::to_string(absent) + " has not called it"), sentence);
        BOOST_TEST(!contains(sentence, "rank 1 has called"), sentence);
        BOOST_TEST(state_of(world) == ncclRemoteError);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == absent) BOOST_TEST(ncclCommAbort(world.release()) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(rank_whose_stream_never_comes, *at_least(2)) {
    limit_to("0.3");
    World world;
    Stream stream;
    Buffers buffers;
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    if (world_rank() == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        BOOST_TEST(ncclCommAbort(world.release()) == ncclSuccess);
        stream.wait();
    } else {
        const std::string sentence = failure_of(stream);
        BOOST_TEST(contains(sentence, "rank 0 has called it, but its stream does not come to it"), sentence);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

BOOST_AUTO_TEST_CASE(send_and_receive_that_do_not_fit, *at_least(2)) {
    World world;
    Stream stream;
    Buffers buffers;
    if (world_rank() == 0) BOOST_TEST(ncclSend(buffers.in, 4, ncclFloat, 1, world, stream) == ncclSuccess);
    if (world_rank() == 1) BOOST_TEST(ncclRecv(buffers.out, 3, ncclFloat, 0, world, stream) == ncclSuccess);
    const std::string sentence = failure_of(stream);
    BOOST_TEST(sentence.empty() == (world_rank() > 1));
    if (world_rank() < 2) {
        BOOST_TEST(contains(sentence, "ncclSend of 4 float32 to rank 1"), sentence);
        BOOST_TEST(contains(sentence, "ncclRecv of 3 float32 from rank 0"), sentence);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(send_on_the_other_side_of_a_collective, *at_least(2)) {
    World world;
    Stream stream;
    Buffers buffers;
    if (world_rank() == 0) BOOST_TEST(ncclSend(buffers.in, 4, ncclFloat, 1, world, stream) == ncclSuccess);
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    if (world_rank() == 1) BOOST_TEST(ncclRecv(buffers.out, 4, ncclFloat, 0, world, stream) == ncclSuccess);
    limit_to("0.5");
    const std::string sentence = failure_of(stream);
    if (world_rank() == 0) BOOST_TEST(contains(sentence, "must keep their place among them"), sentence);
    BOOST_TEST(!sentence.empty());
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(sends_to_each_other_outside_of_a_group, *at_least(2)) {
    limit_to("0.3");
    World world;
    Stream stream;
    Buffers buffers;
    if (world_rank() < 2) {
        BOOST_TEST(ncclSend(buffers.in, 4, ncclFloat, 1 - world_rank(), world, stream) == ncclSuccess);
        BOOST_TEST(ncclRecv(buffers.out, 4, ncclFloat, 1 - world_rank(), world, stream) == ncclSuccess);
        const std::string sentence = failure_of(stream);
        BOOST_TEST(contains(sentence, "ncclSend of 4 float32"), sentence);
        BOOST_TEST(contains(sentence, "has called it, but its stream does not come to it"), sentence);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(abort_ends_what_is_queued) {
    World world;
    Stream stream;
    Buffers buffers;
    buffers.out[0] = -1;
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    const ncclComm_t comm = world.release();
    BOOST_TEST(ncclCommAbort(comm) == ncclSuccess);
    stream.wait();
    BOOST_TEST(buffers.out[0] == -1);
    BOOST_TEST(sum(buffers, comm, stream) == ncclInvalidArgument);
    BOOST_TEST(contains(ncclGetLastError(nullptr), "destroyed or aborted"));
    // The ranks find each other again.
    World next;
    BOOST_TEST(sum(buffers, next, stream) == ncclSuccess);
    stream.wait();
    BOOST_TEST(buffers.out[0] == 0);
}

BOOST_AUTO_TEST_CASE(abort_by_another_thread_ends_the_wait, *at_least(2)) {
    World world;
    Stream stream;
    Buffers buffers;
    if (world_rank() == 0) {
        BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
        std::thread watchdog([comm = world.release()] {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            ncclCommAbort(comm);
        });
        BOOST_TEST(failure_of(stream).empty());  // it waits for rank 1, in vain, and not for the time limit
        watchdog.join();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == 1) {
        BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
        const std::string sentence = failure_of(stream);
        BOOST_TEST(contains(sentence, "rank 0 has aborted the communicator"), sentence);
        BOOST_TEST(state_of(world) == ncclRemoteError);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(rank_that_destroyed_its_communicator_is_not_waited_for, *at_least(2)) {
    World world;
    Stream stream;
    Buffers buffers;
    if (world_rank() == 1) {
        BOOST_TEST(ncclCommDestroy(world.release()) == ncclSuccess);  // ends when the others abort
    } else {
        BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
        const std::string sentence = failure_of(stream);
        // Or another rank saw it first, and has aborted.
        BOOST_TEST((contains(sentence, "rank 1 has destroyed the communicator") ||
                    (world_size() > 2 && contains(sentence, "has aborted the communicator"))),
                   sentence);
        BOOST_TEST(ncclCommDestroy(world) == ncclInvalidUsage);
        BOOST_TEST(contains(ncclGetLastError(nullptr), "call ncclCommAbort"));
    }
}

BOOST_AUTO_TEST_CASE(destroy_that_one_rank_does_not_call, *at_least(2)) {
    limit_to("0.3");
    World world("kept");
    if (world_rank() != 0) {
        BOOST_TEST(ncclCommDestroy(world.release()) == ncclRemoteError);
        BOOST_TEST(contains(ncclGetLastError(nullptr), "communicator kept waited 0.3 s"), ncclGetLastError(nullptr));
        BOOST_TEST(contains(ncclGetLastError(nullptr), "not called by its ranks 0"), ncclGetLastError(nullptr));
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

BOOST_AUTO_TEST_CASE(calls_on_a_stream_that_is_captured) {
    World world;
    Stream stream;
    Buffers buffers;
    BOOST_REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    BOOST_TEST(sum(buffers, world, stream) == ncclInvalidUsage);
    BOOST_TEST(contains(ncclGetLastError(nullptr), "captured"));
    cudaGraph_t graph = nullptr;
    BOOST_TEST(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    if (graph) BOOST_TEST(cudaGraphDestroy(graph) == cudaSuccess);
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    stream.wait();
}

BOOST_AUTO_TEST_CASE(buffers_that_overlap_by_half) {
    World world;
    Stream stream;
    Buffers buffers;
    BOOST_TEST(ncclAllReduce(buffers.in, buffers.in + 2, 4, ncclFloat, ncclSum, world, stream) == ncclInvalidUsage);
    BOOST_TEST(ncclReduceScatter(buffers.in, buffers.in + 4 * world_rank() + 1, 4, ncclFloat, ncclSum, world, stream) ==
               ncclInvalidUsage);
    BOOST_TEST(ncclAllGather(buffers.in + 4 * world_rank() + 1, buffers.in, 4, ncclFloat, world, stream) ==
               ncclInvalidUsage);
    BOOST_TEST(ncclAllReduce(nullptr, buffers.out, 4, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    BOOST_TEST(ncclBroadcast(buffers.in, buffers.out, 4, ncclFloat, world_size(), world, stream) ==
               ncclInvalidArgument);
}

BOOST_AUTO_TEST_CASE(buffers_that_the_gpu_cannot_reach) {
    World world;
    Stream stream;
    const Buffer<float> in(8), out(8);
    std::vector<float> host(8);
    BOOST_TEST(ncclAllReduce(host.data(), out.data(), 8, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    BOOST_TEST(contains(ncclGetLastError(world), "host memory"), ncclGetLastError(world));
    BOOST_TEST(ncclAllReduce(in.data(), out.data() + 3, 7, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    BOOST_TEST(contains(ncclGetLastError(world), "ends 8 bytes after its allocation"), ncclGetLastError(world));
    BOOST_REQUIRE(cudaSetDevice((world_rank() + 1) % 4) == cudaSuccess);
    const Buffer<float> elsewhere(8);
    BOOST_REQUIRE(cudaSetDevice(world_rank()) == cudaSuccess);
    BOOST_TEST(ncclAllReduce(in.data(), elsewhere.data(), 8, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
}

BOOST_AUTO_TEST_CASE(error_within_a_group_ends_the_group) {
    World world;
    Stream stream;
    Buffers buffers;
    buffers.out[0] = -1;
    BOOST_TEST(ncclGroupStart() == ncclSuccess);
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    BOOST_TEST(ncclAllReduce(buffers.in, nullptr, 4, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    BOOST_TEST(ncclGroupEnd() == ncclInvalidArgument);
    BOOST_TEST(ncclGroupEnd() == ncclInvalidUsage);
    stream.wait();
    BOOST_TEST(buffers.out[0] == -1);
}

BOOST_AUTO_TEST_CASE(split_with_calls_still_queued) {
    World world;
    Stream stream;
    Buffers buffers;
    ncclComm_t half = nullptr;
    BOOST_TEST(sum(buffers, world, stream) == ncclSuccess);
    BOOST_TEST(ncclCommSplit(world, 0, 0, &half, nullptr) == ncclInvalidUsage);
    BOOST_TEST(contains(ncclGetLastError(nullptr), "1 calls still queued"));
    stream.wait();
    BOOST_TEST(ncclCommSplit(world, 0, 0, &half, nullptr) == ncclSuccess);
    BOOST_TEST(ncclCommDestroy(half) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(rank_missing_when_the_communicator_is_made, *at_least(2)) {
    limit_to("0.3");
    const ncclUniqueId id = shared_id();
    if (world_rank() != world_size() - 1) {
        ncclComm_t comm = nullptr;
        BOOST_TEST(ncclCommInitRank(&comm, world_size(), id, world_rank()) == ncclSystemError);
        BOOST_TEST(comm == nullptr);
        BOOST_TEST(contains(ncclGetLastError(nullptr), "waited 0.3 s for all"), ncclGetLastError(nullptr));
    }
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_when_the_communicator_is_made, *at_least(2)) {
    const ncclUniqueId id = shared_id();
    if (world_rank() > 1) return;
    ncclComm_t comm = nullptr;
    BOOST_TEST(ncclCommInitRank(&comm, 2 + world_rank(), id, world_rank()) == ncclInvalidUsage);
    BOOST_TEST(contains(ncclGetLastError(nullptr), "makes a NCCL communicator of"), ncclGetLastError(nullptr));
}

BOOST_AUTO_TEST_CASE(wrong_arguments) {
    ncclComm_t comm = nullptr;
    ncclUniqueId zeros{};
    BOOST_TEST(ncclCommInitRank(&comm, 1, zeros, 0) == ncclInvalidArgument);
    BOOST_TEST(ncclCommInitRank(&comm, world_size(), shared_id(), world_size()) == ncclInvalidArgument);
    ncclConfig_t config{};
    BOOST_TEST(ncclCommInitRankConfig(&comm, world_size(), shared_id(), world_rank(), &config) == ncclInvalidArgument);
    BOOST_TEST(ncclCommDestroy(nullptr) == ncclInvalidArgument);
}

BOOST_AUTO_TEST_CASE(library_that_cannot_be_used) {
    setenv("LOCKSTEP_EMULATED_NCCL_ABSENT", "1", 1);
    int version = 0;
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    BOOST_TEST(ncclGetVersion(&version) == ncclSystemError);
    BOOST_TEST(ncclGetUniqueId(&id) == ncclSystemError);
    BOOST_TEST(ncclCommInitRank(&comm, world_size(), id, world_rank()) == ncclSystemError);
    BOOST_TEST(contains(ncclGetLastError(nullptr), "LOCKSTEP_EMULATED_NCCL_ABSENT"));
    unsetenv("LOCKSTEP_EMULATED_NCCL_ABSENT");
}

BOOST_AUTO_TEST_SUITE_END()
