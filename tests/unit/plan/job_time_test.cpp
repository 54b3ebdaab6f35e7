// The time of a whole job: steps, validations, checkpoints.
#define BOOST_TEST_MODULE job_time
#include <boost/test/unit_test.hpp>

#include "base/format.hpp"
#include "config/run_description.hpp"
#include "model/parameter_description.hpp"
#include "plan/advice.hpp"
#include "plan/job_time.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::cost;
using namespace lockstep::plan;

namespace {

const auto near = boost::test_tools::tolerance(1e-9);

Job small_job() {
    config::RunDescription run;
    run.model.width = 64;
    run.model.layers = 2;
    run.model.heads = {4};
    run.model.vocabulary = 512;
    config::resolve(run.model);
    Job job = job_of(run);
    job.steps = 100;
    return job;
}

StepTime three_seconds() {
    StepTime step;
    step.forward = 0.5;
    step.backward = 1.5;
    step.tensor = 0.4;
    step.data = 0.4;
    step.optimizer = 0.2;
    return step;
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_alone_where_nothing_else_is_known) {
    Job job = small_job();
    const JobTime time = job_time({}, job, {}, three_seconds());
    BOOST_TEST(time.steps == 300, near);
    BOOST_TEST(time.total() == 300, near);
    job.steps = 0;
    BOOST_TEST(job_time({}, job, {}, three_seconds()).total() == 0);
}

BOOST_AUTO_TEST_CASE(validations_are_forward_passes_and_one_is_at_the_end) {
    Job job = small_job();
    job.run.data.validation_fraction = 0.1;
    job.run.validation.batches = 8;
    // A quarter of the passes goes forward, and a quarter of the layers' messages.
    const double one = 8 * (0.5 + 0.4 / 4);
    BOOST_TEST(job_time({}, job, {}, three_seconds()).validations == one, near);
    job.run.validation.every = 30;
    BOOST_TEST(job_time({}, job, {}, three_seconds()).validations == 4 * one, near);
    job.run.validation.every = 50;
    BOOST_TEST(job_time({}, job, {}, three_seconds()).validations == 2 * one, near);
    Layout interleaved;  // nothing of the next micro-batch goes beside one
    interleaved.pipeline = interleaved.interleave = 2;
    BOOST_TEST(job_time({}, job, interleaved, three_seconds()).validations == 2 * 2 * one, near);
    job.program = program_named("megatron-deepspeed");
    BOOST_TEST(job_time({}, job, {}, three_seconds()).validations == 0);
}

BOOST_AUTO_TEST_CASE(the_parts_are_said_where_there_are_any) {
    BOOST_TEST(job_parts_text({300, 0, 0}) == "");
    BOOST_TEST(job_parts_text({300, 30, 0}) == "steps " + human_seconds(300) + ", validations " + human_seconds(30));
    BOOST_TEST(job_parts_text({300, 0, 20}) == "steps " + human_seconds(300) + ", checkpoints " + human_seconds(20));
}

BOOST_AUTO_TEST_CASE(steps_hide_checkpoints_but_for_the_last) {
    Job job = small_job();
    Machine machine;
    machine.device.per_node = 4;
    machine.rates.ranks = 4;
    const double bytes = 12 * static_cast<double>(model::parameter_count(job.run.model));
    machine.rates.checkpoint_gb_per_second = bytes / 1e9 / 10;  // 10 s from one node
    job.run.checkpoint.every = 25;
    BOOST_TEST(job_time(machine, job, {}, three_seconds()).checkpoints == 10, near);
    job.run.checkpoint.every = 2;  // 6 s
    BOOST_TEST(job_time(machine, job, {}, three_seconds()).checkpoints == 10 + 49 * 4, near);
    Layout layout;
    layout.data = 8;  // two nodes
    BOOST_TEST(job_time(machine, job, layout, three_seconds()).checkpoints == 5, near);
    machine.rates.checkpoint_gb_per_second = 0;
    BOOST_TEST(job_time(machine, job, {}, three_seconds()).checkpoints == 0);
}
