#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_MODULE emulated_nccl
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>

#include "cluster/session.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/nccl/fixture.hpp"
#include "kernels/cuda/element.hpp"

using namespace lockstep;
using namespace lockstep::emulation::nccl::test;
using kernels::cuda::bf16;
using kernels::cuda::fp16;

namespace {

template <class Element>
struct Named;
template <>
struct Named<float> {
    static constexpr ncclDataType_t type = ncclFloat;
};
template <>
struct Named<double> {
    static constexpr ncclDataType_t type = ncclDouble;
};
template <>
struct Named<bf16> {
    static constexpr ncclDataType_t type = ncclBfloat16;
};
template <>
struct Named<fp16> {
    static constexpr ncclDataType_t type = ncclHalf;
};
template <>
struct Named<std::int32_t> {
    static constexpr ncclDataType_t type = ncclInt32;
};
template <>
struct Named<std::int64_t> {
    static constexpr ncclDataType_t type = ncclInt64;
};
template <>
struct Named<std::uint8_t> {
    static constexpr ncclDataType_t type = ncclUint8;
};

template <class Element>
constexpr bool is_half = std::is_same_v<Element, bf16> || std::is_same_v<Element, fp16>;

template <class Element>
double number(Element value) {
    if constexpr (is_half<Element>)
        return static_cast<double>(kernels::cuda::to_float(value));
    else
        return static_cast<double>(value);
}
template <class Element>
Element element(double value) {
    if constexpr (is_half<Element>)
        return kernels::cuda::from_float<Element>(static_cast<float>(value));
    else
        return static_cast<Element>(value);
}

// Small numbers, exact in every type with their sums and products over 4 ranks.
double value_of(int rank, std::size_t index) {
    return static_cast<double>((index * 7 + static_cast<std::size_t>(rank) + index / 5) % 3 + 1);
}

double expected(ncclRedOp_t operation, std::size_t index) {
    double result = value_of(0, index);
    for (int rank = 1; rank < world_size(); ++rank) {
        const double value = value_of(rank, index);
        if (operation == ncclProd) result *= value;
        if (operation == ncclMax) result = std::max(result, value);
        if (operation == ncclMin) result = std::min(result, value);
        if (operation == ncclSum || operation == ncclAvg) result += value;
    }
    return operation == ncclAvg ? result / world_size() : result;
}

template <class Element>
std::vector<Element> values(int rank, std::size_t count) {
    std::vector<Element> all(count);
    for (std::size_t index = 0; index < count; ++index) all[index] = element<Element>(value_of(rank, index));
    return all;
}

// Relative; sums and the others are exact, an average is rounded a few times, or down for integers.
template <class Element>
void check(Element got, double wanted, ncclRedOp_t operation) {
    if (operation != ncclAvg) {
        BOOST_TEST(number(got) == wanted);
    } else if constexpr (std::is_integral_v<Element>) {
        BOOST_TEST(number(got) == std::floor(wanted));
    } else {
        const double epsilon = std::is_same_v<Element, bf16>   ? 0x1p-8
                               : std::is_same_v<Element, fp16> ? 0x1p-11
                                                               : 0x1p-24;
        BOOST_TEST(std::abs(number(got) - wanted) <= 5 * epsilon * wanted);
    }
}

constexpr std::size_t sizes[] = {1, 2, 31, 33, 997};
constexpr ncclRedOp_t operations[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};

using Elements = std::tuple<float, double, bf16, fp16, std::int32_t, std::int64_t, std::uint8_t>;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(calls, EachTest)

BOOST_AUTO_TEST_CASE(says_what_it_is) {
    int version = 0, count = 0, rank = -1, device = -1;
    BOOST_TEST(ncclGetVersion(&version) == ncclSuccess);
    BOOST_TEST(version == NCCL_VERSION_CODE);
    World world;
    BOOST_TEST(ncclCommCount(world, &count) == ncclSuccess);
    BOOST_TEST(ncclCommUserRank(world, &rank) == ncclSuccess);
    BOOST_TEST(ncclCommCuDevice(world, &device) == ncclSuccess);
    BOOST_TEST(count == world_size());
    BOOST_TEST(rank == world_rank());
    BOOST_TEST(device == world_rank());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_reduce, Element, Elements) {
    World world;
    Stream stream;
    for (const std::size_t count : sizes)
        for (const ncclRedOp_t operation : operations) {
            const Buffer<Element> in(values<Element>(world_rank(), count)), out(count);
            BOOST_REQUIRE(ncclAllReduce(in.data(), out.data(), count, Named<Element>::type, operation, world, stream) ==
                          ncclSuccess);
            stream.wait();
            BOOST_REQUIRE(ncclAllReduce(in.data(), in.data(), count, Named<Element>::type, operation, world, stream) ==
                          ncclSuccess);
            stream.wait();
            for (std::size_t index = 0; index < count; ++index)
                check(out[index], expected(operation, index), operation);
            BOOST_TEST(std::memcmp(in.data(), out.data(), count * sizeof(Element)) == 0);
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(reduce_scatter, Element, Elements) {
    World world;
    Stream stream;
    const auto ranks = static_cast<std::size_t>(world_size()), rank = static_cast<std::size_t>(world_rank());
    for (const std::size_t count : sizes)
        for (const ncclRedOp_t operation : operations) {
            const Buffer<Element> in(values<Element>(world_rank(), count * ranks)), out(count);
            BOOST_REQUIRE(ncclReduceScatter(in.data(), out.data(), count, Named<Element>::type, operation, world,
                                            stream) == ncclSuccess);
            BOOST_REQUIRE(ncclReduceScatter(in.data(), in.data() + rank * count, count, Named<Element>::type, operation,
                                            world, stream) == ncclSuccess);
            stream.wait();
            for (std::size_t index = 0; index < count; ++index) {
                check(out[index], expected(operation, rank * count + index), operation);
                check(in[rank * count + index], expected(operation, rank * count + index), operation);
            }
        }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_gather, Element, Elements) {
    World world;
    Stream stream;
    const auto ranks = static_cast<std::size_t>(world_size()), rank = static_cast<std::size_t>(world_rank());
    for (const std::size_t count : sizes) {
        const Buffer<Element> in(values<Element>(world_rank(), count)), out(count * ranks), in_place(count * ranks);
        std::copy(in.begin(), in.end(), in_place.begin() + rank * count);
        BOOST_REQUIRE(ncclAllGather(in.data(), out.data(), count, Named<Element>::type, world, stream) == ncclSuccess);
        BOOST_REQUIRE(ncclAllGather(in_place.data() + rank * count, in_place.data(), count, Named<Element>::type, world,
                                    stream) == ncclSuccess);
        stream.wait();
        for (int from = 0; from < world_size(); ++from)
            for (std::size_t index = 0; index < count; ++index)
                BOOST_TEST(number(out[static_cast<std::size_t>(from) * count + index]) == value_of(from, index));
        BOOST_TEST(std::memcmp(out.data(), in_place.data(), out.size() * sizeof(Element)) == 0);
    }
}

BOOST_AUTO_TEST_CASE(broadcast_and_reduce_with_every_root) {
    World world;
    Stream stream;
    for (int root = 0; root < world_size(); ++root) {
        const Buffer<float> in(values<float>(world_rank(), 33)), out(33, -1), sum(33, -1);
        const bool is_root = root == world_rank();
        BOOST_REQUIRE(ncclBroadcast(is_root ? in.data() : nullptr, out.data(), 33, ncclFloat, root, world, stream) ==
                      ncclSuccess);
        BOOST_REQUIRE(ncclReduce(in.data(), is_root ? sum.data() : nullptr, 33, ncclFloat, ncclSum, root, world,
                                 stream) == ncclSuccess);
        stream.wait();
        for (std::size_t index = 0; index < 33; ++index) {
            BOOST_TEST(out[index] == value_of(root, index));
            BOOST_TEST(sum[index] == (is_root ? expected(ncclSum, index) : -1));
        }
    }
}

BOOST_AUTO_TEST_CASE(sums_are_in_rank_order_and_repeat) {
    World world;
    Stream stream;
    const std::vector<float> terms = {1e8f, 1.0f, -1e8f, 0.3f};
    float wanted = terms[0];
    for (int rank = 1; rank < world_size(); ++rank) wanted += terms[static_cast<std::size_t>(rank)];
    const Buffer<float> in(101, terms[static_cast<std::size_t>(world_rank())]);
    for (int time = 0; time < 3; ++time) {
        const Buffer<float> out(101);
        BOOST_REQUIRE(ncclAllReduce(in.data(), out.data(), 101, ncclFloat, ncclSum, world, stream) == ncclSuccess);
        stream.wait();
        for (const float value : out) BOOST_TEST(value == wanted);
    }
}

BOOST_AUTO_TEST_CASE(bf16_partial_sums_are_rounded, *at_least(3)) {
    World world;
    Stream stream;
    // 256 + 1 is 256 in bf16, twice; in fp32 the sum would be 258.
    const Buffer<bf16> own(1, kernels::cuda::from_float<bf16>(world_rank() == 0 ? 256.0f : 1.0f)), sum(1);
    BOOST_REQUIRE(ncclAllReduce(own.data(), sum.data(), 1, ncclBfloat16, ncclSum, world, stream) == ncclSuccess);
    stream.wait();
    BOOST_TEST(kernels::cuda::to_float(sum[0]) == 256.0f);
}

BOOST_AUTO_TEST_CASE(large_buffers) {
    World world;
    Stream stream;
    constexpr std::size_t count = (1 << 20) + 7;
    const Buffer<float> in(values<float>(world_rank(), count)), sum(count), root(count);
    BOOST_REQUIRE(ncclAllReduce(in.data(), sum.data(), count, ncclFloat, ncclSum, world, stream) == ncclSuccess);
    BOOST_REQUIRE(ncclBroadcast(in.data(), root.data(), count, ncclFloat, world_size() - 1, world, stream) ==
                  ncclSuccess);
    stream.wait();
    std::size_t wrong = 0;
    for (std::size_t index = 0; index < count; ++index)
        wrong += sum[index] != expected(ncclSum, index) || root[index] != value_of(world_size() - 1, index);
    BOOST_TEST(wrong == 0u);
}

BOOST_AUTO_TEST_CASE(work_runs_on_the_stream_and_not_at_the_call) {
    World world;
    Stream stream;
    const Buffer<float> in(1, -1), out(1, -1);
    emulation::enqueue(stream, "writes the input", [&in] { in[0] = 2; });
    BOOST_REQUIRE(ncclAllReduce(in.data(), out.data(), 1, ncclFloat, ncclSum, world, stream) == ncclSuccess);
    emulation::enqueue(stream, "overwrites the input", [&in] { in[0] = 100; });
    stream.wait();
    BOOST_TEST(out[0] == 2.0f * static_cast<float>(world_size()));
}

BOOST_AUTO_TEST_CASE(ring_of_sends_and_receives_in_a_group) {
    World world;
    Stream stream;
    const int next = (world_rank() + 1) % world_size(), previous = (world_rank() + world_size() - 1) % world_size();
    for (const std::size_t count : sizes) {
        const Buffer<float> in(values<float>(world_rank(), count)), first(count), second(count);
        BOOST_REQUIRE(ncclGroupStart() == ncclSuccess);
        BOOST_REQUIRE(ncclSend(in.data(), count, ncclFloat, next, world, stream) == ncclSuccess);
        BOOST_REQUIRE(ncclRecv(first.data(), count, ncclFloat, previous, world, stream) == ncclSuccess);
        BOOST_REQUIRE(ncclRecv(second.data(), count, ncclFloat, next, world, stream) == ncclSuccess);
        BOOST_REQUIRE(ncclSend(in.data(), count, ncclFloat, previous, world, stream) == ncclSuccess);
        BOOST_REQUIRE(ncclGroupEnd() == ncclSuccess);
        stream.wait();
        BOOST_TEST(std::vector<float>(first.begin(), first.end()) == values<float>(previous, count));
        BOOST_TEST(std::vector<float>(second.begin(), second.end()) == values<float>(next, count));
    }
}

BOOST_AUTO_TEST_CASE(messages_to_one_rank_keep_their_order, *at_least(2)) {
    World world;
    Stream stream;
    const Buffer<float> numbers(std::vector<float>{1, 2, 3, 4}), got(4);
    for (std::size_t k = 0; k < 4 && world_rank() < 2; ++k) {
        if (world_rank() == 0)
            BOOST_REQUIRE(ncclSend(numbers.data() + k, 1, ncclFloat, 1, world, stream) == ncclSuccess);
        if (world_rank() == 1) BOOST_REQUIRE(ncclRecv(got.data() + k, 1, ncclFloat, 0, world, stream) == ncclSuccess);
    }
    stream.wait();
    for (std::size_t k = 0; k < 4 && world_rank() == 1; ++k) BOOST_TEST(got[k] == numbers[k]);
}

BOOST_AUTO_TEST_CASE(groups_hold_several_collectives_of_several_communicators) {
    World one("one"), other("other");
    Stream stream, second;
    const Buffer<float> in(values<float>(world_rank(), 31)), sum(31), maximum(31), minimum(31);
    BOOST_REQUIRE(ncclGroupStart() == ncclSuccess);
    BOOST_REQUIRE(ncclAllReduce(in.data(), sum.data(), 31, ncclFloat, ncclSum, one, stream) == ncclSuccess);
    BOOST_REQUIRE(ncclAllReduce(in.data(), maximum.data(), 31, ncclFloat, ncclMax, other, second) == ncclSuccess);
    BOOST_REQUIRE(ncclAllReduce(in.data(), minimum.data(), 31, ncclFloat, ncclMin, one, stream) == ncclSuccess);
    BOOST_REQUIRE(ncclGroupEnd() == ncclSuccess);
    second.wait();
    stream.wait();
    for (std::size_t index = 0; index < 31; ++index) {
        BOOST_TEST(sum[index] == expected(ncclSum, index));
        BOOST_TEST(maximum[index] == expected(ncclMax, index));
        BOOST_TEST(minimum[index] == expected(ncclMin, index));
    }
}

// As GPUs do: the streams go on by themselves, so ranks may wait for them in any order.
BOOST_AUTO_TEST_CASE(ranks_wait_for_their_streams_in_different_order) {
    World one("one"), other("other");
    Stream first, second;
    const Buffer<float> in(1, 1), sums(2);
    BOOST_REQUIRE(ncclAllReduce(in.data(), &sums[0], 1, ncclFloat, ncclSum, one, first) == ncclSuccess);
    BOOST_REQUIRE(ncclAllReduce(in.data(), &sums[1], 1, ncclFloat, ncclSum, other, second) == ncclSuccess);
    (world_rank() % 2 ? second : first).wait();
    (world_rank() % 2 ? first : second).wait();
    BOOST_TEST(sums[0] == static_cast<float>(world_size()));
    BOOST_TEST(sums[1] == static_cast<float>(world_size()));
}

BOOST_AUTO_TEST_CASE(split_into_halves_with_the_ranks_turned_round) {
    World world;
    Stream stream;
    ncclComm_t half = nullptr;
    const int color = world_rank() % 2;
    BOOST_REQUIRE(ncclCommSplit(world, color, -world_rank(), &half, nullptr) == ncclSuccess);
    int count = 0, rank = 0;
    BOOST_REQUIRE(ncclCommCount(half, &count) == ncclSuccess);
    BOOST_REQUIRE(ncclCommUserRank(half, &rank) == ncclSuccess);
    BOOST_TEST(count == (world_size() + 1 - color) / 2);
    BOOST_TEST(rank == count - 1 - world_rank() / 2);
    const Buffer<std::int32_t> own(1, world_rank()), all(static_cast<std::size_t>(count));
    BOOST_REQUIRE(ncclAllGather(own.data(), all.data(), 1, ncclInt32, half, stream) == ncclSuccess);
    stream.wait();
    for (int index = 0; index < count; ++index)
        BOOST_TEST(all[static_cast<std::size_t>(index)] == 2 * (count - 1 - index) + color);
    BOOST_TEST(ncclCommDestroy(half) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(split_that_leaves_a_rank_out) {
    World world;
    ncclComm_t rest = nullptr;
    const bool out = world_rank() == 0;
    BOOST_REQUIRE(ncclCommSplit(world, out ? NCCL_SPLIT_NOCOLOR : 5, 0, &rest, nullptr) == ncclSuccess);
    BOOST_TEST((rest == nullptr) == out);
    if (rest) BOOST_TEST(ncclCommDestroy(rest) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(communicator_of_some_ranks_from_an_id_of_their_own, *at_least(3)) {
    const ncclUniqueId id = shared_id(2);
    if (world_rank() == 0) return;
    ncclComm_t some = nullptr;
    Stream stream;
    BOOST_REQUIRE(ncclCommInitRank(&some, world_size() - 1, id, world_rank() - 1) == ncclSuccess);
    const Buffer<float> in(1, 1), sum(1);
    BOOST_REQUIRE(ncclAllReduce(in.data(), sum.data(), 1, ncclFloat, ncclSum, some, stream) == ncclSuccess);
    stream.wait();
    BOOST_TEST(sum[0] == static_cast<float>(world_size() - 1));
    BOOST_TEST(ncclCommDestroy(some) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(several_communicators_made_in_one_group) {
    const ncclUniqueId first = shared_id(), second = shared_id(world_size() - 1);
    ncclComm_t one = nullptr, other = nullptr;
    BOOST_REQUIRE(ncclGroupStart() == ncclSuccess);
    // In another order on each rank, as the library allows within a group.
    for (int turn = 0; turn < 2; ++turn)
        BOOST_REQUIRE((turn + world_rank()) % 2
                          ? ncclCommInitRank(&one, world_size(), first, world_rank()) == ncclSuccess
                          : ncclCommInitRank(&other, world_size(), second, world_rank()) == ncclSuccess);
    BOOST_REQUIRE(ncclGroupEnd() == ncclSuccess);
    BOOST_TEST(state_of(one) == ncclSuccess);
    BOOST_TEST(ncclCommDestroy(one) == ncclSuccess);
    BOOST_TEST(ncclCommDestroy(other) == ncclSuccess);
}

BOOST_AUTO_TEST_CASE(communicator_that_does_not_block) {
    World world("patient", false);
    Stream stream;
    const Buffer<float> in(1, 1), sum(1);
    BOOST_TEST(ncclAllReduce(in.data(), sum.data(), 1, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    const auto until_ready = [&world] {
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) state = state_of(world);
        return state;
    };
    BOOST_REQUIRE(until_ready() == ncclSuccess);
    BOOST_REQUIRE(ncclAllReduce(in.data(), sum.data(), 1, ncclFloat, ncclSum, world, stream) == ncclInProgress);
    stream.wait();
    BOOST_TEST(sum[0] == 0);  // it is on the stream only once the state is ncclSuccess
    BOOST_TEST(ncclAllReduce(in.data(), sum.data(), 1, ncclFloat, ncclSum, world, stream) == ncclInvalidArgument);
    BOOST_REQUIRE(until_ready() == ncclSuccess);
    stream.wait();
    BOOST_TEST(sum[0] == static_cast<float>(world_size()));
}

BOOST_AUTO_TEST_CASE(destroy_runs_what_is_queued) {
    World world;
    Stream stream;
    const Buffer<float> in(1, 1), sum(1);
    BOOST_REQUIRE(ncclAllReduce(in.data(), sum.data(), 1, ncclFloat, ncclSum, world, stream) == ncclSuccess);
    BOOST_TEST(ncclCommDestroy(world.release()) == ncclSuccess);
    BOOST_TEST(sum[0] == static_cast<float>(world_size()));
}

BOOST_AUTO_TEST_SUITE_END()

int main(int argc, char** argv) {
    cluster::Session own(&argc, &argv);
    return own.run([&] { return boost::unit_test::unit_test_main(init_unit_test, argc, argv); });
}
