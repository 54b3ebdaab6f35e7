#include "analysis/load/heat_map.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::analysis {
namespace {

constexpr std::size_t most_cells = 128;  // rows and columns

}  // namespace

HeatCollector::HeatCollector(std::size_t ranks, std::size_t steps)
    : ranks_(ranks), steps_(steps), rows_(std::min(ranks, most_cells)), columns_(std::min(steps, most_cells)) {
    map_.first_step.assign(columns_, 0);
    for (std::size_t row = 0; row < rows_; ++row)
        map_.first_rank.push_back(static_cast<std::int64_t>((row * ranks_ + rows_ - 1) / rows_));
    map_.seconds.assign(rows_ * columns_, unknown);
}

void HeatCollector::add(std::size_t rank, std::size_t index, std::int64_t step, double seconds) {
    const std::size_t column = index * columns_ / steps_, row = rank * rows_ / ranks_;
    if (map_.first_step[column] == 0) map_.first_step[column] = step;
    double& cell = map_.seconds[row * columns_ + column];
    if (!(cell >= seconds)) cell = seconds;
}

HeatMap HeatCollector::take() {
    HeatMap shorter;
    shorter.first_rank = std::move(map_.first_rank);
    std::vector<std::size_t> kept;
    for (std::size_t c = 0; c < columns_; ++c)
        if (map_.first_step[c] != 0) kept.push_back(c);
    for (const std::size_t c : kept) shorter.first_step.push_back(map_.first_step[c]);
    for (std::size_t row = 0; row < rows_; ++row)
        for (const std::size_t c : kept) shorter.seconds.push_back(map_.seconds[row * columns_ + c]);
    return shorter;
}

}  // namespace lockstep::analysis
