#include "calibrate/self_test.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "calibrate/peak.hpp"
#include "checkpoint/probe.hpp"
#include "cluster/agree.hpp"
#include "watch/run_folder.hpp"

namespace lockstep::calibrate {
namespace {

constexpr double product_seconds = 0.05;
constexpr std::int64_t smallest_bytes = std::int64_t{1} << 18;
constexpr std::int64_t largest_bytes_on_cpus = std::int64_t{1} << 24, largest_bytes_on_gpus = std::int64_t{1} << 26;
constexpr double repeated_seconds = 0.03, latency_seconds = 3e-3;
// Slow rates are measured again while there is time: another program may have disturbed them.
constexpr int most_rounds = 3;
constexpr double time_for_more_seconds = 0.6;

std::string own_name(const SelfTest& test) {
    return fmt::format("rank {} (host {})", test.session.rank(), test.session.place().host);
}

// A product of small integers, which every type represents exactly.
std::optional<Error> check_product(const SelfTest& test) {
    constexpr std::int64_t size = 96;
    const auto left = [](std::int64_t row, std::int64_t k) { return static_cast<float>((3 * row + k) % 5 - 2); };
    const auto right = [](std::int64_t column, std::int64_t k) { return static_cast<float>((column + 2 * k) % 7 - 3); };
    kernels::Backend& backend = *test.devices.backend;
    Tensor a32, b32, a, b, c;
    const Arena memory = planned(backend.device(), "the self-test", [&](Arena& arena) {
        for (Tensor* matrix : {&a32, &b32, &c}) *matrix = arena.allocate(Type::fp32, {size, size});
        for (Tensor* matrix : {&a, &b}) *matrix = arena.allocate(test.compute, {size, size});
    });
    std::vector<float> x(size * size), y(size * size), found(size * size);
    for (std::int64_t row = 0; row < size; ++row)
        for (std::int64_t k = 0; k < size; ++k) {
            x[static_cast<std::size_t>(row * size + k)] = left(row, k);
            y[static_cast<std::size_t>(row * size + k)] = right(row, k);
        }
    backend.upload(a32, x.data());
    backend.upload(b32, y.data());
    backend.copy(a, a32);
    backend.copy(b, b32);
    backend.product(c, a, kernels::Transpose::no, b, kernels::Transpose::yes, kernels::Accumulate::no);
    backend.download(found.data(), c);
    if (fault::at("self_test_product") == "wrong") found[size + 1] += 1;
    for (std::int64_t row = 0; row < size; ++row)
        for (std::int64_t column = 0; column < size; ++column) {
            float expected = 0;
            for (std::int64_t k = 0; k < size; ++k) expected += left(row, k) * right(column, k);
            const float value = found[static_cast<std::size_t>(row * size + column)];
            if (value == expected) continue;
            return fault_error(
                "{}: row {}, column {} of a matrix product of {} x {} numbers is {} instead of {}, so its processor, "
                "its GPU or its memory is faulty; leave this node out and launch again with --resume auto",
                own_name(test), row, column, size, size, value, expected);
        }
    return std::nullopt;
}

// Measures one kind within the group of this rank.
class GroupTest {
  public:
    GroupTest(const SelfTest& test, RateKind kind, cluster::Communicator& group, Arena& memory)
        : test_(test), kind_(kind), reduces_(kind < context_messages), group_(group), backend_(*test.devices.backend) {
        slowest_ = memory.allocate(Type::fp64, {1});
        const auto half = static_cast<std::int64_t>((memory.capacity() - Arena::device_alignment) / 2 / sizeof(float));
        values_ = memory.allocate(Type::fp32, {half});
        received_ = memory.allocate(Type::fp32, {half});
    }

    MeasuredRate measure() {
        // Sums of zeros stay zero. Memory is zeroed except where a check has been.
        backend_.fill(values_.slice(0, checked), 0);
        MeasuredRate measured = rate(checked, values_.count(), repeated_seconds);
        if (reduces_) measured.latency = rate(2, 2, latency_seconds).seconds;
        return measured;
    }

