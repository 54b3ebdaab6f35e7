// The time of a whole job of our own program: its steps, and what stands between them.
#pragma once

#include "config/machine.hpp"
#include "cost/job.hpp"
#include "cost/step_time.hpp"

namespace lockstep::plan {

struct JobTime {  // seconds
    double steps = 0;
    double validations = 0;  // none are counted where validation.batches is 0: how many windows all are, files know
    double checkpoints = 0;  // the last one, and what of the others the steps between them do not hide; of calibrated
                             // machines only, and without checkpoint.every_minutes
    double total() const { return steps + validations + checkpoints; }
};

// `step`: of this layout. 0 everywhere where the number of steps is not known; of other programs the steps alone.
JobTime job_time(const config::Machine& machine, const cost::Job& job, const cost::Layout& layout,
                 const cost::StepTime& step);

}  // namespace lockstep::plan
