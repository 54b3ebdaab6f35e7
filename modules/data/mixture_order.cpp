#include "data/mixture_order.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

__extension__ using Wide = unsigned __int128;

// round(n p), halves upwards.
std::int64_t rounded_share(std::int64_t n, std::uint64_t p) {
    const Wide product = static_cast<Wide>(static_cast<std::uint64_t>(n)) * p;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>((product + (Wide{1} << 63)) >> 64));
}

}  // namespace

MixtureOrder::MixtureOrder(const std::vector<double>& weights) : sources_(weights.size()) {
    LOCKSTEP_ASSERT(!weights.empty());
    for (const double weight : weights) LOCKSTEP_ASSERT(weight > 0 && std::isfinite(weight));
    std::vector<std::size_t> sources(sources_);
    std::iota(sources.begin(), sources.end(), std::size_t{0});
    std::stable_sort(sources.begin(), sources.end(),
                     [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    branches_.reserve(sources_ - 1);
    root_ = build(weights, sources);
}

// `sources` by falling weight: each goes to the half that is lighter so far.
std::size_t MixtureOrder::build(const std::vector<double>& weights, const std::vector<std::size_t>& sources) {
    if (sources.size() == 1) return sources_ - 1 + sources.front();
    std::vector<std::size_t> left, right;
    double left_sum = 0, right_sum = 0;
    for (const std::size_t source : sources) {
        const bool to_left = left_sum <= right_sum;
        (to_left ? left : right).push_back(source);
        (to_left ? left_sum : right_sum) += weights[source];
    }
    // Within the range, so that both halves are visited; a share below 2^-63 has none of any run's samples.
    const double share = std::ldexp(left_sum / (left_sum + right_sum), 64);
    Branch branch;
    branch.left_share = share < 1 ? 1 : share >= 0x1p64 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(share);
    branch.left = build(weights, left);
    branch.right = build(weights, right);
    branches_.push_back(branch);
    return branches_.size() - 1;
}

MixtureOrder::Place MixtureOrder::operator()(std::int64_t sample) const {
    std::size_t node = root_;
    while (node < sources_ - 1) {
        const Branch& branch = branches_[node];
        const std::int64_t lefts = rounded_share(sample, branch.left_share);
        const bool to_left = rounded_share(sample + 1, branch.left_share) > lefts;
        sample = to_left ? lefts : sample - lefts;
        node = to_left ? branch.left : branch.right;
    }
    return {node - (sources_ - 1), sample};
}

std::vector<std::int64_t> MixtureOrder::counts_before(std::int64_t sample) const {
    std::vector<std::int64_t> counts(sources_);
    std::vector<std::pair<std::size_t, std::int64_t>> open = {{root_, sample}};
    while (!open.empty()) {
        const auto [node, count] = open.back();
        open.pop_back();
        if (node >= sources_ - 1) {
            counts[node - (sources_ - 1)] = count;
            continue;
        }
        const std::int64_t lefts = rounded_share(count, branches_[node].left_share);
        open.push_back({branches_[node].left, lefts});
        open.push_back({branches_[node].right, count - lefts});
    }
    return counts;
}

}  // namespace lockstep::data
