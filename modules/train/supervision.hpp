// Supervises a launch from outside its training loop: this rank's watchdog, its node's witness, and the final status
// that any rank can write if the launch fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cluster/session.hpp"
#include "watch/node_folder.hpp"
#include "watch/watchdog.hpp"

namespace lockstep::train {

struct Launch;

class Supervision {
  public:
    // Collective. Starts the watchdog, and the witness on one rank per node.
    explicit Supervision(const Launch& launch);

    // From here on the rank whose failure ends the run records the final status, which rank 0 may not be able to: only
    // if it has lost a connection, since a launch that is refused leaves the status unchanged; or after any failure.
    void record_lost_connections(cluster::Session& session) const;
    void record_failures(cluster::Session& session) const;

    // Whether rank 0 may say how the launch goes: not where another has said why it ends, though ranks may still
    // compute until they are ended, and not where a later launch has the run.
    bool may_record() const;
    // The same of how it ended; no other rank may say so afterwards.
    bool may_record_end() const;

    void begin_step(std::int64_t step) { *step_ = step; }
    void finish_step() { watchdog_->step_done(); }
    std::int64_t step() const { return *step_; }

  private:
    using FinalStatus = decltype(watch::WatchOptions::write_final_status);
    FinalStatus make_final_status(const Launch& launch) const;

    std::shared_ptr<std::int64_t> step_;  // the final status may be written after this object is gone
    std::unique_ptr<watch::NodeFolder> node_folder_;
    std::string run_path_;
    bool has_watch_folder_ = false;  // rank 0; on a full disk there may be none
    FinalStatus final_status_;
    std::unique_ptr<watch::Watchdog> watchdog_;
};

}  // namespace lockstep::train
