// The one row of a run that was imported from a table: times of the whole run, each as the table gives it.
#include <algorithm>
#include <cmath>

#include "analysis/load/row_source.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto communication_phase = static_cast<std::size_t>(Phase::communication);

class TableSource : public RowSource {
  public:
    TableSource(const trace::Run& run, Imported imported) : imported_(std::move(imported)) {
        for (const auto& region : run.header().regions) {
            measures_communication_ = measures_communication_ || region.name == "communication";
            if (region.path == "epoch/step/compute") compute_ = region.id;
            if (region.parent < 0) roots_.push_back(static_cast<std::size_t>(region.id));
        }
    }
    bool imported() const override { return true; }
    bool measures_communication() const override { return measures_communication_; }
    std::vector<std::string> remarks() const override { return imported_.remarks; }

    void complete(Measurement& measurement) const override {
        measurement.whole = imported_.whole;
        const auto& rates = imported_.tokens_per_second;
        if (imported_.whole) {
            if (!rates.empty()) measurement.imported_tokens_per_second = rates.front();
            for (RankMeasurement& rank : measurement.rank) rank.present = true;
            return;
        }
        double together = 0;
        std::int64_t known = 0;
        for (std::size_t r = 0; r < std::min(rates.size(), measurement.rank.size()); ++r) {
            measurement.rank[r].tokens_per_second = rates[r];
            if (!std::isfinite(rates[r])) continue;
            measurement.rank[r].present = true;
            together += rates[r];
            ++known;
        }
        // A sum over some of the ranks is no rate of all.
        if (known == measurement.ranks) measurement.imported_tokens_per_second = together;
    }

  private:
    void complete_rank(std::size_t rank, const double* times, RankSample& sample) override {
        sample.timed = true;
        sample.seconds = total(rank, times);
        sample.communication = sample.phases.seconds[communication_phase];
        // What the table calls compute, or what is not communication.
        if (compute_ >= 0)
            sample.compute = times[compute_];
        else if (measures_communication_)
            sample.compute = sample.seconds - sample.communication;
    }
    void complete_row(const double*, const std::uint32_t*, RowSample& sample) override {
        double longest = 0;
        for (const RankSample& rank : sample.ranks)
            if (rank.present && std::isfinite(rank.seconds)) longest = std::max(longest, rank.seconds);
        if (longest > 0) sample.seconds = longest;
    }

    double total(std::size_t rank, const double* times) const {
        const auto& totals = imported_.total;
        if (imported_.whole && !totals.empty()) return totals.front();
        if (!imported_.whole && rank < totals.size()) return totals[rank];
        // What the parts come to, where the table gave no total.
        double sum = unknown;
        for (const std::size_t root : roots_)
            if (std::isfinite(times[root])) sum = std::isfinite(sum) ? sum + times[root] : times[root];
        return sum;
    }

    Imported imported_;
    bool measures_communication_ = false;
    std::int64_t compute_ = -1;
    std::vector<std::size_t> roots_;
};

}  // namespace

std::unique_ptr<RowSource> make_table_source(const trace::Run& run, Imported imported) {
    return std::make_unique<TableSource>(run, std::move(imported));
}

}  // namespace lockstep::analysis
