#include "ptx/counts.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep::ptx {
namespace {

bool counting = false;
std::map<std::string, KernelCounts> by_kernel;

constexpr std::uint64_t Counts::*members[] = {&Counts::instructions,  &Counts::tensor,
                                              &Counts::special,       &Counts::shared_loads,
                                              &Counts::shared_stores, &Counts::global_loads,
                                              &Counts::global_stores, &Counts::asynchronous_copies,
                                              &Counts::barriers,      &Counts::branches,
                                              &Counts::converts,      &Counts::floats,
                                              &Counts::integers,      &Counts::lane_instructions,
                                              &Counts::shared_passes, &Counts::global_sectors,
                                              &Counts::global_bytes,  &Counts::warp_barriers,
                                              &Counts::sectors_read,  &Counts::sectors_written};

void add_lines(std::vector<LineCounts>& sum, const std::vector<LineCounts>& lines) {
    std::map<std::pair<std::string, int>, std::uint64_t> merged;
    for (const auto* list : {&std::as_const(sum), &lines})
        for (const LineCounts& line : *list) merged[{line.file, line.line}] += line.instructions;
    sum.clear();
    for (const auto& [place, instructions] : merged) sum.push_back({place.first, place.second, instructions});
    std::stable_sort(sum.begin(), sum.end(),
                     [](const LineCounts& a, const LineCounts& b) { return a.instructions > b.instructions; });
}

}  // namespace

void count_launches(bool on) {
    counting = on;
}

bool counting_launches() {
    return counting;
}

void add_launch(const KernelCounts& launch) {
    KernelCounts& sum = by_kernel[launch.kernel];
    sum.kernel = launch.kernel;
    sum.launches += launch.launches;
    sum.blocks += launch.blocks;
    sum.warps += launch.warps;
    sum.most_shared_bytes = std::max(sum.most_shared_bytes, launch.most_shared_bytes);
    for (const auto member : members) sum.counts.*member += launch.counts.*member;
    add_lines(sum.counts.lines, launch.counts.lines);
}

std::vector<KernelCounts> take_counts() {
    std::vector<KernelCounts> all;
    for (const auto& [name, counts] : std::exchange(by_kernel, {})) all.push_back(counts);
    return all;
}

}  // namespace lockstep::ptx
