// Rows of a run as numbers of each rank, wherever they come from: a trace, or a table that was imported. The aggregator
// (measurement.hpp) makes a Measurement of them and knows of neither.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/load/measurement.hpp"
#include "analysis/load/phases.hpp"
#include "trace/reader.hpp"

namespace lockstep::analysis {

// One rank in one row. What is not known is NaN.
struct RankSample : Memory {
    PhaseSums phases;
    bool present = false;      // something of this rank was timed
    double seconds = unknown;  // its own time of the step; of an imported run its whole time
    double step_seconds = 0;   // in the regions called "step"
    bool timed = false;        // compute, communication and phases of the step are known
    bool overlapped = false;   // the phases of the step overlapped, and what was timed of them says nothing
    double compute = unknown, communication = unknown;
    std::vector<double> kinds;  // seconds of each kind of communication (RowSource::kinds)
    double loss = unknown, overhead = 0;
};

struct RowSample {
    trace::StepRow row;
    double seconds = unknown;  // of the slowest rank
    bool disturbs = false;     // afterwards ranks come back at different times and wait for each other in the next step
    std::vector<RankSample> ranks;
};

class RowSource {
  public:
    virtual ~RowSource() = default;

    // The rows of a launch's file, in order, read in blocks.
    void read(const trace::RunPart& part, const std::function<void(const RowSample&)>& take);

    // Of the part read last.
    const std::vector<std::string>& kinds() const { return kind_names_; }
    bool measures(Phase phase) const { return map_->measures(phase); }

    // Of the run.
    virtual bool imported() const = 0;
    virtual bool measures_communication() const = 0;
    // What else the source says of the run: rates that a table gives …
    virtual void complete(Measurement&) const {}
    virtual std::vector<std::string> remarks() const = 0;  // oddities of the rows

  protected:
    // Fills in what the base does not: seconds, timed, overlapped, compute, communication; `sample` has the
    // rest. `times`: of the rank's regions.
    virtual void complete_rank(std::size_t rank, const double* times, RankSample& sample) = 0;
    virtual void begin_part(const trace::TraceFile&) {}
    // `times` and `calls`: [ranks, regions].
    virtual void complete_row(const double* times, const std::uint32_t* calls, RowSample& sample) = 0;
    virtual void end_part() {}
    const trace::TraceFile& file() const { return *file_; }

  private:
    const trace::TraceFile* file_ = nullptr;
    std::unique_ptr<PhaseMap> map_;
    std::vector<std::string> kind_names_;
    std::vector<std::vector<std::size_t>> kind_regions_;
};

std::unique_ptr<RowSource> make_trace_source(const trace::Run& run);
// `imported`: what the run's description says of the table.
std::unique_ptr<RowSource> make_table_source(const trace::Run& run, Imported imported);

}  // namespace lockstep::analysis
