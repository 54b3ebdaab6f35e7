// Internal: which source each sample of a weighted mixture comes from.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

// A pure function of the weights and the sample's number, in O(log sources) and without tables of the run's length.
// Sources are the leaves of a binary tree with halves of about equal weight. At each branch the n-th sample that comes
// by goes left where round((n + 1) p) exceeds round(n p), p being the left half's share, and round(n p) is its number
// there. So the shares are right over any run of samples: the number taken from a source before sample n differs from
// its share of n by less than 1.5 (by at most 1/2 with two sources), however long the run is.
class MixtureOrder {
  public:
    struct Place {
        std::size_t source = 0;
        std::int64_t number = 0;  // of the sample among its source's, from 0
    };

    // Weights above 0 and finite; their scale does not matter.
    explicit MixtureOrder(const std::vector<double>& weights);
    Place operator()(std::int64_t sample) const;
    // Samples before `sample`, by source.
    std::vector<std::int64_t> counts_before(std::int64_t sample) const;

  private:
    struct Branch {
        std::uint64_t left_share = 0;     // in units of 2^-64
        std::size_t left = 0, right = 0;  // a branch, or branches_.size() + a source
    };
    std::size_t build(const std::vector<double>& weights, const std::vector<std::size_t>& sources);

    std::size_t sources_;
    std::vector<Branch> branches_;  // sources_ - 1 of them; leaves are numbered after them
    std::size_t root_;
};

}  // namespace lockstep::data
