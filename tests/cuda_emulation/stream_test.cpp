// Streams, events and graphs: what their order promises, and that nothing else is in order.
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "cuda_emulation/test_support.hpp"

namespace lockstep::emulation::test {

namespace {

void add(int* y, const int* x) {
    *y += *x;
}
void launch_add(int* y, const int* x, cudaStream_t stream) {
    run("add", 1, 1, 0, stream, [=] { add(y, x); });
}
void launch_set(int* y, int value, cudaStream_t stream) {
    run("set", 1, 1, 0, stream, [=] { *y = value; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(streams)

BOOST_AUTO_TEST_CASE(work_runs_when_somebody_waits) {
    const Stream stream;
    take_executed();
    int value = 0;
    launch_set(&value, 1, stream);
    BOOST_TEST(value == 0);
    BOOST_TEST(pending_operations() == 1u);
    stream.wait();
    BOOST_TEST(value == 1);
    BOOST_TEST(pending_operations() == 0u);
    BOOST_TEST(take_executed() == std::vector<std::string>{"set"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_stream_keeps_its_order) {
    BOOST_TEST(failing_seeds([] {
                   const Stream one, two;
                   std::vector<int> first, second;
                   for (int i = 0; i < 8; ++i) {
                       run("one", 1, 1, 0, one, [&first, i] { first.push_back(i); });
                       run("two", 1, 1, 0, two, [&second, i] { second.push_back(i); });
                   }
                   BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
                   const std::vector<int> expected{0, 1, 2, 3, 4, 5, 6, 7};
                   return first == expected && second == expected;
               }) == 0);
}

BOOST_AUTO_TEST_CASE(waiting_for_one_stream_may_leave_another_undone) {
    BOOST_TEST(failing_seeds([] {
                   const Stream one, two;
                   int value = 0;
                   launch_set(&value, 1, one);
                   launch_set(&value, 2, two);
                   two.wait();
                   const bool done = value == 1 || pending_operations() == 0;
                   one.wait();
                   return done;
               }) > 0);
}

BOOST_AUTO_TEST_CASE(a_missing_event_shows_in_some_order) {
    const auto passes = [](bool with_event) {
        const Stream compute, communication;
        const Event ready(cudaEventDisableTiming);
        int gradient = 0, sum = 0;
        run("gradient", 1, 32, 0, compute, [&gradient] {
            if (threadIdx.x == 0) gradient = 7;
        });
        BOOST_REQUIRE(cudaEventRecord(ready, compute) == cudaSuccess);
        if (with_event) BOOST_REQUIRE(cudaStreamWaitEvent(communication, ready) == cudaSuccess);
        launch_add(&sum, &gradient, communication);
        BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        return sum == 7;
    };
    BOOST_TEST(failing_seeds([&] { return passes(true); }) == 0);
    const int failing = failing_seeds([&] { return passes(false); });
    BOOST_TEST(failing >= 5);
    BOOST_TEST(failing < 20);
}

BOOST_AUTO_TEST_CASE(a_wait_is_for_the_recording_at_its_time) {
    int too_early = 0, between = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const Seed scope(seed);
        const Stream one, two;
        const Event event;
        int value = 0, seen = -1;
        BOOST_REQUIRE(cudaStreamWaitEvent(two, event) == cudaSuccess);  // never recorded: no wait
        launch_set(&value, 1, one);
        BOOST_REQUIRE(cudaEventRecord(event, one) == cudaSuccess);
        BOOST_REQUIRE(cudaStreamWaitEvent(two, event) == cudaSuccess);
        launch_set(&value, 2, one);
        BOOST_REQUIRE(cudaEventRecord(event, one) == cudaSuccess);
        run("see", 1, 1, 0, two, [&] { seen = value; });
        two.wait();
        too_early += seen == 0;
        between += seen == 1;
        BOOST_REQUIRE(cudaEventSynchronize(event) == cudaSuccess);
        BOOST_TEST(value == 2);
    }
    BOOST_TEST(too_early == 0);
    BOOST_TEST(between > 0);
}

BOOST_AUTO_TEST_CASE(queries_make_progress) {
    const Stream stream;
    const Event start, end;
    int count = 0;
    BOOST_REQUIRE(cudaEventRecord(start, stream) == cudaSuccess);
    for (int i = 0; i < 5; ++i) run("count", 1, 1, 0, stream, [&] { ++count; });
    BOOST_REQUIRE(cudaEventRecord(end, stream) == cudaSuccess);
    float milliseconds = -1;
    BOOST_TEST(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
    int queries = 0;
    while (cudaEventQuery(end) == cudaErrorNotReady) BOOST_REQUIRE(++queries < 100);
    BOOST_TEST(count == 5);
    BOOST_TEST(cudaStreamQuery(stream) == cudaSuccess);
    BOOST_TEST(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
    BOOST_TEST(milliseconds >= 0);
    BOOST_TEST(cudaGetLastError() == cudaErrorNotReady);  // as CUDA does
    BOOST_TEST(cudaGetLastError() == cudaSuccess);
}

BOOST_AUTO_TEST_CASE(the_legacy_stream_is_tied_to_blocking_streams_only) {
    const auto passes = [](unsigned flags) {
        const Stream stream(flags);
        const DeviceMemory<int> memory(std::vector<int>{0});
        int* place = memory.get();
        run("set", 1, 1, 0, stream, [=] { *place = 5; });
        const bool right = memory.values()[0] == 5;  // cudaMemcpy on the legacy stream
        stream.wait();
        return right;
    };
    BOOST_TEST(failing_seeds([&] { return passes(cudaStreamDefault); }) == 0);
    BOOST_TEST(failing_seeds([&] { return passes(cudaStreamNonBlocking); }) > 0);
}

BOOST_AUTO_TEST_CASE(copies_read_their_source_when_they_run) {
    const Stream stream;
    const DeviceMemory<int> memory(1);
    int source = 1, result = 0;
    BOOST_REQUIRE(cudaMemcpyAsync(memory.get(), &source, sizeof source, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    source = 2;  // too early
    BOOST_REQUIRE(cudaMemcpyAsync(&result, memory.get(), sizeof result, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    stream.wait();
    BOOST_TEST(result == 2);
}

BOOST_AUTO_TEST_CASE(a_destroyed_stream_ends_its_work) {
    int value = 0;
    {
        const Stream stream;
        launch_set(&value, 3, stream);
    }
    BOOST_TEST(value == 0);
    BOOST_REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    BOOST_TEST(value == 3);
}

BOOST_AUTO_TEST_CASE(an_error_comes_where_the_host_waits) {
    const Stream stream;
    int value = 0;
    run("broken", 1, 32, 0, stream, [] {
        if (threadIdx.x == 1) __syncwarp(1);
    });
    launch_set(&value, 1, stream);
    BOOST_TEST(contains(error_of([&] { cudaStreamSynchronize(stream); }), "kernel 'broken', block 0, thread 1"));
    stream.wait();
    BOOST_TEST(value == 0);  // what was queued behind it is dropped
    launch_set(&value, 2, stream);
    stream.wait();
    BOOST_TEST(value == 2);
}

BOOST_AUTO_TEST_CASE(polled_work_lets_other_streams_go_on) {
    const Stream one, two;
    int value = 0, polls = 0;
    enqueue_polled(one, "polled", [&] { return ++polls > 1 && value == 1; });
    launch_set(&value, 1, two);
    one.wait();
    BOOST_TEST(value == 1);
}

BOOST_AUTO_TEST_CASE(work_that_waits_for_itself_is_named) {
    const Stream stream;
    enqueue(stream, "waits", [&] { cudaStreamSynchronize(stream); });
    BOOST_TEST(contains(error_of([&] { cudaStreamSynchronize(stream); }), "queued behind the work that waits for it"));
}

BOOST_AUTO_TEST_CASE(host_functions_run_in_their_turn) {
    const Stream stream;
    int value = 1;
    BOOST_REQUIRE(cudaLaunchHostFunc(
                      stream, [](void* data) { *static_cast<int*>(data) *= 10; }, &value) == cudaSuccess);
    run("add", 1, 1, 0, stream, [&] { value += 1; });
    stream.wait();
    BOOST_TEST(value == 11);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(graphs)

BOOST_AUTO_TEST_CASE(a_graph_replays_what_was_captured) {
    const Stream stream;
    int value = 0;
    const int step = 3;
    BOOST_REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    BOOST_REQUIRE(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
    BOOST_TEST(status == cudaStreamCaptureStatusActive);
    launch_add(&value, &step, stream);
    run("double", 1, 1, 0, stream, [&] { value *= 2; });
    cudaGraph_t graph = nullptr;
    BOOST_REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    stream.wait();
    BOOST_TEST(value == 0);
    std::size_t nodes = 0;
    BOOST_TEST(cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess);
    BOOST_TEST(nodes == 2u);
    cudaGraphExec_t executable = nullptr;
    BOOST_REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    BOOST_TEST(cudaGraphDestroy(graph) == cudaSuccess);
    for (int i = 0; i < 3; ++i) BOOST_REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
    BOOST_TEST(cudaGraphExecDestroy(executable) == cudaSuccess);
    stream.wait();
    BOOST_TEST(value == ((3 * 2 + 3) * 2 + 3) * 2);
}

// Two streams in one capture: `second` is to follow `first`, which only the events say.
BOOST_AUTO_TEST_CASE(a_graph_keeps_the_order_of_its_events_and_no_other) {
    const auto passes = [](bool joined_before_use) {
        const Stream main, side;
        const Event fork(cudaEventDisableTiming), join(cudaEventDisableTiming);
        int value = 0, seen = -1;
        BOOST_REQUIRE(cudaStreamBeginCapture(main, cudaStreamCaptureModeGlobal) == cudaSuccess);
        BOOST_REQUIRE(cudaEventRecord(fork, main) == cudaSuccess);
        BOOST_REQUIRE(cudaStreamWaitEvent(side, fork) == cudaSuccess);
        launch_set(&value, 4, side);
        BOOST_REQUIRE(cudaEventRecord(join, side) == cudaSuccess);
        if (joined_before_use) BOOST_REQUIRE(cudaStreamWaitEvent(main, join) == cudaSuccess);
        run("see", 1, 1, 0, main, [&] { seen = value; });
        if (!joined_before_use) BOOST_REQUIRE(cudaStreamWaitEvent(main, join) == cudaSuccess);
        cudaGraph_t graph = nullptr;
        BOOST_REQUIRE(cudaStreamEndCapture(main, &graph) == cudaSuccess);
        cudaGraphExec_t executable = nullptr;
        BOOST_REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
        BOOST_REQUIRE(cudaGraphLaunch(executable, main) == cudaSuccess);
        main.wait();
        cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
        return seen == 4;
    };
    BOOST_TEST(failing_seeds([&] { return passes(true); }) == 0);
    BOOST_TEST(failing_seeds([&] { return passes(false); }) > 0);
}

BOOST_AUTO_TEST_CASE(calls_that_a_capture_forbids) {
    const Stream stream, other;
    const Event event;
    cudaGraph_t graph = nullptr;
    void* memory = nullptr;
    const auto capture_ends_as = [&](const std::function<void()>& meanwhile) {
        BOOST_REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
        meanwhile();
        return cudaStreamEndCapture(stream, &graph);
    };
    BOOST_TEST(capture_ends_as([&] {
                   BOOST_TEST(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
               }) == cudaErrorStreamCaptureInvalidated);
    BOOST_TEST(capture_ends_as([&] { BOOST_TEST(cudaMalloc(&memory, 16) == cudaErrorStreamCaptureUnsupported); }) ==
               cudaErrorStreamCaptureInvalidated);
    BOOST_TEST(capture_ends_as([&] { BOOST_TEST(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported); }) ==
               cudaErrorStreamCaptureInvalidated);
    BOOST_REQUIRE(cudaEventRecord(event, other) == cudaSuccess);
    BOOST_TEST(capture_ends_as([&] {
                   BOOST_TEST(cudaStreamWaitEvent(stream, event) == cudaErrorStreamCaptureIsolation);
               }) == cudaErrorStreamCaptureInvalidated);
    BOOST_TEST(capture_ends_as([&] {
                   BOOST_REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
                   BOOST_TEST(cudaEventSynchronize(event) == cudaErrorCapturedEvent);
                   BOOST_REQUIRE(cudaStreamWaitEvent(other, event) == cudaSuccess);
                   run("lost", 1, 1, 0, other, [] {});
               }) == cudaErrorStreamCaptureUnjoined);
    BOOST_TEST(graph == nullptr);
    // Afterwards both streams run as before.
    int value = 0;
    launch_set(&value, 1, other);
    other.wait();
    BOOST_TEST(value == 1);
    cudaGetLastError();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lockstep::emulation::test