    std::optional<Error> check() {
        std::vector<float> numbers(checked);
        for (std::size_t i = 0; i < checked; ++i) numbers[i] = number(group_.rank(), i);
        const Tensor part = values_.slice(0, checked);
        backend_.upload(part, numbers.data());
        communicate(part);
        backend_.download(numbers.data(), reduces_ ? part : received_.slice(0, checked));
        if (reduces_ && fault::at("self_test_all_reduce") == "wrong") numbers[5] += 1;
        for (std::size_t i = 0; i < checked; ++i) {
            const float right = expected(i);
            if (numbers[i] == right) continue;
            const auto ranks = measured_together(kind_, test_.session.rank(), test_.grid);
            return fault_error(
                "{}: {} over ranks {} gave {} for element {} instead of {}, so a link or the memory of one of their "
                "nodes is faulty; leave this node out, then, if that does not help, the nodes of the other ranks, and "
                "launch again with --resume auto",
                own_name(test_), rate_name(kind_), fmt::join(ranks, ", "), numbers[i], i, right);
        }
        return std::nullopt;
    }

  private:
    static constexpr std::int64_t checked = smallest_bytes / sizeof(float);

    // Integers whose sums over a hundred thousand ranks are exact in fp32.
    static float number(int rank, std::size_t i) { return static_cast<float>(rank % 61 + static_cast<int>(i % 97)); }

    // Gradients travel down the ring of ranks, all else up.
    int neighbour(int steps) const {
        const int ranks = kind_ == gradient_messages ? -steps : steps;
        return (group_.rank() + group_.size() + ranks) % group_.size();
    }
    void communicate(Tensor part) {
        if (reduces_) return group_.all_reduce(part, cluster::Reduce::sum);
        const auto receive = group_.begin_receive(received_.slice(0, part.count()), neighbour(-1), 0);
        const auto send = group_.begin_send(part, neighbour(1), 0);
        receive->wait();
        send->wait();
    }
    // The result of `communicate` for number(rank, i) of each rank.
    float expected(std::size_t i) const {
        if (!reduces_) return number(neighbour(-1), i);
        float sum = 0;
        for (int rank = 0; rank < group_.size(); ++rank) sum += number(rank, i);
        return sum;
    }

    // Times are the slowest rank's, so that all ranks stop at the same size.
    MeasuredRate rate(std::int64_t first, std::int64_t last, double seconds) {
        return best_rate(first, last, 4, seconds, [&](std::int64_t count) {
            const Tensor part = values_.slice(0, count);
            static_cast<void>(maximum(0));  // all ranks begin together
            const double took = std::max(maximum(seconds_of(backend_, [&] { communicate(part); })), 1e-9);
            return MeasuredRate{static_cast<double>(part.bytes()) / took, 0, took};
        });
    }

    // Over the group's ranks.
    double maximum(double value) {
        backend_.upload(slowest_, &value);
        group_.all_reduce(slowest_, cluster::Reduce::maximum);
        backend_.download(&value, slowest_);
        return value;
    }

