// Statistics of few, noisy, skewed samples: medians and ranks, no assumption of a distribution. The equations, their
// sources and their limits are in docs/analysis-methods.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace lockstep::analysis {

inline constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

struct Interval {
    double low = unknown, high = unknown;
    bool known() const { return low == low && high == high; }
};

// Each ignores samples that are not finite, and is unknown (NaN) where none is left.
double median(std::vector<double> samples);
double mean(const std::vector<double>& samples);
double smallest_of(const std::vector<double>& samples);
double largest_of(const std::vector<double>& samples);
// The mean of rates over equal amounts of work. Unknown where a rate is not positive.
double harmonic_mean(const std::vector<double>& rates);
// q from 0 to 1, linear between the two nearest samples.
double quantile(std::vector<double> samples, double q);

// The narrowest pair of order statistics, symmetric in rank, that holds the median with at least 95 % probability
// (binomial; no assumption but independent samples). Unknown below 6 samples: no pair of them holds it.
inline constexpr std::size_t fewest_samples = 6;
Interval median_interval(std::vector<double> samples);

// Groups of samples, each in the order in which they were taken.
using Groups = std::vector<std::vector<double>>;

// How groups are resampled: each by itself, with replacement.
enum class Resample {
    single,  // sample by sample: they are independent
    blocks,  // runs of block_length() samples that lie together: neighbours resemble each other, as steps do
};
// The cube root of the number of samples, rounded down; at least 1.
std::size_t block_length(std::size_t samples);

inline constexpr int usual_resamples = 1000;
// How many are enough of so many samples, all groups together: the usual number up to 20,000, then fewer, at least 200,
// for each takes time and the intervals are narrow.
int enough_resamples(std::size_t samples);

// The 2.5 % and 97.5 % quantiles of `statistic` over resamples. The same seed gives the same interval. Unknown where a
// group has fewer than 6 finite samples. Resamples whose statistic is not finite are left out; unknown where more than
// half are.
Interval bootstrap_interval(const Groups& groups, const std::function<double(const Groups&)>& statistic,
                            std::uint64_t seed, Resample resample = Resample::single, int resamples = usual_resamples);
// The same of several statistics computed together, of the same resamples; `count` of them.
std::vector<Interval> bootstrap_intervals(const Groups& groups, std::size_t count,
                                          const std::function<std::vector<double>(const Groups&)>& statistics,
                                          std::uint64_t seed, Resample resample = Resample::single,
                                          int resamples = usual_resamples);

}  // namespace lockstep::analysis
