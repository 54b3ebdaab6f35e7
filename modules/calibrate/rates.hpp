// The self-test's rates of all ranks: the line in the log, warnings of slow ranks and groups, and the file with which
// the next launch compares itself.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/timing.hpp"
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
const char* rate_unit(RateKind kind);  // of the amount, "FLOP" or "B"
// The ranks that measure this kind together with `rank`, ascending; itself alone for products and the folder.
std::vector<int> measured_together(RateKind kind, int rank, const config::Grid& shape);

using RankRates = std::array<MeasuredRate, rate_kinds>;  // what one rank has measured

struct MeasuredGroup {
    std::vector<int> ranks;
    MeasuredRate measured;
};
struct RateTable {
    std::vector<std::string> hosts;  // of every rank
    std::array<std::vector<MeasuredGroup>, rate_kinds> groups;
};
RateTable make_table(const std::vector<RankRates>& of_ranks, std::vector<std::string> hosts, const config::Grid& shape);

// "matrix products 61.0 GFLOP/s per rank (lowest 58.0 GFLOP/s); all-reduce of replicas 1.9 GB/s, 12 us; …"
std::string rates_text(const RateTable& table);

// A sentence for every rank or group below 70 % of the median of its kind; the median of two is the faster one. Rates
// measured over too short a time are not judged.
std::vector<std::string> slow_ones(const RateTable& table);

// What a launch leaves to the next one.
struct LaunchRates {
    struct Kind {
        double median = 0, lowest = 0, latency = 0;  // over all groups
        double seconds = 0;                          // of the shortest measurement
        int ranks = 0, groups = 0;                   // ranks of a group, number of groups; 0: not measured
    };
    std::string time, device, precision;
    int ranks = 0;
    std::vector<std::string> hosts;  // distinct, in the order of the ranks
    std::array<Kind, rate_kinds> kinds{};
};
LaunchRates summarize(const RateTable& table);  // without time, device and precision
std::string to_json(const LaunchRates& rates);
std::optional<LaunchRates> rates_from_json(const std::string& text);  // nullopt: malformed

// A sentence for every kind whose median is below 60 % of the previous launch's. Launches that differ in ranks, device
// or precision are not compared.
std::vector<std::string> slower_than_before(const LaunchRates& now, const LaunchRates& before);

}  // namespace lockstep::calibrate
