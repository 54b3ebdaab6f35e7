#include "doctor/measure_links.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "base/clock.hpp"
#include "device/memory.hpp"

namespace lockstep::doctor {
namespace {

constexpr std::size_t message_bytes = std::size_t{4} << 20, first_bytes = std::size_t{1} << 16;
constexpr std::size_t least_bytes = std::size_t{1} << 14;  // of a light message
// How long one link is measured, seconds, and how often.
constexpr double latency_seconds = 4e-3, rate_seconds = 30e-3, light_seconds = 1e-3;
constexpr int first_round_trips = 10, most_round_trips = 200, most_messages = 12, light_messages = 4;

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

int repetitions(double seconds, double of_one, int most) {
    return static_cast<int>(std::clamp(seconds / std::max(of_one, 1e-9), 0.0, static_cast<double>(most)));
}

// One of the two ranks of a link. The leader, the lower rank, times and decides how often.
class End {
  public:
    End(const Carriers& carriers, const Link& link)
        : carriers_(carriers),
          leads_(carriers.control.rank() == link.first),
          other_(leads_ ? link.second : link.first),
          sent_(message_bytes),
          received_(message_bytes) {}

    double latency() {
        std::vector<double> times = round_trips(first_round_trips);
        // The first ones make the connection.
        const auto settled = times.begin() + first_round_trips / 2;
        const double typical = median({settled, times.end()});
        const std::vector<double> more = round_trips(agreed(repetitions(latency_seconds, typical, most_round_trips)));
        times.erase(times.begin(), settled);
        times.insert(times.end(), more.begin(), more.end());
        return median(std::move(times)) / 2;
    }

    double rate() {
        both_ways(first_bytes);
        const double first = slower(both_ways(message_bytes));
        const int more = agreed(repetitions(rate_seconds, first, most_messages));
        std::vector<double> times;
        for (int i = 0; i < more; ++i) times.push_back(both_ways(message_bytes));
        for (double& seconds : times) seconds = slower(seconds);
        if (times.empty()) times.push_back(first);
        return static_cast<double>(message_bytes) / median(std::move(times));
    }

    // The best of a few messages: a rank that is not at its core when one comes says nothing of the link.
    double light_rate() {
        const auto best_of = [&](std::size_t bytes) {
            double best = slower(both_ways(bytes));
            for (int i = 1; i < light_messages; ++i) best = std::min(best, slower(both_ways(bytes)));
            return best;
        };
        const double first = best_of(least_bytes);
        const double fitting = static_cast<double>(least_bytes) * light_seconds / std::max(first, 1e-9);
        const auto bytes = static_cast<std::size_t>(
            std::clamp(fitting, static_cast<double>(least_bytes), static_cast<double>(message_bytes)));
        return static_cast<double>(bytes) / best_of(bytes);
    }

    // One direction after the other: the order that every transport of GPU memory takes.
    double gpu_rate() {
        const auto elements = static_cast<std::int64_t>(message_bytes / sizeof(float));
        Arena memory(carriers_.backend->device(), message_bytes + Arena::device_alignment, "the doctor");
        const Tensor values = memory.allocate(Type::fp32, {elements});
        const auto there_and_back = [&] {
            const double start = seconds_now();
            for (const bool sends : {leads_, !leads_}) {
                const auto transfer = sends ? carriers_.gpus->begin_send(values, other_, 0)
                                            : carriers_.gpus->begin_receive(values, other_, 0);
                transfer->wait();
            }
            carriers_.backend->synchronize();
            return seconds_now() - start;
        };
        static_cast<void>(there_and_back());  // makes the connection
        const int times = agreed(std::max(1, repetitions(rate_seconds, there_and_back(), most_messages)));
        std::vector<double> seconds;
        for (int i = 0; i < times; ++i) seconds.push_back(there_and_back());
        return 2 * static_cast<double>(message_bytes) / median(std::move(seconds));
    }

  private:
    std::vector<double> round_trips(int count) {
        std::vector<double> times;
        std::array<char, 8> out{}, in{};
        for (int i = 0; i < count; ++i) {
            const double start = seconds_now();
            if (leads_) {
                carriers_.control.exchange({{other_, in.data(), in.size()}}, {{other_, out.data(), out.size()}});
            } else {
                carriers_.control.exchange({{other_, in.data(), in.size()}}, {});
                carriers_.control.exchange({}, {{other_, out.data(), out.size()}});
            }
            times.push_back(seconds_now() - start);
        }
        return times;
    }

    double both_ways(std::size_t bytes) {
        const double start = seconds_now();
        carriers_.control.exchange({{other_, received_.data(), bytes}}, {{other_, sent_.data(), bytes}});
        return seconds_now() - start;
    }

    // What the leader says.
    int agreed(int count) {
        if (leads_)
            carriers_.control.exchange({}, {{other_, &count, sizeof count}});
        else
            carriers_.control.exchange({{other_, &count, sizeof count}}, {});
        return count;
    }

    // A side may be done while its message is still under way.
    double slower(double own) {
        double others = 0;
        carriers_.control.exchange({{other_, &others, sizeof others}}, {{other_, &own, sizeof own}});
        return std::max(own, others);
    }

    const Carriers& carriers_;
    bool leads_;
    int other_;
    std::vector<char> sent_, received_;
};

}  // namespace

std::vector<LinkRate> measure_links(const std::vector<std::vector<Link>>& rounds, const Carriers& carriers,
                                    Effort effort) {
    static_assert(std::is_trivially_copyable_v<LinkRate>);
    const int rank = carriers.control.rank();
    std::vector<LinkRate> own;
    for (const std::vector<Link>& round : rounds) {
        carriers.control.barrier();
        const auto link = std::find_if(round.begin(), round.end(),
                                       [&](const Link& one) { return one.first == rank || one.second == rank; });
        if (link == round.end()) continue;
        End end(carriers, *link);
        LinkRate measured{*link};
        if (effort == Effort::full) measured.latency = end.latency();
        measured.rate = effort == Effort::full ? end.rate() : end.light_rate();
        if (effort == Effort::full && carriers.gpus) measured.gpu_rate = end.gpu_rate();
        if (link->first == rank) own.push_back(measured);
    }
    const std::vector<char> bytes = carriers.control.all_gather_bytes(own.data(), own.size() * sizeof(LinkRate));
    std::vector<LinkRate> all(bytes.size() / sizeof(LinkRate));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
}

LinkRate better(const LinkRate& a, const LinkRate& b) {
    return {a.link, std::min(a.latency, b.latency), std::max(a.rate, b.rate), std::max(a.gpu_rate, b.gpu_rate)};
}

}  // namespace lockstep::doctor