    const SelfTest& test_;
    RateKind kind_;
    bool reduces_;  // or sends messages
    cluster::Communicator& group_;
    kernels::Backend& backend_;
    Tensor values_, received_, slowest_;
};

// All ranks go through the kinds in this order. The groups of a kind are disjoint, so there is no deadlock.
void test_groups(const SelfTest& test, bool check, RankRates& rates, std::optional<Error>& problem) {
    const auto bytes = static_cast<std::size_t>(test.devices.on_gpu() ? largest_bytes_on_gpus : largest_bytes_on_cpus);
    struct Entry {
        RateKind kind;
        cluster::Communicator* group;
    };
    const std::array<Entry, 7> entries = {{{tensor_reduction, test.groups.tensor.get()},
                                           {replica_reduction, test.groups.replicas.get()},
                                           {model_reduction, test.groups.model.get()},
                                           {end_reduction, test.groups.ends.get()},
                                           {context_messages, test.groups.context.get()},
                                           {activation_messages, test.groups.activations.get()},
                                           {gradient_messages, test.groups.gradients.get()}}};
    const bool any = std::any_of(entries.begin(), entries.end(),
                                 [](const Entry& entry) { return entry.group && entry.group->size() > 1; });
    if (!any) return;
    Arena memory(test.devices.backend->device(), 2 * bytes + Arena::device_alignment, "the self-test");
    for (const auto& [kind, group] : entries) {
        if (!group || group->size() == 1) continue;
        memory.release(0);
        GroupTest of_group(test, kind, *group, memory);
        if (check) {
            const auto wrong = of_group.check();
            if (!problem) problem = wrong;
        }
        keep_best(rates[kind], of_group.measure());
    }
}

struct Sent {
    RankRates rates;
    std::array<char, 64> host;
};

RateTable table_of(const std::vector<char>& gathered, const config::Grid& grid) {
    std::vector<RankRates> rates;
    std::vector<std::string> hosts;
    for (std::size_t at = 0; at < gathered.size(); at += sizeof(Sent)) {
        Sent sent;
        std::memcpy(&sent, gathered.data() + at, sizeof sent);
        rates.push_back(sent.rates);
        hosts.emplace_back(sent.host.data());
    }
    return make_table(rates, std::move(hosts), grid);
}

// Of rank 0.
struct Judgement {
    RateTable table;
    LaunchRates rates;
    std::vector<std::string> warnings;
};

Judgement judge(const SelfTest& test, const std::vector<char>& gathered, const std::optional<LaunchRates>& before,
                bool compares) {
    Judgement judgement;
    judgement.table = table_of(gathered, test.grid);
    judgement.rates = summarize(judgement.table);
    judgement.rates.time = utc_now();
    judgement.rates.device = test.devices.name;
    judgement.rates.precision = type_name(test.compute);
    if (!compares) return judgement;
    judgement.warnings = slow_ones(judgement.table);
    if (!before) return judgement;
    for (std::string& sentence : slower_than_before(judgement.rates, *before))
        judgement.warnings.push_back(std::move(sentence));
    return judgement;
}

std::optional<LaunchRates> rates_before(const SelfTest& test) {
    const std::string text = watch::RunFolder::read_rates(test.run_path);
    if (text.empty()) return std::nullopt;
    auto before = rates_from_json(text);
    if (!before)
        log::debug("{}/rates.json is malformed; rates are not compared with the previous launch", test.run_path);
    return before;
}

}  // namespace

FolderTest test_checkpoint_folder(const std::string& folder, const cluster::Session& session,
                                  cluster::HostGroup& control) {
    FolderTest test;
    const double start = seconds_now();
    cluster::together(control, [&] {
        if (session.place().local_rank != 0) return;
        try {
            const auto rate = checkpoint::probe_folder(folder, fmt::format("probe-{}.tmp", session.rank()));
            test.measured = {rate.bytes_per_second, 0, rate.seconds};
        } catch (const Error& error) {
            throw error.with_sentence(
                fmt::format("{} (rank {}, host {})", error.what(), session.rank(), session.place().host));
        }
    });
    test.seconds = seconds_now() - start;
    return test;
}

double run_self_test(const SelfTest& test) {
    const double start = seconds_now() - test.folder.seconds;
    const auto& place = test.session.place();
    const bool speaks = test.session.rank() == 0;
    fault::set_position(test.session.rank(), 0);
    // Ranks that share a core slow each other down.
    const bool compares = test.control.all_maximum(test.devices.placement.seat().shares_cores ? 1 : 0) == 0;
    const std::optional<LaunchRates> before = speaks && compares ? rates_before(test) : std::nullopt;

    Sent own{};
    std::memcpy(own.host.data(), place.host.data(), std::min(place.host.size(), own.host.size() - 1));
    own.rates[folder_rate] = test.folder.measured;
    std::optional<Error> problem = check_product(test);
    double flops = 0;
    Judgement judgement;
    for (int round = 1;; ++round) {
        test.control.barrier();
        const MeasuredRate products = measure_products(test.devices, test.compute, product_seconds);
        flops = std::max(flops, products.per_second);
        const double part = fault::at("self_test_product") == "slow" ? 1.0 / 3 : 1;
        keep_best(own.rates[product_rate], {products.per_second * part, 0, products.seconds});
        test_groups(test, round == 1, own.rates, problem);
        if (round == 1)
            if (const auto failure = cluster::agree(problem, test.control)) throw failure->error;
        const std::vector<char> gathered = test.control.gather(&own, sizeof own, 0);
        if (speaks) judgement = judge(test, gathered, before, compares);
        const bool in_time = round < most_rounds && seconds_now() - start < time_for_more_seconds;
        char again = !judgement.warnings.empty() && in_time ? 1 : 0;
        test.control.broadcast(&again, sizeof again, 0);
        if (again == 0) break;
    }
    if (!speaks) return flops;
    log::info("self-test in {:.2f} s{}: {}", seconds_now() - start,
              compares ? "" : " (ranks share cores and take turns)", rates_text(judgement.table));
    for (const std::string& sentence : judgement.warnings) log::warning("{}", sentence);
    watch::RunFolder::write_rates(test.run_path, to_json(judgement.rates));
    return flops;
}

}  // namespace lockstep::calibrate
