// parallel.offload: the CPU updates what the emulated GPUs of lockstep_emulated train.
#define BOOST_TEST_MODULE offload
#include "cuda/training_support.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(offload)

// fp32 values and moments in host memory: on one GPU, among replicas in every stage of ZeRO, on tensor ranks and
// stages, with what is frozen, adapters, averages and another optimizer.
BOOST_AUTO_TEST_CASE(the_cpu_updates_for_gpus) {
    Trained trained;
    const std::string offload = "--set parallel.offload=moments ", bf16 = "--set precision.compute=bf16 ";
    const fs::path cpu = trained.run(train("", "cpu"), 0, gpus(1));
    check_near(trained.run(train(offload), 0, gpus(1)), cpu, 2e-4);
    const fs::path half = trained.run(train(bf16), 0, gpus(1));
    for (const std::string zero : {"0", "1", "2", "3"}) BOOST_TEST_CONTEXT("ZeRO stage " << zero) {
            const std::string settings = offload + "--set parallel.zero=" + zero + " ";
            check_near(trained.run(train(settings), 2, gpus(2)), cpu, 2e-4);
            const fs::path whole = trained.run(train(settings + bf16), 2, gpus(2)),
                           parts = trained.place.twin("parts" + zero);
            check_near(whole, half, 0.02);
            check_exit(run(train(settings + bf16 + "--stop-at 6"), parts, 2, gpus(2)), 4);
            const Result second = run(train(settings + bf16 + "--resume auto"), parts, 2, gpus(2));
            check_exit(second, 0);
            BOOST_TEST(contains(second.error, " in host memory"), second);
            check_same(parts, whole);
            check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
        }
    // From the GPU's update to the CPU's and back.
    const fs::path moved = trained.place.twin("moved");
    check_exit(run(train(bf16 + "--stop-at 4"), moved, 0, gpus(1)), 4);
    const Result changed = run(train(bf16 + offload + "--resume auto --stop-at 8"), moved, 0, gpus(1));
    check_exit(changed, 4);
    BOOST_TEST(contains(changed.error, "parallel.offload is \"moments\", was \"none\""), changed);
    check_exit(run(train(bf16 + "--resume auto"), moved, 0, gpus(1)), 0);
    check_near(moved, half, 0.02);
    for (const std::string more :
         {"--set optimizer.kind=sgd --set optimizer.ema=0.5 ", "--set parallel.pipeline=2 --set model.tied_head=true ",
          "--set parallel.tensor=2 --set parallel.sequence=true ",
          "--set 'model.frozen=[\"embedding/*\", \"blocks/0/*\"]' ",
          "--set parallel.lanes=4 --set 'optimizer.groups=[{match = \"*norm*\", lr = 0.5}]' "})
        BOOST_TEST_CONTEXT(more) {
            const bool alone = more.find("pipeline") == std::string::npos && more.find("tensor") == std::string::npos;
            const fs::path expected = trained.run(train(more, "cpu"), alone ? 0 : 2, gpus(1));
            check_near(trained.run(train(more + offload), 2, gpus(2)), expected, 2e-4);
        }
    // A checkpoint that is written while the run goes on has what there was at its step.
    const fs::path often = trained.run(train(offload + bf16 + "--set checkpoint.every=3 --set checkpoint.keep=9"), 0,
                                       gpus(1) + " LOCKSTEP_FAULT=checkpoint_gather:*:*:slow"),
                   until = trained.place.twin("until");
    check_exit(run(train(offload + bf16 + "--stop-at 6"), until, 0, gpus(1)), 4);
    check_same_checkpoint(checkpoint_file(often, 6), checkpoint_file(until, 6));
    // Adapters beside a model that was read.
    const std::string adapters = "--init-from " + checkpoint_file(cpu, 13).string() +
                                 " --set model.adapters.rank=2 --set schedule.peak_lr=1e-2 ";
    check_near(trained.run(train(adapters + offload), 2, gpus(2)), trained.run(train(adapters, "cpu"), 0, gpus(1)),
               2e-4);
    for (const auto& [wrong, sentence] :
         {std::pair{"--set precision.compute=fp16", "updates on the CPU, which has no fp16"},
          std::pair{"--set optimizer.kind=muon", "does not support optimizer.kind = \"muon\""}}) {
        const Result result = run(train(offload + wrong), trained.place.path(), 0, gpus(1));
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
    }
}

BOOST_AUTO_TEST_SUITE_END()
