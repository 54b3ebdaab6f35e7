// Times what a rank does, by region, with little cost. Rank 0 writes what all ranks measured into
// runs/NAME/trace-NNN.h5 (format: docs/trace.md). A region is a path: "epoch/step/forward"; its parents are made with
// it. All ranks register the same regions in the same order before the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/host_group.hpp"
#include "config/words.hpp"
#include "trace/records.hpp"

namespace lockstep::trace {

using Detail = config::TraceDetail;

using RegionId = int;

struct TracerOptions {
    Detail detail = Detail::phase;
    std::string folder;                   // runs/NAME
    std::string run_name, description;    // the resolved run description (TOML)
    std::int64_t trained_parameters = 0;  // of the whole model; 0: unknown
    std::int64_t steps_left = 0;          // steps this launch may make: how large a file is laid out
    RankRecord rank;
    std::int64_t event_every = 100;  // every so many steps each region's start and end are kept too
};

class Tracer {
  public:
    // Collective. The communicator must be the tracer's own.
    Tracer(TracerOptions options, std::unique_ptr<cluster::HostGroup> communicator);
    ~Tracer();

    RegionId region(const std::string& path,
                    Detail least = Detail::phase);  // -1 when the run's detail is below `least`
    void begin(RegionId region);  // nested; a region may be entered many times a step; -1 does nothing
    void end(RegionId region);
    void memory(std::uint64_t allocated, std::uint64_t reserved, std::uint64_t peak);  // bytes, of this step

    // Closes the row of this step: all region times since the last row belong to it. Local and cheap.
    void finish_step(const StepNumbers& numbers);
    // Collective: rank 0 gathers the finished rows and writes them; after it they survive a crash.
    void flush();
    bool wants_flush() const;                  // rank 0: rows are waiting for longer than two seconds, or many are
    void close();                              // collective: flushes, and cuts the file to the steps made
    double seconds_of(RegionId region) const;  // this rank's, in the row being filled

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

// Of what is not always timed: nothing where there is no tracer.
class OptionalScope {
  public:
    OptionalScope(Tracer* tracer, RegionId region) : tracer_(tracer), region_(region) {
        if (tracer_) tracer_->begin(region_);
    }
    ~OptionalScope() {
        if (tracer_) tracer_->end(region_);
    }
    OptionalScope(const OptionalScope&) = delete;
    OptionalScope& operator=(const OptionalScope&) = delete;

  private:
    Tracer* tracer_;
    RegionId region_;
};

class Scope {
  public:
    Scope(Tracer& tracer, RegionId region) : tracer_(tracer), region_(region) { tracer_.begin(region_); }
    ~Scope() { tracer_.end(region_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    Tracer& tracer_;
    RegionId region_;
};

}  // namespace lockstep::trace
