// What the self-test has measured on all ranks: the line in the log, what is out of the ordinary, and the file that the
// next launch compares itself with.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster/process_grid.hpp"

namespace lockstep::calibrate {

// In the order in which all ranks measure them.
enum RateKind : std::size_t {
    product_rate,
    tensor_reduction,
    replica_reduction,
    model_reduction,
    end_reduction,
    context_messages,
    activation_messages,
    gradient_messages,
    folder_rate,
    rate_kinds
};
const char* rate_name(RateKind kind);  // "matrix products", "all-reduce of replicas", …
// The ranks that measure this kind together with `rank`, ascending; itself alone for products and the folder.
std::vector<int> measured_together(RateKind kind, int rank, const config::Grid& shape);

struct Measurement {
    double per_second = 0;  // floating-point operations or bytes; 0 where nothing was measured
    double latency = 0;     // seconds for 8 bytes; of reductions only
    double seconds = 0;     // that the one took from which per_second comes
};
// Keeps the better of the two.
void keep_best(Measurement& best, const Measurement& other);

using RankRates = std::array<Measurement, rate_kinds>;  // what one rank has measured

struct MeasuredGroup {
    std::vector<int> ranks;
    Measurement measured;
};
struct RateTable {
    std::vector<std::string> hosts;  // of every rank
    std::array<std::vector<MeasuredGroup>, rate_kinds> groups;
};
RateTable make_table(const std::vector<RankRates>& of_ranks, std::vector<std::string> hosts, const config::Grid& shape);

// "matrix products 61.0 GFLOP/s a rank (lowest 58.0 GFLOP/s); all-reduce of replicas 1.9 GB/s, 12 us; …"
std::string rates_text(const RateTable& table);

// A sentence for every rank or group that is below 70 % of the median of its kind; the median of two is the faster one.
// Where the measured time is too short to mean anything there is none.
std::vector<std::string> slow_ones(const RateTable& table);

// What a launch leaves for the next one.
struct LaunchRates {
    struct Kind {
        double median = 0, lowest = 0, latency = 0;  // of all groups
        double seconds = 0;                          // the shortest time of a measurement
        int ranks = 0, groups = 0;                   // in a group; of them. 0: not measured
    };
    std::string time, device, precision;
    int ranks = 0;
    std::vector<std::string> hosts;  // each once, in the order of the ranks
    std::array<Kind, rate_kinds> kinds{};
};
LaunchRates summarize(const RateTable& table);  // without time, device and precision
std::string to_json(const LaunchRates& rates);
std::optional<LaunchRates> rates_from_json(const std::string& text);  // nothing where it cannot be understood

// A sentence for every kind whose median is below 60 % of that of the launch before. Launches with other ranks, another
// device or another precision are not compared.
std::vector<std::string> slower_than_before(const LaunchRates& now, const LaunchRates& before);

}  // namespace lockstep::calibrate
