#include "analysis/metrics/statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace lockstep::analysis {
namespace {

constexpr double confidence = 0.95;

void keep_finite(std::vector<double>& samples) {
    samples.erase(std::remove_if(samples.begin(), samples.end(), [](double sample) { return !std::isfinite(sample); }),
                  samples.end());
}

// Draws indices below `bound`, two of each 64 random bits; the bias is below bound ÷ 2³².
class Draws {
  public:
    Draws(std::uint64_t seed, std::size_t resample)
        : stream_(seed, "bootstrap"), next_(static_cast<std::uint64_t>(resample) << 32) {}
    std::size_t below(std::size_t bound) {
        if (!half_left_) bits_ = stream_.bits(next_++);
        const std::uint64_t half = half_left_ ? bits_ >> 32 : bits_ & 0xffffffffU;
        half_left_ = !half_left_;
        return static_cast<std::size_t>(half * bound >> 32);
    }

  private:
    RandomStream stream_;
    std::uint64_t next_;
    std::uint64_t bits_ = 0;
    bool half_left_ = false;
};

void resample_group(const std::vector<double>& group, std::size_t block, Draws& draws, std::vector<double>& drawn) {
    drawn.clear();
    while (drawn.size() < group.size()) {
        const std::size_t first = draws.below(group.size() - block + 1);
        const std::size_t count = std::min(block, group.size() - drawn.size());
        const auto begin = group.begin() + static_cast<std::ptrdiff_t>(first);
        drawn.insert(drawn.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    }
}

}  // namespace

double median(std::vector<double> samples) {
    keep_finite(samples);
    if (samples.empty()) return unknown;
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    if (samples.size() % 2 == 1) return *middle;
    const double below = *std::max_element(samples.begin(), middle);
    return below + (*middle - below) / 2;
}

double mean(const std::vector<double>& samples) {
    double sum = 0, count = 0;
    for (const double sample : samples) {
        if (!std::isfinite(sample)) continue;
        sum += sample;
        ++count;
    }
    return count > 0 ? sum / count : unknown;
}

double smallest_of(const std::vector<double>& samples) {
    double least = unknown;
    for (const double sample : samples)
        if (std::isfinite(sample) && !(sample >= least)) least = sample;
    return least;
}

double largest_of(const std::vector<double>& samples) {
    double most = unknown;
    for (const double sample : samples)
        if (std::isfinite(sample) && !(sample <= most)) most = sample;
    return most;
}

double harmonic_mean(const std::vector<double>& rates) {
    double inverses = 0, count = 0;
    for (const double rate : rates) {
        if (!std::isfinite(rate)) continue;
        if (rate <= 0) return unknown;
        inverses += 1 / rate;
        ++count;
    }
    return count > 0 ? count / inverses : unknown;
}

double quantile(std::vector<double> samples, double q) {
    LOCKSTEP_ASSERT(q >= 0 && q <= 1);
    keep_finite(samples);
    if (samples.empty()) return unknown;
    const double place = q * static_cast<double>(samples.size() - 1);
    const auto lower = samples.begin() + static_cast<std::ptrdiff_t>(place);
    std::nth_element(samples.begin(), lower, samples.end());
    const double share = place - std::floor(place);
    if (share <= 0) return *lower;
    return *lower + share * (*std::min_element(lower + 1, samples.end()) - *lower);
}

Interval median_interval(std::vector<double> samples) {
    keep_finite(samples);
    if (samples.size() < fewest_samples) return {};
    std::sort(samples.begin(), samples.end());
    // The k-th smallest and the k-th largest enclose the median unless fewer than k samples lie on one side of it,
    // which has the probability 2·P(Binomial(n, 1/2) ≤ k − 1).
    using boost::math::policies::discrete_quantile;
    using boost::math::policies::integer_round_down;
    using Policy = boost::math::policies::policy<discrete_quantile<integer_round_down>>;
    const boost::math::binomial_distribution<double, Policy> below(static_cast<double>(samples.size()), 0.5);
    const auto rank = static_cast<std::size_t>(quantile(below, (1 - confidence) / 2)) + 1;
    return {samples[rank - 1], samples[samples.size() - rank]};
}

std::size_t block_length(std::size_t samples) {
    // A cube root may come out a rounding below a whole number.
    const auto length = static_cast<std::size_t>(std::cbrt(static_cast<double>(samples)) + 1e-9);
    return std::max<std::size_t>(length, 1);
}

int enough_resamples(std::size_t samples) {
    constexpr std::size_t most_draws = 20'000'000, fewest = 200;
    return static_cast<int>(
        std::clamp(most_draws / std::max<std::size_t>(samples, 1), fewest, std::size_t{usual_resamples}));
}

std::vector<Interval> bootstrap_intervals(const Groups& groups, std::size_t count,
                                          const std::function<std::vector<double>(const Groups&)>& statistics,
                                          std::uint64_t seed, Resample resample, int resamples) {
    std::vector<Interval> intervals(count);
    Groups finite = groups;
    for (auto& group : finite) {
        keep_finite(group);
        if (group.size() < fewest_samples) return intervals;
    }
    if (finite.empty() || resamples < 1) return intervals;
    std::vector<std::vector<double>> results(count);
    Groups drawn(finite.size());
    for (int i = 0; i < resamples; ++i) {
        Draws draws(seed, static_cast<std::size_t>(i));
        for (std::size_t g = 0; g < finite.size(); ++g) {
            const std::size_t block = resample == Resample::blocks ? block_length(finite[g].size()) : 1;
            resample_group(finite[g], block, draws, drawn[g]);
        }
        const std::vector<double> values = statistics(drawn);
        LOCKSTEP_ASSERT(values.size() == count);
        for (std::size_t s = 0; s < count; ++s)
            if (std::isfinite(values[s])) results[s].push_back(values[s]);
    }
    for (std::size_t s = 0; s < count; ++s) {
        if (2 * results[s].size() < static_cast<std::size_t>(resamples)) continue;
        intervals[s] = {quantile(results[s], (1 - confidence) / 2), quantile(results[s], (1 + confidence) / 2)};
    }
    return intervals;
}

Interval bootstrap_interval(const Groups& groups, const std::function<double(const Groups&)>& statistic,
                            std::uint64_t seed, Resample resample, int resamples) {
    return bootstrap_intervals(
        groups, 1, [&](const Groups& drawn) { return std::vector<double>{statistic(drawn)}; }, seed, resample,
        resamples)[0];
}

}  // namespace lockstep::analysis
