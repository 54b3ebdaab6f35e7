// The program trains on GPUs: the emulated ones of lockstep_emulated, through NCCL's stand-in or through pinned memory.
// Every number must be that of the CPU backend within rounding, and the same bits whatever the sync mode, the order in
// which streams run, and stops in between.
#define BOOST_TEST_MODULE training
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

// Small enough for threads that are fibers; 13 steps pass the first recorded step, the one with exact times, and more.
constexpr const char* small =
    " --set model.width=32 --set model.mlp_width=48 --set model.layers=3 --set model.context=16 --set batch.global=12"
    " --set batch.micro=1 --set schedule.steps=13 --set schedule.warmup=4 --set checkpoint.every=50"
    " --set data.validation=0.01 --set validation.batches=1 --set parallel.bucket_bytes=20000 ";

std::string train(const std::string& more, const std::string& device = "cuda") {
    return std::string("train run.toml") + small + "--device " + device + " " + more;
}

std::string gpus(int count, int seed = 0) {
    return "LOCKSTEP_EMULATED_GPUS=" + std::to_string(count) + " LOCKSTEP_EMULATION_SEED=" + std::to_string(seed);
}

void check_near(const fs::path& a, const fs::path& b, double tolerance) {
    for (const std::string key : {"loss", "gradient_norm", "validation_loss"}) {
        BOOST_TEST(!numbers_of(a, key).empty());
        BOOST_TEST(largest_difference(numbers_of(b, key), numbers_of(a, key)) <= tolerance, key);
    }
}

void check_same(const fs::path& a, const fs::path& b) {
    for (const std::string key : {"loss", "gradient_norm", "validation_loss"}) {
        BOOST_TEST(!numbers_of(a, key).empty());
        BOOST_TEST((numbers_of(a, key) == numbers_of(b, key)), key << " differs");
    }
}

