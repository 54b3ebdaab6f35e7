#include "analysis/load/row_source.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::analysis {

void RowSource::read(const trace::RunPart& part, const std::function<void(const RowSample&)>& take) {
    file_ = &part.file;
    const std::size_t ranks = file_->ranks(), regions = file_->regions();
    map_ = std::make_unique<PhaseMap>(file_->header().regions);
    kind_names_.clear();
    kind_regions_.clear();
    for (const auto& [name, ids] : communication_kinds(file_->header().regions)) {
        kind_names_.push_back(name);
        kind_regions_.push_back(ids);
    }
    begin_part(*file_);
    constexpr std::size_t block_bytes = std::size_t{16} << 20;
    const std::size_t block = std::max<std::size_t>(block_bytes / (ranks * (regions * 12 + 40)), 1);
    std::vector<double> times, losses, overhead;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    RowSample sample;
    for (std::size_t first = 0; first < part.rows; first += block) {
        const std::size_t count = std::min(block, part.rows - first);
        file_->read_times(first, count, times);
        file_->read_calls(first, count, calls);
        file_->read_rank_loss(first, count, losses);
        file_->read_memory(first, count, memory);
        file_->read_overhead(first, count, overhead);
        for (std::size_t i = 0; i < count; ++i) {
            sample.row = file_->steps()[first + i];
            sample.seconds = unknown;
            sample.disturbs = false;
            sample.ranks.resize(ranks);
            for (std::size_t r = 0; r < ranks; ++r) {
                const std::size_t cell = i * ranks + r;
                RankSample& rank = sample.ranks[r];
                std::vector<double> kinds = std::move(rank.kinds);
                rank = {};
                rank.kinds = std::move(kinds);
                rank.kinds.assign(kind_names_.size(), 0.0);
                rank.loss = losses[cell];
                rank.overhead = overhead[cell];
                rank.allocated = memory[cell * 3];
                rank.reserved = memory[cell * 3 + 1];
                rank.peak = memory[cell * 3 + 2];
                if (regions == 0) continue;  // no cells to point at
                const double* own = times.data() + cell * regions;
                rank.phases = map_->sums(own, calls.data() + cell * regions);
                rank.present = std::any_of(rank.phases.seconds.begin(), rank.phases.seconds.end(),
                                           [](double seconds) { return std::isfinite(seconds) && seconds > 0; });
                rank.step_seconds = map_->step_seconds(own);
                for (std::size_t kind = 0; kind < kind_regions_.size(); ++kind)
                    for (const std::size_t id : kind_regions_[kind])
                        if (std::isfinite(own[id])) rank.kinds[kind] += own[id];
                complete_rank(r, own, rank);
            }
            complete_row(times.data() + i * ranks * regions, calls.data() + i * ranks * regions, sample);
            take(sample);
        }
    }
    end_part();
}

}  // namespace lockstep::analysis
