// How often to write checkpoints, from what one costs and how often a job loses a node.
#pragma once

#include <string>

#include "config/machine.hpp"
#include "cost/job.hpp"

namespace lockstep::plan {

// The interval that loses least between the time of writing and the work redone: sqrt(2 cost MTBF), to first order
// in cost / MTBF. Young 1974, "A first order approximation to the optimum checkpoint interval"; Daly 2006, "A higher
// order estimate of the optimum checkpoint interval for restart dumps". Not less than the cost: one is written at a
// time. Seconds.
double best_checkpoint_interval(double cost, double mean_time_between_failures);

struct CheckpointIntervals {             // seconds; 0 where a rate is not known
    double between_failures = 0;         // of the job: of a node, divided by the nodes
    double local_cost = 0, local = 0;    // every node's share to its disk, plus another node's
    double shared_cost = 0, shared = 0;  // to the shared file system
    bool any() const { return local > 0 || shared > 0; }
};
// Of our own program, on machines with failures.node_mtbf_hours. Costs are the time until all is on the disks: training
// continues meanwhile, so they are upper bounds.
CheckpointIntervals checkpoint_intervals(const config::Machine& machine, const cost::Job& job,
                                         const cost::Layout& layout);
// "local every 3 min 10 s (95 steps), shared every 21 min (640 steps), with a node failure every 41 h"; "" for none.
std::string intervals_text(const CheckpointIntervals& intervals, double step_seconds);

}  // namespace lockstep::plan
