// Communicators of groups of ranks, over whatever carries tensors (carrier.hpp). Values are chosen so that fp32 sums
// are exact, whatever their order.
#define BOOST_TEST_MODULE communicator
#define BOOST_TEST_NO_MAIN
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "base/float16.hpp"
#include "device/sync.hpp"
#include "mpi/carrier.hpp"

using namespace lockstep;
using cluster::Communicator;
using cluster::Reduce;
using cluster::Use;

namespace {

cluster::Session* session = nullptr;
test::Carrier* carrier = nullptr;

std::vector<int> everyone() {
    std::vector<int> ranks(static_cast<std::size_t>(session->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

// One for the whole program: MPI has not room for endlessly many.
std::unique_ptr<Communicator> of_all_ranks;
Communicator& world() {
    return *of_all_ranks;
}

struct AtLeast {
    int ranks;
    boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
        boost::test_tools::assertion_result enough(session->size() >= ranks);
        enough.message() << "needs " << ranks << " ranks";
        return enough;
    }
};
boost::unit_test::precondition at_least(int ranks) {
    return boost::unit_test::precondition(AtLeast{ranks});
}

template <class Element>
class Values {
  public:
    Values(Type type, const std::vector<Element>& values)
        : arena_(carrier->device(), values.size() * sizeof(Element) + Arena::device_alignment, "values of a test"),
          tensor_(arena_.allocate(type, {static_cast<std::int64_t>(values.size())})) {
        carrier->put(tensor_, values.data());
    }
    operator Tensor() const { return tensor_; }
    Tensor slice(std::int64_t first, std::int64_t count) const { return tensor_.slice(first, count); }
    std::vector<Element> get() const {
        std::vector<Element> values(static_cast<std::size_t>(tensor_.count()));
        carrier->get(values.data(), tensor_);
        return values;
    }

  private:
    Arena arena_;
    Tensor tensor_;
};

float number(int rank, std::int64_t index) {
    return static_cast<float>((index * 7 + rank * 31) % 101 - 50);
}
std::vector<float> numbers(int rank, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = number(rank, i);
    return values;
}
float sum_over(const std::vector<int>& ranks, std::int64_t index) {
    float sum = 0;
    for (const int rank : ranks) sum += number(rank, index);
    return sum;
}
std::vector<float> sums_over(const std::vector<int>& ranks, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = sum_over(ranks, i);
    return values;
}

// Cuts of a tensor among `ranks`: equal, uneven, with empty parts, all in one part, nothing at all, equal but for the
// last.
std::vector<std::vector<std::int64_t>> cuts_among(int ranks) {
    const auto make = [&](auto size_of) {
        std::vector<std::int64_t> cuts = {0};
        for (int rank = 0; rank < ranks; ++rank) cuts.push_back(cuts.back() + size_of(rank));
        return cuts;
    };
    return {make([](int) { return 37; }),
            make([](int rank) { return rank * 53 + 1; }),
            make([](int rank) { return rank % 2 ? 0 : 991; }),
            make([](int rank) { return rank % 2 ? 65 : 0; }),
            make([&](int rank) { return rank == ranks - 1 ? 401 : 0; }),
            make([](int) { return 0; }),
            make([&](int rank) { return rank == ranks - 1 ? 52 : 37; })};
}

// Rows of two ranks and columns of every second one, as far as there are ranks.
std::vector<int> row_of(int rank) {
    std::vector<int> ranks;
    for (const int other : everyone())
        if (other / 2 == rank / 2) ranks.push_back(other);
    return ranks;
}
std::vector<int> column_of(int rank) {
    std::vector<int> ranks;
    for (const int other : everyone())
        if (other % 2 == rank % 2) ranks.push_back(other);
    return ranks;
}

struct SixteenBits {
    Type type;
    float (*value)(std::uint16_t);
    std::uint16_t (*bits)(float);
    double epsilon;  // half a unit in the last place
};
constexpr SixteenBits sixteen_bits[] = {{Type::bf16, bf16_value, bf16_bits, 0x1p-8},
                                        {Type::fp16, fp16_value, fp16_bits, 0x1p-11}};

// Numbers that 16 bits do not hold, and their sums neither.
float fraction(int rank, int index) {
    return (static_cast<float>((index * 29 + rank * 57) % 211) - 100.0f) / 7.0f;
}

}  // namespace

BOOST_AUTO_TEST_CASE(groups_have_their_own_ranks_and_sums) {
    const int own = session->rank();
    const std::vector<int> row = row_of(own), column = column_of(own);
    const auto rows = carrier->source().make(row), columns = carrier->source().make(column);
    BOOST_TEST(rows->size() == static_cast<int>(row.size()));
    BOOST_TEST(rows->rank() == own % 2);
    BOOST_TEST(columns->size() == static_cast<int>(column.size()));
    BOOST_TEST(columns->rank() == own / 2);
    const Values<float> of_row(Type::fp32, numbers(own, 1001)), of_column(Type::fp32, numbers(own, 997));
    rows->begin_all_reduce(of_row, Reduce::sum);
    columns->begin_all_reduce(of_column, Reduce::sum);
    columns->finish_collectives();
    rows->finish_collectives();
    BOOST_TEST(of_row.get() == sums_over(row, 1001));
    BOOST_TEST(of_column.get() == sums_over(column, 997));
}

BOOST_AUTO_TEST_CASE(group_of_one_rank_is_the_solo_communicator) {
    const auto alone = carrier->source().make({session->rank()}, Use::transfers);
    BOOST_TEST(alone->size() == 1);
    const Values<float> values(Type::fp32, numbers(3, 5));
    alone->begin_reduce_scatter(values, {0, 5});
    alone->begin_all_gather(values, {0, 5});
    alone->finish_collectives();
    BOOST_TEST(values.get() == numbers(3, 5));
    BOOST_CHECK_THROW(alone->begin_send(values, 0, 0), Error);
    BOOST_CHECK_THROW(alone->begin_receive(values, 0, 0), Error);
    BOOST_CHECK_THROW(alone->begin_all_gather(values, {0, 4}), Error);
}

BOOST_AUTO_TEST_CASE(all_reduce_of_every_type) {
    const std::vector<int> all = everyone();
    const int own = session->rank(), last = all.back();
    const Values<float> floats(Type::fp32, numbers(own, 501));
    world().all_reduce(floats, Reduce::sum);
    BOOST_TEST(floats.get() == sums_over(all, 501));
    const Values<double> doubles(Type::fp64, {1.0 + own, 0.5 - own});
    world().all_reduce(doubles, Reduce::maximum);
    BOOST_TEST(doubles.get() == (std::vector<double>{1.0 + last, 0.5}));
    const Values<std::int32_t> integers(Type::int32, {own - 1, 7});
    world().all_reduce(integers, Reduce::minimum);
    BOOST_TEST(integers.get() == (std::vector<std::int32_t>{-1, 7}));
}

BOOST_AUTO_TEST_CASE(all_reduce_of_sixteen_bits) {
    const int own = session->rank(), ranks = session->size(), count = 211;
    for (const SixteenBits& kind : sixteen_bits)
        for (const Reduce operation : {Reduce::sum, Reduce::maximum, Reduce::minimum}) {
            std::vector<std::uint16_t> bits;
            for (int i = 0; i < count; ++i) bits.push_back(kind.bits(fraction(own, i)));
            const Values<std::uint16_t> values(kind.type, bits);
            world().all_reduce(values, operation);
            const std::vector<std::uint16_t> got = values.get();
            for (int i = 0; i < count; ++i) {
                double sum = 0, magnitude = 0, least = 1e9, greatest = -1e9;
                for (int rank = 0; rank < ranks; ++rank) {
                    const auto term = static_cast<double>(kind.value(kind.bits(fraction(rank, i))));
                    sum += term;
                    magnitude += std::abs(term);
                    least = std::min(least, term);
                    greatest = std::max(greatest, term);
                }
                const auto found = static_cast<double>(kind.value(got[static_cast<std::size_t>(i)]));
                const double wanted = operation == Reduce::sum ? sum : operation == Reduce::maximum ? greatest : least;
                // One addition is rounded once, to nearest even; a maximum not at all.
                if (ranks <= 2 || operation != Reduce::sum)
                    BOOST_TEST(found == static_cast<double>(kind.value(kind.bits(static_cast<float>(wanted)))));
                else
                    BOOST_TEST(std::abs(found - wanted) <= (ranks - 1) * kind.epsilon * magnitude);
            }
        }
}

BOOST_AUTO_TEST_CASE(reduce_scatter_of_all_kinds_of_parts) {
    const std::vector<int> all = everyone();
    for (const auto& cuts : cuts_among(session->size())) {
        const Values<float> values(Type::fp32, numbers(session->rank(), cuts.back()));
        world().begin_reduce_scatter(values, cuts);
        world().finish_collectives();
        const std::vector<float> got = values.get();
        const auto own = static_cast<std::size_t>(session->rank());
        for (std::int64_t i = cuts[own]; i < cuts[own + 1]; ++i)
            BOOST_TEST(got[static_cast<std::size_t>(i)] == sum_over(all, i));
    }
    // Two bytes, whose sums are this program's own operation.
    for (const auto& cuts : cuts_among(session->size())) {
        std::vector<std::uint16_t> ones(static_cast<std::size_t>(cuts.back()), bf16_bits(1));
        const Values<std::uint16_t> halves(Type::bf16, ones);
        world().begin_reduce_scatter(halves, cuts);
        world().finish_collectives();
        const std::vector<std::uint16_t> got = halves.get();
        const auto own = static_cast<std::size_t>(session->rank());
        for (std::int64_t i = cuts[own]; i < cuts[own + 1]; ++i)
            BOOST_TEST(bf16_value(got[static_cast<std::size_t>(i)]) == static_cast<float>(session->size()));
    }
    // Another type: whole numbers are exact.
    const Values<std::int32_t> integers(Type::int32, std::vector<std::int32_t>(all.size(), session->rank() + 1));
    std::vector<std::int64_t> ones(all.size() + 1);
    std::iota(ones.begin(), ones.end(), 0);
    world().begin_reduce_scatter(integers, ones);
    world().finish_collectives();
    const auto ranks = static_cast<std::int32_t>(all.size());
    BOOST_TEST(integers.get()[static_cast<std::size_t>(session->rank())] == ranks * (ranks + 1) / 2);
}

BOOST_AUTO_TEST_CASE(all_gather_of_all_kinds_of_parts) {
    const int own = session->rank();
    for (const auto& cuts : cuts_among(session->size())) {
        std::vector<float> floats(static_cast<std::size_t>(cuts.back()), -1000.0f), wanted = floats;
        for (int owner = 0; owner < session->size(); ++owner)
            for (auto i = cuts[static_cast<std::size_t>(owner)]; i < cuts[static_cast<std::size_t>(owner) + 1]; ++i) {
                wanted[static_cast<std::size_t>(i)] = number(owner, i);
                if (owner == own) floats[static_cast<std::size_t>(i)] = number(owner, i);
            }
        const auto halves_of = [](const std::vector<float>& values) {
            std::vector<std::uint16_t> bits;
            for (const float value : values) bits.push_back(bf16_bits(value));
            return bits;
        };
        const Values<float> values(Type::fp32, floats);
        const Values<std::uint16_t> halves(Type::bf16, halves_of(floats));
        world().begin_all_gather(values, cuts);
        world().begin_all_gather(halves, cuts);
        world().finish_collectives();
        BOOST_TEST(values.get() == wanted);
        BOOST_TEST(halves.get() == halves_of(wanted));
    }
}

BOOST_AUTO_TEST_CASE(collectives_run_in_the_order_of_their_beginning) {
    const std::vector<int> all = everyone();
    for (const auto& cuts : cuts_among(session->size())) {
        const std::int64_t count = cuts.back();
        const Values<float> values(Type::fp32, numbers(session->rank(), count));
        const Values<float> other(Type::fp32, numbers(session->rank(), 77));
        world().begin_reduce_scatter(values, cuts);
        world().begin_all_reduce(other, Reduce::sum);
        world().begin_all_gather(values, cuts);
        world().begin_all_reduce(values, Reduce::maximum);
        world().finish_collectives();
        BOOST_TEST(values.get() == sums_over(all, count));
        BOOST_TEST(other.get() == sums_over(all, 77));
    }
}

BOOST_AUTO_TEST_CASE(collectives_in_the_sync_mode_collective) {
    set_sync_mode(SyncMode::collective);
    const std::vector<int> all = everyone();
    std::vector<std::int64_t> cuts = cuts_among(session->size())[1];
    const Values<float> values(Type::fp32, numbers(session->rank(), cuts.back()));
    world().begin_reduce_scatter(values, cuts);
    world().begin_all_gather(values, cuts);
    world().finish_collectives();
    set_sync_mode(SyncMode::async);
    BOOST_TEST(values.get() == sums_over(all, cuts.back()));
}

BOOST_AUTO_TEST_CASE(ring_of_messages, *at_least(2)) {
    const int own = session->rank(), ranks = session->size();
    const int next = (own + 1) % ranks, previous = (own + ranks - 1) % ranks;
    for (const SyncMode mode : {SyncMode::async, SyncMode::collective})
        for (const std::int64_t count : {1, 63, 4099}) {
            set_sync_mode(mode);
            const Values<float> sent(Type::fp32, numbers(own, count)), got(Type::fp32, numbers(99, count));
            const auto receive = world().begin_receive(got, previous, 5), send = world().begin_send(sent, next, 5);
            receive->wait();
            send->wait();
            set_sync_mode(SyncMode::async);
            BOOST_TEST(got.get() == numbers(previous, count));
            BOOST_TEST(sent.get() == numbers(own, count));
        }
}

// Both ranks of a pair send before they receive, or receive before they send.
BOOST_AUTO_TEST_CASE(messages_cross, *at_least(2)) {
    const int own = session->rank(), other = own ^ 1;
    if (other >= session->size()) return;
    for (const bool sends_first : {true, false}) {
        const Values<float> sent(Type::fp32, numbers(own, 5003)), got(Type::fp32, numbers(99, 5003));
        std::unique_ptr<cluster::Transfer> send, receive;
        if (sends_first) send = world().begin_send(sent, other, 1);
        receive = world().begin_receive(got, other, 1);
        if (!sends_first) send = world().begin_send(sent, other, 1);
        (sends_first ? send : receive)->wait();
        (sends_first ? receive : send)->wait();
        BOOST_TEST(got.get() == numbers(other, 5003));
        BOOST_TEST(sent.get() == numbers(own, 5003));
    }
}

BOOST_AUTO_TEST_CASE(messages_keep_their_order_and_may_be_waited_for_in_any, *at_least(2)) {
    constexpr int messages = 6;
    const int own = session->rank(), last = session->size() - 1;
    if (own != 0 && own != last) return;
    const int other = last - own;
    std::vector<std::unique_ptr<Values<float>>> sent, got;
    std::vector<std::unique_ptr<cluster::Transfer>> sends, receives;
    for (int i = 0; i < messages; ++i) {
        sent.push_back(std::make_unique<Values<float>>(Type::fp32, numbers(own * messages + i, 129)));
        got.push_back(std::make_unique<Values<float>>(Type::fp32, numbers(99, 129)));
        const int tag = i / 2 * 16383;  // 0, 0, 16383, 16383, 32766, 32766
        sends.push_back(world().begin_send(*sent.back(), other, tag));
        receives.push_back(world().begin_receive(*got.back(), other, tag));
    }
    for (const int i : {4, 0, 5, 2, 1, 3}) {
        receives[static_cast<std::size_t>(i)]->wait();
        BOOST_TEST(got[static_cast<std::size_t>(i)]->get() == numbers(other * messages + i, 129));
    }
    for (const int i : {3, 5, 1, 0, 4, 2}) {
        sends[static_cast<std::size_t>(i)]->wait();
        BOOST_TEST(sent[static_cast<std::size_t>(i)]->get() == numbers(own * messages + i, 129));
    }
}

// A rank in the middle receives the next message before it sends on what it has, as a pipeline does.
BOOST_AUTO_TEST_CASE(messages_through_a_pipeline, *at_least(2)) {
    constexpr int messages = 4;
    constexpr std::int64_t count = 333;
    const int own = session->rank(), last = session->size() - 1;
    std::vector<std::unique_ptr<Values<float>>> values;
    for (int i = 0; i < messages; ++i)
        values.push_back(std::make_unique<Values<float>>(Type::fp32, numbers(own == 0 ? i : 99, count)));
    const auto tensor = [&](int i) -> Tensor { return *values[static_cast<std::size_t>(i)]; };
    std::vector<std::unique_ptr<cluster::Transfer>> sends;
    std::unique_ptr<cluster::Transfer> coming, came;
    if (own > 0) coming = world().begin_receive(tensor(0), own - 1, 0);
    for (int i = 0; i < messages; ++i) {
        came = std::move(coming);
        if (own > 0 && i + 1 < messages) coming = world().begin_receive(tensor(i + 1), own - 1, i + 1);
        if (came) came->wait();
        if (own < last) sends.push_back(world().begin_send(tensor(i), own + 1, i));
    }
    for (const auto& send : sends) send->wait();
    for (int i = 0; i < messages; ++i) BOOST_TEST(values[static_cast<std::size_t>(i)]->get() == numbers(i, count));
}

// The second message goes only when the first has come round the ring, and every rank awaits it before it sends the
// first on: a send that waits for a receive begun before it hangs.
BOOST_AUTO_TEST_CASE(sends_do_not_wait_for_receives, *at_least(2)) {
    const int own = session->rank(), ranks = session->size();
    for (const int step : {1, ranks - 1}) {
        const int next = (own + step) % ranks, previous = (own + ranks - step) % ranks;
        const Values<float> first(Type::fp32, numbers(own == 0 ? 1 : 99, 513));
        const Values<float> second(Type::fp32, numbers(own == 0 ? 2 : 99, 515));
        const Values<float> back(Type::fp32, numbers(99, 513)), again(Type::fp32, numbers(99, 515));
        std::vector<std::unique_ptr<cluster::Transfer>> sends;
        if (own == 0) {
            sends.push_back(world().begin_send(first, next, 0));
            const auto came = world().begin_receive(back, previous, 0);
            const auto coming = world().begin_receive(again, previous, 0);
            came->wait();
            sends.push_back(world().begin_send(second, next, 0));
            coming->wait();
            BOOST_TEST(back.get() == numbers(1, 513));
            BOOST_TEST(again.get() == numbers(2, 515));
        } else {
            const auto came = world().begin_receive(first, previous, 0);
            came->wait();
            const auto coming = world().begin_receive(second, previous, 0);
            sends.push_back(world().begin_send(first, next, 0));
            coming->wait();
            sends.push_back(world().begin_send(second, next, 0));
        }
        for (const auto& send : sends) send->wait();
        BOOST_TEST(first.get() == numbers(1, 513));
        BOOST_TEST(second.get() == numbers(2, 515));
    }
}

// A rank awaits the answer of the next one before the question that it will hand on.
BOOST_AUTO_TEST_CASE(directions_do_not_wait_for_each_other, *at_least(3)) {
    const int own = session->rank();
    if (own > 2) return;
    const Values<float> question(Type::fp32, numbers(own == 0 ? 1 : 99, 217));
    const Values<float> answer(Type::fp32, numbers(own == 2 ? 2 : 99, 219));
    std::vector<std::unique_ptr<cluster::Transfer>> transfers;
    if (own == 0) transfers.push_back(world().begin_send(question, 1, 0));
    if (own == 1) {
        transfers.push_back(world().begin_receive(answer, 2, 0));
        world().begin_receive(question, 0, 0)->wait();
        transfers.push_back(world().begin_send(question, 2, 0));
    }
    if (own == 2) {
        world().begin_receive(question, 1, 0)->wait();
        transfers.push_back(world().begin_send(answer, 1, 0));
    }
    for (const auto& transfer : transfers) transfer->wait();
    BOOST_TEST(question.get() == numbers(1, 217));
    if (own > 0) BOOST_TEST(answer.get() == numbers(2, 219));
}

BOOST_AUTO_TEST_CASE(messages_that_may_not_be, *at_least(2)) {
    const int own = session->rank(), other = own == 0 ? 1 : 0;
    const Values<float> values(Type::fp32, numbers(own, 3));
    BOOST_CHECK_THROW(world().begin_send(values, own, 0), Error);
    BOOST_CHECK_THROW(world().begin_receive(values, own, 0), Error);
    BOOST_CHECK_THROW(world().begin_receive(values, other, 32768), Error);
    BOOST_CHECK_THROW(world().begin_send(values, session->size(), 0), Error);
    const auto collectives = carrier->source().make(everyone());
    BOOST_CHECK_THROW(collectives->begin_send(values, other, 0), Error);
    // Nothing of nothing.
    const auto send = world().begin_send(values.slice(1, 0), (own + 1) % session->size(), 0);
    const auto receive = world().begin_receive(values.slice(2, 0), (own + session->size() - 1) % session->size(), 0);
    receive->wait();
    send->wait();
}

// At every distance, all around the ring at once; messages between the same ranks arrive in order. Then rank 0 sends
// nothing, and in an exchange nobody does.
BOOST_AUTO_TEST_CASE(messages_of_an_exchange_do_not_wait_for_each_other, *at_least(2)) {
    const int own = session->rank(), ranks = session->size();
    for (int distance = 1; distance < ranks; ++distance)
        for (const bool silent : {false, true}) {
            const SyncMode mode = silent ? SyncMode::async : SyncMode::collective;
            set_sync_mode(mode);
            const int next = (own + distance) % ranks, previous = (own + ranks - distance) % ranks;
            const Values<float> sent(Type::fp32, numbers(own, 4099)), also(Type::fp32, numbers(own + 50, 3)),
                got(Type::fp32, numbers(99, 4099)), more(Type::fp32, numbers(99, 3));
            std::vector<cluster::Message> messages;
            const auto sends = [&](int rank) { return rank != 0 || !silent; };
            if (sends(previous)) messages = {{got, previous, false}, {more, previous, false}};
            if (sends(own)) messages.insert(messages.end(), {{sent, next, true}, {also, next, true}});
            const auto transfer = world().begin_exchange(messages, 3);
            const auto another = world().begin_exchange({}, 3);
            transfer->wait();
            another->wait();
            set_sync_mode(SyncMode::async);
            BOOST_TEST(got.get() == numbers(sends(previous) ? previous : 99, 4099));
            BOOST_TEST(more.get() == numbers(sends(previous) ? previous + 50 : 99, 3));
        }
}

BOOST_AUTO_TEST_CASE(exchange_meets_no_other_message, *at_least(2)) {
    const int own = session->rank(), ranks = session->size();
    const int next = (own + 1) % ranks, previous = (own + ranks - 1) % ranks;
    const Values<float> sent(Type::fp32, numbers(own, 7)), got(Type::fp32, numbers(99, 7));
    std::vector<std::int32_t> here(7, own), there(7, -1);
    const auto send = world().begin_send(sent, next, 0);
    const auto host = session->make_world_group();
    host->exchange({{previous, there.data(), 28}}, {{next, here.data(), 28}});
    const auto receive = world().begin_receive(got, previous, 0);
    send->wait();
    receive->wait();
    BOOST_TEST(there == std::vector<std::int32_t>(7, previous));
    BOOST_TEST(got.get() == numbers(previous, 7));
    BOOST_TEST(sent.get() == numbers(own, 7));
}

int main(int argc, char** argv) {
    // Small messages go in pieces, and no send ends before its receive has begun.
    setenv("LOCKSTEP_MPI_PIECE_BYTES", "1000", 0);
    setenv("LOCKSTEP_SYNCHRONOUS_SENDS", "1", 0);
    cluster::Session started(&argc, &argv);
    session = &started;
    return started.run([&] {
        const auto made = test::make_carrier(started);
        carrier = made.get();
        of_all_ranks = carrier->source().make(everyone(), Use::transfers);
        const int result = boost::unit_test::unit_test_main(init_unit_test, argc, argv);
        of_all_ranks.reset();
        return result;
    });
}
