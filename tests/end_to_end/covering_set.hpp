// A pairwise covering set: every pair of values of two keys that occurs in any case, in few cases.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::tests {

// values_of(case): its values as texts, by key. Those that cover the most new pairs are taken, one after another.
template <class Case, class ValuesOf>
std::vector<Case> covering_set(const std::vector<Case>& all, const ValuesOf& values_of) {
    using Value = std::pair<std::size_t, std::string>;
    std::vector<std::vector<std::pair<Value, Value>>> pairs;  // of each case
    std::set<std::pair<Value, Value>> missing;
    for (const Case& one : all) {
        const std::vector<std::string> values = values_of(one);
        pairs.emplace_back();
        for (std::size_t a = 0; a < values.size(); ++a)
            for (std::size_t b = a + 1; b < values.size(); ++b)
                pairs.back().push_back({{a, values[a]}, {b, values[b]}});
        missing.insert(pairs.back().begin(), pairs.back().end());
    }
    std::vector<Case> chosen;
    while (!missing.empty()) {
        std::size_t best = 0, most = 0;
        for (std::size_t at = 0; at < all.size(); ++at) {
            std::size_t covered = 0;
            for (const auto& pair : pairs[at]) covered += missing.count(pair);
            if (covered <= most) continue;
            most = covered;
            best = at;
        }
        for (const auto& pair : pairs[best]) missing.erase(pair);
        chosen.push_back(all[best]);
    }
    return chosen;
}

}  // namespace lockstep::tests