struct Trained {
    Workplace place;
    int count = 0;
    // The folder of a finished run.
    fs::path run(const std::string& arguments, int ranks, const std::string& environment) {
        const fs::path folder = place.twin("run" + std::to_string(++count));
        const Result result = lockstep::tests::run(arguments, folder, ranks, environment);
        check_exit(result, 0);
        return folder;
    }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(one_gpu)

BOOST_AUTO_TEST_CASE(every_mixer_trains_as_on_the_cpu) {
    Trained trained;
    for (const std::string mixer : {"attention", "ttt-linear", "ttt-mlp"}) BOOST_TEST_CONTEXT(mixer) {
            const std::string of_mixer = "--set schedule.steps=5 --set model.mixer=" + mixer;
            const fs::path cpu = trained.run(train(of_mixer, "cpu"), 0, gpus(1));
            check_near(trained.run(train(of_mixer), 0, gpus(1)), cpu, 2e-4);
            check_near(trained.run(train(of_mixer + " --set precision.compute=bf16"), 0, gpus(1)), cpu, 0.1);
        }
}

BOOST_AUTO_TEST_CASE(a_stop_and_a_resume_change_no_bit) {
    Trained trained;
    const fs::path whole = trained.run(train(""), 0, gpus(1)), parts = trained.place.twin("parts");
    check_exit(run(train("--stop-at 6"), parts, 0, gpus(1)), 4);
    const Result second = run(train("--resume auto"), parts, 0, gpus(1));
    check_exit(second, 0);
    BOOST_TEST(!contains(second.error, "bit for bit"), second);
    check_same(parts, whole);
    check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
}

BOOST_AUTO_TEST_CASE(a_run_moves_between_cpu_and_gpu) {
    Trained trained;
    const fs::path whole = trained.run(train("", "cpu"), 0, gpus(1)), parts = trained.place.twin("parts");
    check_exit(run(train("--stop-at 4", "cpu"), parts, 0, gpus(1)), 4);
    check_exit(run(train("--resume auto --stop-at 9"), parts, 0, gpus(1)), 4);
    const Result last = run(train("--resume auto", "cpu"), parts, 0, gpus(1));
    check_exit(last, 0);
    BOOST_TEST(contains(last.error, "bit for bit"), last);  // another processor than then, and it says so
    check_near(parts, whole, 2e-4);

    const std::string eval = "eval --checkpoint " + checkpoint_file(parts, 13).string() +
                             " --data text --length 16 --windows 4 --format json --device ";
    const Result cpu = run(eval + "cpu", parts, 0, gpus(1)), gpu = run(eval + "cuda", parts, 0, gpus(1));
    check_exit(cpu, 0);
    check_exit(gpu, 0);
    const double expected = Json::parse(cpu.out)["validation_loss"], actual = Json::parse(gpu.out)["validation_loss"];
    BOOST_TEST(std::abs(actual - expected) < 1e-5 * expected);
    const std::string generate = "generate --checkpoint " + checkpoint_file(parts, 13).string() +
                                 " --prompt 'the ' --tokens 20 --temperature 0 --device ";
    BOOST_TEST(run(generate + "cuda", parts, 0, gpus(1)).out == run(generate + "cpu", parts, 0, gpus(1)).out);
}

BOOST_AUTO_TEST_CASE(without_a_gpu_it_says_what_is_missing) {
    const Workplace place;
    const Result result = run(train(""), place.path(), 2, gpus(0));
    check_exit(result, 2);
    BOOST_TEST(count_of(result.error, "error:") == 1u, result);
    BOOST_TEST(contains(result.error, "no GPU can be used"), result);
    check_exit(run(train("", "auto"), place.path(), 0, gpus(0)), 0);
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_skips_its_update) {
    Trained trained;
    const fs::path folder = trained.run(train(""), 0, gpus(1) + " LOCKSTEP_FAULT=loss:0:5:nan");
    int skipped = 0;
    for (const Json& line : metrics_of(folder))
        if (line.value("skipped", false)) {
            ++skipped;
            BOOST_TEST(line["step"] == 5);
        }
    BOOST_TEST(skipped == 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(several_gpus)

BOOST_AUTO_TEST_CASE(ranks_with_gpus_of_their_own_use_nccl) {
    Trained trained;
    const fs::path cpu = trained.run(train("", "cpu"), 0, gpus(1));
    for (const int ranks : {2, 3, 4}) BOOST_TEST_CONTEXT(ranks) {
            const fs::path folder = trained.run(train(""), ranks, gpus(ranks));
            BOOST_TEST(contains(read_file(run_folder(folder) / "log.txt"), "NCCL"));
            check_near(folder, cpu, 2e-4);
        }
}

BOOST_AUTO_TEST_CASE(ranks_that_share_a_gpu_go_through_pinned_memory) {
    Trained trained;
    const fs::path cpu = trained.run(train("", "cpu"), 0, gpus(1));
    const fs::path shared = trained.run(train(""), 2, gpus(1));
    BOOST_TEST(contains(read_file(run_folder(shared) / "log.txt"), "pinned memory, since ranks share a GPU"));
    check_near(shared, cpu, 2e-4);
    const fs::path absent = trained.run(train(""), 3, gpus(3) + " LOCKSTEP_EMULATED_NCCL_ABSENT=1");
    BOOST_TEST(contains(read_file(run_folder(absent) / "log.txt"), "pinned memory, since NCCL"));
    check_near(absent, cpu, 2e-4);
}

// A missing wait between the streams of computation and communication shows in some order.
BOOST_AUTO_TEST_CASE(no_order_of_streams_changes_a_bit) {
    Trained trained;
    const fs::path first = trained.run(train(""), 2, gpus(2, 1));
    for (const int seed : {2, 3, 4}) check_same(trained.run(train(""), 2, gpus(2, seed)), first);
    const fs::path staged = trained.run(train(""), 2, gpus(1, 1));
    for (const int seed : {2, 3}) check_same(trained.run(train(""), 2, gpus(1, seed)), staged);
}

BOOST_AUTO_TEST_CASE(a_rank_that_dies_takes_the_others_down) {
    const Workplace place;
    const Result result =
        run(train("--set schedule.steps=500"), place.path(), 3, gpus(3) + " LOCKSTEP_FAULT=step_end:1:6:kill");
    BOOST_TEST(result.exit_code != 0);
    BOOST_TEST(!result.timed_out, result);
    BOOST_TEST(result.seconds < 60, result);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(sync_modes)

BOOST_AUTO_TEST_CASE(all_modes_give_the_same_bits) {
    Trained trained;
    const fs::path first = trained.run(train("--sync async"), 2, gpus(2));
    for (const std::string mode : {"bounded", "phase", "collective", "launch"}) BOOST_TEST_CONTEXT(mode) {
            check_same(trained.run(train("--sync " + mode), 2, gpus(2)), first);
        }
    check_same(trained.run(train(""), 2, gpus(2) + " LOCKSTEP_SYNC=phase"), first);
    const Result wrong = run(train("--sync sometimes"), trained.place.path(), 0, gpus(1));
    check_exit(wrong, 2);
    BOOST_TEST(contains(wrong.error, "collective"), wrong);
}

BOOST_AUTO_TEST_SUITE_END()
