// The program trains on kernels as nvcc compiled them: every number must be that of the CPU backend within rounding,
// and a stop and a resume must change no bit.
#define BOOST_TEST_MODULE program
#include "cuda/training_support.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(program)

BOOST_AUTO_TEST_CASE(two_ranks_train_stop_and_resume) {
    Trained trained;
    const std::string few = "--set schedule.steps=4 --set parallel.zero=1 --set precision.compute=bf16 ";
    for (const std::string mixer : {"attention", "ttt-linear", "ttt-mlp"}) BOOST_TEST_CONTEXT(mixer) {
            const std::string of_mixer = few + "--set model.mixer=" + mixer + " ";
            const fs::path cpu = trained.run(train(of_mixer, "cpu"), 0, gpus(1));
            const fs::path whole = trained.run(train(of_mixer), 2, gpus(2));
            BOOST_TEST(contains(read_file(run_folder(whole) / "log.txt"), "NCCL"));
            check_near(whole, cpu, 0.1);
            const fs::path parts = trained.place.twin("parts-" + mixer);
            check_exit(run(train(of_mixer + "--stop-at 2"), parts, 2, gpus(2)), 4);
            check_exit(run(train(of_mixer + "--resume auto"), parts, 2, gpus(2)), 0);
            check_same(parts, whole);
            check_same_checkpoint(checkpoint_file(whole, 4), checkpoint_file(parts, 4));
        }
}

BOOST_AUTO_TEST_SUITE_END()
