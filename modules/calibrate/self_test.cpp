#include "calibrate/self_test.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
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
// What is reduced or sent grows until it takes so long, or is so large; the last is repeated for a while.
constexpr std::int64_t smallest_bytes = std::int64_t{1} << 18;
constexpr std::int64_t largest_bytes_on_cpus = std::int64_t{1} << 24, largest_bytes_on_gpus = std::int64_t{1} << 26;
constexpr double long_enough_seconds = 2e-3, repeated_seconds = 0.03, latency_seconds = 3e-3;
constexpr int most_repetitions = 20;
// What looks slow is measured again while there is time: another program may have been in the way.
constexpr int most_rounds = 3;
constexpr double time_for_more_seconds = 0.6;

std::string own_name(const SelfTest& test) {
    return fmt::format("rank {} (host {})", test.session.rank(), test.session.place().host);
}

// A product of small whole numbers, which every type has exactly.
std::optional<Error> check_product(const SelfTest& test) {
    constexpr std::int64_t size = 96;
    const auto left = [](std::int64_t row, std::int64_t k) { return static_cast<float>((3 * row + k) % 5 - 2); };
    const auto right = [](std::int64_t column, std::int64_t k) { return static_cast<float>((column + 2 * k) % 7 - 3); };
    kernels::Backend& backend = *test.devices.backend;
    Tensor a32, b32, a, b, c;
    const auto plan = [&](Arena& arena) {
        a32 = arena.allocate(Type::fp32, {size, size});
        b32 = arena.allocate(Type::fp32, {size, size});
        c = arena.allocate(Type::fp32, {size, size});
        a = arena.allocate(test.compute, {size, size});
        b = arena.allocate(test.compute, {size, size});
    };
    Arena measure(backend.device());
    plan(measure);
    Arena memory(backend.device(), measure.peak(), "the self-test");
    plan(memory);
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
                "{}: row {}, column {} of a matrix product of {} x {} numbers is {} and not {}, so its processor, its "
                "GPU or its memory is faulty; leave this node out and start again with --resume auto",
                own_name(test), row, column, size, size, value, expected);
        }
    return std::nullopt;
}

// Measures one kind within the group of this rank.
class GroupTest {
  public:
    GroupTest(const SelfTest& test, RateKind kind, cluster::Communicator& group, Arena& memory)
        : test_(test), kind_(kind), group_(group), backend_(*test.devices.backend) {
        slowest_ = memory.allocate(Type::fp64, {1});
        const auto half = static_cast<std::int64_t>((memory.capacity() - Arena::device_alignment) / 2 / sizeof(float));
        values_ = memory.allocate(Type::fp32, {half});
        received_ = memory.allocate(Type::fp32, {half});
    }

    Measurement measure_reduction() {
        // Sums of zeros stay what they are. Memory is zeroed but where a check has been.
        backend_.fill(values_.slice(0, checked), 0);
        const auto reduce = [&](Tensor part) { group_.all_reduce(part, cluster::Reduce::sum); };
        Measurement measured = rate(reduce);
        const Tensor eight_bytes = values_.slice(0, 2);
        double spent = 0;
        measured.latency = std::numeric_limits<double>::max();
        for (int i = 0; i < most_repetitions && spent < latency_seconds; ++i) {
            const double seconds = timed([&] { reduce(eight_bytes); });
            spent += seconds;
            measured.latency = std::min(measured.latency, seconds);
        }
        return measured;
    }

    Measurement measure_messages() {
        return rate([&](Tensor part) { pass_on(part); });
    }

    std::optional<Error> check_reduction() {
        std::vector<float> numbers(checked);
        for (std::size_t i = 0; i < checked; ++i) numbers[i] = number(group_.rank(), i);
        const Tensor part = values_.slice(0, checked);
        backend_.upload(part, numbers.data());
        group_.all_reduce(part, cluster::Reduce::sum);
        backend_.download(numbers.data(), part);
        if (fault::at("self_test_all_reduce") == "wrong") numbers[5] += 1;
        return compare(numbers, [&](std::size_t i) {
            float sum = 0;
            for (int rank = 0; rank < group_.size(); ++rank) sum += number(rank, i);
            return sum;
        });
    }

    std::optional<Error> check_messages() {
        std::vector<float> numbers(checked);
        for (std::size_t i = 0; i < checked; ++i) numbers[i] = number(group_.rank(), i);
        const Tensor part = values_.slice(0, checked);
        backend_.upload(part, numbers.data());
        pass_on(part);
        backend_.download(numbers.data(), received_.slice(0, checked));
        return compare(numbers, [&](std::size_t i) { return number(before(), i); });
    }

