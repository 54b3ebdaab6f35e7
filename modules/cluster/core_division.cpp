#include "cluster/core_division.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace lockstep::cluster {
namespace {

using Index = std::size_t;

int size_of(const CoreList& cores) {
    return static_cast<int>(cores.size());
}

// Cores grouped by NUMA node, in core order.
std::vector<CoreList> by_numa_node(const Hardware& hardware, const CoreList& cores) {
    std::vector<CoreList> domains;
    std::map<int, Index> known;
    for (const int core : cores) {
        const auto [found, fresh] = known.emplace(hardware.cores[static_cast<Index>(core)].numa_node, domains.size());
        if (fresh) domains.emplace_back();
        domains[found->second].push_back(core);
    }
    return domains;
}

// Distributes `ranks` over the domains in proportion to their cores, by largest remainder.
std::vector<int> in_proportion(const std::vector<CoreList>& domains, int ranks) {
    int cores = 0;
    for (const CoreList& domain : domains) cores += size_of(domain);
    std::vector<int> counts;
    std::vector<std::pair<int, Index>> remainders;
    int given = 0;
    for (Index d = 0; d < domains.size(); ++d) {
        counts.push_back(ranks * size_of(domains[d]) / cores);
        given += counts.back();
        remainders.emplace_back(-(ranks * size_of(domains[d]) % cores), d);
    }
    std::sort(remainders.begin(), remainders.end());
    for (Index i = 0; given < ranks; ++i, ++given) ++counts[remainders[i % remainders.size()].second];
    return counts;
}

// Equal parts of one list; the remainder stays at its end.
void cut(const CoreList& cores, int parts, std::vector<CoreList>& into) {
    const int each = size_of(cores) / parts;
    for (int part = 0; part < parts; ++part)
        into.emplace_back(cores.begin() + part * each, cores.begin() + (part + 1) * each);
}

int smallest(const std::vector<CoreList>& parts) {
    int least = size_of(parts.front());
    for (const CoreList& part : parts) least = std::min(least, size_of(part));
    return least;
}

// Parts aligned to NUMA nodes: several ranks within a node, or several whole nodes per rank.
std::vector<CoreList> along_nodes(const std::vector<CoreList>& domains, int ranks) {
    std::vector<CoreList> parts;
    if (ranks >= static_cast<int>(domains.size())) {
        const std::vector<int> counts = in_proportion(domains, ranks);
        for (Index d = 0; d < domains.size(); ++d)
            if (counts[d] > 0) cut(domains[d], counts[d], parts);
        return parts;
    }
    const int count = static_cast<int>(domains.size());
    for (int rank = 0; rank < ranks; ++rank) {
        CoreList part;
        for (int d = rank * count / ranks; d < (rank + 1) * count / ranks; ++d)
            part.insert(part.end(), domains[static_cast<Index>(d)].begin(), domains[static_cast<Index>(d)].end());
        parts.push_back(std::move(part));
    }
    return parts;
}

// Parts of one home. A step takes as long as its rank with the fewest cores, so parts cross NUMA nodes where that gains
// over a tenth.
std::vector<CoreList> divide_one(const Hardware& hardware, const CoreList& home, int ranks) {
    const std::vector<CoreList> domains = by_numa_node(hardware, home);
    if (ranks > size_of(home)) {
        std::vector<CoreList> parts;
        const std::vector<int> counts = in_proportion(domains, ranks);
        for (Index d = 0; d < domains.size(); ++d) parts.insert(parts.end(), static_cast<Index>(counts[d]), domains[d]);
        return parts;
    }
    std::vector<CoreList> parts = along_nodes(domains, ranks);
    CoreList in_order;
    for (const CoreList& domain : domains) in_order.insert(in_order.end(), domain.begin(), domain.end());
    const int each = size_of(home) / ranks;
    if (10 * each <= 11 * smallest(parts)) return parts;
    parts.clear();
    cut(in_order, ranks, parts);
    return parts;
}

// Homes that overlap without being equal: each core goes to the rank with the fewest so far.
std::vector<CoreList> divide_many(const std::vector<CoreList>& homes) {
    std::map<int, int> wanted_by;  // per core: the ranks that may have it
    for (const CoreList& home : homes)
        for (const int core : home) ++wanted_by[core];
    std::vector<CoreList> open = homes, parts(homes.size());
    for (;;) {
        Index poorest = homes.size();
        for (Index r = 0; r < homes.size(); ++r) {
            if (open[r].empty()) continue;
            const auto need = [&](Index rank) { return std::pair(parts[rank].size(), open[rank].size()); };
            if (poorest == homes.size() || need(r) < need(poorest)) poorest = r;
        }
        if (poorest == homes.size()) break;
        const CoreList& choice = open[poorest];
        const int core = *std::min_element(choice.begin(), choice.end(), [&](int a, int b) {
            return std::pair(wanted_by[a], a) < std::pair(wanted_by[b], b);
        });
        parts[poorest].push_back(core);
        for (CoreList& list : open) list.erase(std::remove(list.begin(), list.end(), core), list.end());
    }
    // Ranks with equal homes: neighbouring ranks get neighbouring cores.
    std::map<CoreList, std::vector<Index>> alike;
    for (Index r = 0; r < homes.size(); ++r) alike[homes[r]].push_back(r);
    for (const auto& [home, ranks] : alike) {
        CoreList all;
        for (const Index r : ranks) all.insert(all.end(), parts[r].begin(), parts[r].end());
        std::sort(all.begin(), all.end());
        auto next = all.begin();
        for (const Index r : ranks) {
            const auto count = static_cast<std::ptrdiff_t>(parts[r].size());
            parts[r].assign(next, next + count);
            next += count;
        }
    }
    for (Index r = 0; r < homes.size(); ++r)
        if (parts[r].empty()) parts[r] = homes[r];  // none of its own: shared
    return parts;
}

bool overlap(const CoreList& a, const CoreList& b) {
    CoreList both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return !both.empty();
}

}  // namespace

std::vector<CoreList> divide_cores(const Hardware& hardware, const std::vector<CoreList>& homes) {
    std::vector<CoreList> parts(homes.size());
    std::vector<bool> done(homes.size(), false);
    for (Index first = 0; first < homes.size(); ++first) {
        if (done[first]) continue;
        // The ranks that compete with this one for cores, directly or through others.
        std::vector<Index> group = {first};
        done[first] = true;
        for (Index i = 0; i < group.size(); ++i)
            for (Index other = first + 1; other < homes.size(); ++other)
                if (!done[other] && overlap(homes[group[i]], homes[other])) {
                    group.push_back(other);
                    done[other] = true;
                }
        std::sort(group.begin(), group.end());
        std::vector<CoreList> group_homes;
        for (const Index rank : group) group_homes.push_back(homes[rank]);
        const bool alike = std::all_of(group_homes.begin(), group_homes.end(),
                                       [&](const CoreList& home) { return home == group_homes.front(); });
        const auto divided = alike ? divide_one(hardware, group_homes.front(), static_cast<int>(group.size()))
                                   : divide_many(group_homes);
        for (Index i = 0; i < group.size(); ++i) parts[group[i]] = divided[i];
    }
    return parts;
}

}  // namespace lockstep::cluster
