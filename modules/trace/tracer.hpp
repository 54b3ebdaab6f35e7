// Low-overhead timing of a rank's activity, by region. Rank 0 writes what all ranks measured to runs/NAME/trace-NNN.h5
// (format: docs/trace.md). A region is a path such as "epoch/step/forward"; its parents are registered with it. All
// ranks register the same regions in the same order before the first step.
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

// Whether entering a region counts as a call, or continues what an earlier call began.
enum class Call { begins, continues };

struct TracerOptions {
    Detail detail = Detail::phase;
    std::string folder;                   // runs/NAME
    std::string run_name, description;    // the resolved run description (TOML)
    std::int64_t trained_parameters = 0;  // of the whole model; 0: unknown
    std::int64_t steps_left = 0;          // most steps this launch may make; sizes the file
    RankRecord rank;
    std::int64_t event_every = 100;  // steps between samples of every region's start and end
    WriterLimits limits;
};

class Tracer {
  public:
    // Collective; the tracer needs a group used by nothing else.
    Tracer(TracerOptions options, std::unique_ptr<cluster::HostGroup> communicator);
    ~Tracer();

    RegionId region(const std::string& path,
                    Detail least = Detail::phase);          // -1 if the run's detail is below `least`
    void begin(RegionId region, Call call = Call::begins);  // nested; repeatable within a step; -1 is a no-op
    void end(RegionId region);
    void memory(std::uint64_t allocated, std::uint64_t reserved, std::uint64_t peak);  // bytes, of this step

    // Closes this step's row: all region times since the last row belong to it. Local and cheap.
    void finish_step(const StepNumbers& numbers);
    // Collective: rank 0 gathers and writes the finished rows, which then survive a crash. A large flush is written by
    // a thread, which the next flush waits for.
    void flush();
    bool wants_flush() const;                  // rank 0: rows have waited for two seconds, or are many
    void close();                              // collective: flushes, and truncates the file to its valid rows
    double seconds_of(RegionId region) const;  // this rank's, in the current row

  private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

// Times an optional scope; no-op without a tracer.
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
    Scope(Tracer& tracer, RegionId region, Call call = Call::begins) : tracer_(tracer), region_(region) {
        tracer_.begin(region_, call);
    }
    ~Scope() { tracer_.end(region_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    Tracer& tracer_;
    RegionId region_;
};

}  // namespace lockstep::trace