  private:
    static constexpr std::size_t checked = smallest_bytes / sizeof(float);

    // Whole numbers whose sums over a hundred thousand ranks fp32 holds exactly.
    static float number(int rank, std::size_t i) { return static_cast<float>(rank % 61 + static_cast<int>(i % 97)); }

    // Gradients travel down the ring of ranks, all else up.
    int after() const {
        const int step = kind_ == gradient_messages ? group_.size() - 1 : 1;
        return (group_.rank() + step) % group_.size();
    }
    int before() const {
        const int step = kind_ == gradient_messages ? 1 : group_.size() - 1;
        return (group_.rank() + step) % group_.size();
    }
    void pass_on(Tensor part) {
        const auto receive = group_.begin_receive(received_.slice(0, part.count()), before(), 0);
        const auto send = group_.begin_send(part, after(), 0);
        receive->wait();
        send->wait();
    }

    // Seconds of the slowest rank of the group: the same on all of them, so that they go on alike.
    double timed(const std::function<void()>& body) {
        static_cast<void>(maximum(0));  // all ranks begin together
        const double start = seconds_now();
        body();
        backend_.synchronize();
        return std::max(maximum(seconds_now() - start), 1e-9);
    }

    // Over the group's ranks.
    double maximum(double value) {
        backend_.upload(slowest_, &value);
        group_.all_reduce(slowest_, cluster::Reduce::maximum);
        backend_.download(&value, slowest_);
        return value;
    }

    // The best of the rounds of one size: smaller ones stay in caches, larger ones take too long.
    Measurement rate(const std::function<void(Tensor)>& body) {
        auto count = static_cast<std::int64_t>(checked);
        body(values_.slice(0, count));  // a warm-up: carriers make their connections at the first use
        const auto once = [&] {
            const Tensor part = values_.slice(0, count);
            const double seconds = timed([&] { body(part); });
            return Measurement{static_cast<double>(part.bytes()) / seconds, 0, seconds};
        };
        Measurement best;
        // Three rounds each: one may have been disturbed, and then a size would do that is none.
        for (;; count *= 4) {
            best = once();
            for (int i = 0; i < 2; ++i) keep_best(best, once());
            if (best.seconds >= long_enough_seconds || count * 4 > values_.count()) break;
        }
        double spent = 0;
        for (int i = 0; i < most_repetitions && spent < repeated_seconds; ++i) {
            const Measurement again = once();
            spent += again.seconds;
            keep_best(best, again);
        }
        return best;
    }

    std::optional<Error> compare(const std::vector<float>& found, const std::function<float(std::size_t)>& expected) {
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (found[i] == expected(i)) continue;
            const auto ranks = measured_together(kind_, test_.session.rank(), test_.grid);
            return fault_error(
                "{}: {} over the ranks {} gave {} for number {}, and not {}, so a link or the memory of one of their "
                "nodes is faulty; leave this node out, and if that does not help the others of these ranks, and start "
                "again with --resume auto",
                own_name(test_), rate_name(kind_), fmt::join(ranks, ", "), found[i], i, expected(i));
        }
        return std::nullopt;
    }

    const SelfTest& test_;
    RateKind kind_;
    cluster::Communicator& group_;
    kernels::Backend& backend_;
    Tensor values_, received_, slowest_;
};

// All ranks go through the kinds in this order. The groups of a kind have no rank in common, so none waits in a circle.
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
        const bool messages = kind >= context_messages;
        if (check) {
            const auto wrong = messages ? of_group.check_messages() : of_group.check_reduction();
            if (!problem) problem = wrong;
        }
        keep_best(rates[kind], messages ? of_group.measure_messages() : of_group.measure_reduction());
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
    if (!before) log::debug("{}/rates.json cannot be understood; the rates are not compared with it", test.run_path);
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
            throw Error(error.code(),
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
    // Ranks that share a core measure each other.
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
        const ProductRate products = measure_products(test.devices, test.compute, product_seconds);
        flops = std::max(flops, products.flops);
        const double part = fault::at("self_test_product") == "slow" ? 1.0 / 3 : 1;
        keep_best(own.rates[product_rate], {products.flops * part, 0, products.seconds});
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
              compares ? "" : " (ranks share cores, each has them for itself in turn)", rates_text(judgement.table));
    for (const std::string& sentence : judgement.warnings) log::warning("{}", sentence);
    watch::RunFolder::write_rates(test.run_path, to_json(judgement.rates));
    return flops;
}

}  // namespace lockstep::calibrate
