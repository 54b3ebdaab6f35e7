#include "plan/job_time.hpp"

#include <algorithm>
#include <cmath>

#include "cost/own_time.hpp"
#include "cost/prices.hpp"
#include "layout/batch_plan.hpp"
#include "layout/run_layout.hpp"

namespace lockstep::plan {
namespace {

// How often something happens that is done every so many steps, and once at the end.
double count_of(double steps, std::int64_t every) {
    return every > 0 ? std::ceil(steps / static_cast<double>(every)) : 1;
}

// A pass over one global batch: of a step what goes forward, and the same share of what it waits for. Where a rank has
// several pieces of the model, a micro-batch goes through all of them before the next begins.
double forward_seconds(const cost::StepTime& step, const cost::Layout& layout) {
    const double passes = step.forward + step.backward;
    if (passes <= 0) return 0;
    const double share = step.forward / passes;
    const double work = step.forward + share * (step.loss + step.tensor + step.pipeline + step.context);
    if (layout.interleave > 1) return step.loading + static_cast<double>(layout.pipeline) * work;
    return step.loading + work + share * step.idle;
}

}  // namespace

JobTime job_time(const config::Machine& machine, const cost::Job& job, const cost::Layout& layout,
                 const cost::StepTime& step) {
    JobTime time;
    time.steps = job.steps * step.total();
    if (job.steps <= 0 || !job.own_program()) return time;
    const config::RunDescription run = cost::laid_out(job, layout);
    if (!run.data.validation.empty() || run.data.validation_fraction > 0) {
        const double batches = layout::validation_batches(run.validation, job.steps);
        time.validations = count_of(job.steps, run.validation.every) * batches * forward_seconds(step, layout);
    }
    if (machine.rates.measured() && machine.rates.checkpoint_gb_per_second > 0) {
        const std::int64_t on_node = cost::ranks_per_node(machine, job);
        const std::int64_t nodes = (layout.ranks() + on_node - 1) / on_node;
        const double one = cost::own_checkpoint_seconds(run, nodes, machine);
        const double between = static_cast<double>(run.checkpoint.every) * step.total();
        time.checkpoints = one + (count_of(job.steps, run.checkpoint.every) - 1) * std::max(0.0, one - between);
    }
    return time;
}

}  // namespace lockstep::plan
