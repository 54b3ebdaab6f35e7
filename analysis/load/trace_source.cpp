// Rows of a trace: regions that the program timed in every step.

#include "analysis/load/checks.hpp"
#include "analysis/load/row_source.hpp"

namespace lockstep::analysis {
namespace {

constexpr auto communication_phase = static_cast<std::size_t>(Phase::communication);

class TraceSource : public RowSource {
  public:
    explicit TraceSource(const trace::Run& run) : run_(run) {}
    bool imported() const override { return false; }
    bool measures_communication() const override {
        for (const auto& region : run_.header().regions)
            if (region.name == "communication") return true;
        return false;
    }
    std::vector<std::string> remarks() const override { return checks_.remarks(); }

  private:
    void begin_part(const trace::TraceFile& file) override {
        checks_.begin_part(file);
        const std::string& detail = file.header().detail;
        detailed_ = detail == "phase" || detail == "layer";
        disturbing_.clear();
        if (file.ranks() < 2) return;
        // Where a checkpoint or a validation follows every step, that is how the run was.
        const Settings settings = settings_of(file.header());
        for (const auto& region : file.header().regions) {
            if (region.path != "checkpoint" && region.path != "validation") continue;
            const auto every = settings.find(region.path + ".every");
            if (every == settings.end() || every->second != "1")
                disturbing_.push_back(static_cast<std::size_t>(region.id));
        }
    }
    void complete_rank(std::size_t, const double*, RankSample& sample) override {
        sample.seconds = sample.step_seconds;
        sample.timed = detailed_ && sample.phases.has_step_phases();
        sample.overlapped = detailed_ && !sample.timed;
        sample.communication = sample.phases.seconds[communication_phase];
        sample.compute = sample.seconds - sample.communication;
    }
    void complete_row(const double* times, const std::uint32_t* calls, RowSample& sample) override {
        checks_.row(sample.row, times);
        sample.seconds = sample.row.seconds;
        const std::size_t regions = file().regions();
        for (const std::size_t id : disturbing_)
            for (std::size_t r = 0; r < sample.ranks.size(); ++r)
                sample.disturbs = sample.disturbs || calls[r * regions + id] > 0;
    }
    void end_part() override { checks_.events(file().read_events()); }

    const trace::Run& run_;
    TraceChecks checks_;
    bool detailed_ = false;
    std::vector<std::size_t> disturbing_;  // regions: checkpoint, validation
};

}  // namespace

std::unique_ptr<RowSource> make_trace_source(const trace::Run& run) {
    return std::make_unique<TraceSource>(run);
}

}  // namespace lockstep::analysis
