// How often to write checkpoints, against numbers computed by hand.
#define BOOST_TEST_MODULE checkpoint_interval
#include <boost/test/unit_test.hpp>

#include "model/parameter_description.hpp"
#include "plan/checkpoint_interval.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::cost;
using namespace lockstep::plan;

namespace {

const auto near = boost::test_tools::tolerance(1e-9);

}  // namespace

BOOST_AUTO_TEST_CASE(young_and_daly) {
    // 5 min and a day: sqrt(2 x 300 x 86400) = sqrt(51840000) = 7200 s.
    BOOST_TEST(best_checkpoint_interval(300, 86400) == 7200, near);
    // 2 s and an hour: sqrt(14400) = 120 s.
    BOOST_TEST(best_checkpoint_interval(2, 3600) == 120, near);
    // Failures come faster than two are written: one after the other.
    BOOST_TEST(best_checkpoint_interval(100, 10) == 100);
    BOOST_TEST(best_checkpoint_interval(0, 3600) == 0);
    BOOST_TEST(best_checkpoint_interval(10, 0) == 0);
}

BOOST_AUTO_TEST_CASE(intervals_of_a_job) {
    RunDescription run;
    run.model.width = 64;
    run.model.layers = 2;
    run.model.heads = {4};
    run.model.vocabulary = 512;
    config::resolve(run.model);
    Job job = job_of(run);
    Machine machine;
    machine.device.per_node = 4;
    Layout layout;
    layout.data = 8;  // two nodes
    BOOST_TEST(!checkpoint_intervals(machine, job, layout).any());
    machine.failures.node_mtbf_hours = 100;
    BOOST_TEST(!checkpoint_intervals(machine, job, layout).any());
    // Of half the checkpoint: 3 s to the shared file system; to the node's disk 0.5 s twice, and 1 s over the network.
    const double half = 12 * static_cast<double>(model::parameter_count(job.run.model)) / 2;
    machine.storage.local_gb_per_second = half / 1e9 / 0.5;
    machine.storage.shared_gb_per_second = half / 1e9 / 3;
    machine.network.cards_per_node = 1;
    machine.network.gb_per_second = half / 1e9;
    const CheckpointIntervals two = checkpoint_intervals(machine, job, layout);
    BOOST_TEST(two.between_failures == 180000, near);
    BOOST_TEST(two.local_cost == 2, near);
    BOOST_TEST(two.local == std::sqrt(720000), near);  // 849 s
    BOOST_TEST(two.shared_cost == 3, near);
    BOOST_TEST(two.shared == std::sqrt(1080000), near);  // 1039 s
    BOOST_TEST(intervals_text(two, 10) ==
               "local every 14 min 08 s (85 steps), shared every 17 min 19 s (104 steps), with a node failure "
               "every 50 h 00 min");
    // One node keeps no copy.
    layout.data = 4;
    BOOST_TEST(checkpoint_intervals(machine, job, layout).local_cost == 1, near);
    BOOST_TEST(checkpoint_intervals(machine, job, layout).between_failures == 360000, near);
    // A calibration's rate stands in for one that is not described.
    machine.storage.shared_gb_per_second = 0;
    machine.rates.checkpoint_gb_per_second = 2 * half / 1e9 / 5;
    BOOST_TEST(checkpoint_intervals(machine, job, layout).shared_cost == 5, near);
    job.program = program_named("megatron-deepspeed");
    BOOST_TEST(!checkpoint_intervals(machine, job, layout).any());
}
