// A short calibration: the rates of a training step's operations on this machine, through the backend and the
// communicators that training uses, on CPUs and on GPUs.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cluster/communicator.hpp"
#include "config/machine_rates.hpp"
#include "kernels/backend.hpp"

namespace lockstep::calibrate {

// The times of several rounds of the same measurements. A pause of the machine spoils one round only: the median
// counts.
class Rounds {
  public:
    explicit Rounds(std::vector<std::vector<double>> finished = {}) : times_(std::move(finished)) {}
    void begin() { next_ = 0; }
    // From now on seconds() measures nothing.
    void end_measuring() { measured_ = true; }
    // The next measurement's time: of this round or, after end_measuring(), the median of the rounds.
    double seconds(const std::function<double()>& measure);
    bool at_end() const { return next_ == times_.size(); }
    int finished() const { return times_.empty() ? 0 : static_cast<int>(times_.front().size()); }
    const std::vector<std::vector<double>>& times() const { return times_; }  // [measurement][round]
    // How far rounds differ: (longest − shortest) / median, the median over the measurements; 0 of one round.
    double spread() const;

  private:
    std::vector<std::vector<double>> times_;  // of each measurement
    std::size_t next_ = 0;
    bool measured_ = false;
};

struct CalibrationRank {
    kernels::Backend& backend;
    cluster::HostGroup& control;        // of all ranks, for host memory
    cluster::Communicator& tensors;     // of all ranks, for memory of the backend
    cluster::Communicator& neighbours;  // likewise, for messages between two ranks
    int ranks_of_node = 1, cores_of_node = 1;
    Rounds* rounds = nullptr;  // null: everything is measured once
};

struct CalibrationOptions {
    bool fp32 = true, bf16 = false;               // the types to measure
    bool quick = false;                           // tiny sizes: shows that it works; the rates are not meaningful
    int multiprocessors = 0;                      // of a GPU
    std::string folder = ".";                     // where rank 0 writes a few MiB and removes them
    std::function<void(const std::string&)> say;  // what is measured next; may be empty
    std::vector<std::vector<double>> finished;    // Rounds::times() of an earlier try; the same on all ranks
    std::function<void(const std::vector<std::vector<double>>&)> keep;  // them, after each round; may be empty
};

// Times a piece of work on all ranks at once. Collective.
class Meter {
  public:
    Meter(const CalibrationRank& rank, double budget_seconds) : rank_(rank), budget_seconds_(budget_seconds) {}
    // Seconds of one call, averaged over the ranks: the median of the repetitions that fit into the budget, and of the
    // rounds. The argument counts calls, so that a call can use other memory than the last.
    double seconds(const std::function<void(int)>& call) const;
    // The same on this rank alone; not collective.
    double seconds_alone(const std::function<void(int)>& call) const;

  private:
    double once(const std::function<void(int)>& call, int first, int calls) const;
    double of_all_ranks(const std::function<void(int)>& call) const;
    double repeated(const std::function<void(int)>& call, double estimate) const;
    const CalibrationRank& rank_;
    double budget_seconds_;
};

// Collective over all ranks; the same on each. team_us and team_efficiency are left to measure_team.
config::Rates calibrate(const CalibrationRank& rank, const CalibrationOptions& options);
// Its parts.
void calibrate_kernels(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates);
void calibrate_messages(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates);
void calibrate_files(const CalibrationRank& rank, const CalibrationOptions& options, config::Rates& rates);

// A compute-bound product, and a short operation that all threads of a rank share, on this rank alone.
struct TeamProbe {
    double flop_per_second = 0, operation_seconds = 0;
};
TeamProbe probe_team(const CalibrationRank& rank, bool quick);

}  // namespace lockstep::calibrate
