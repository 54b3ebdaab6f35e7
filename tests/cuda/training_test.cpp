// The program trains on GPUs: the emulated ones of lockstep_emulated, through NCCL's stand-in or through pinned memory.
// Every number must be that of the CPU backend within rounding, and the same bits whatever the sync mode, the order in
// which streams run, and stops in between.
#define BOOST_TEST_MODULE training
#include "cuda/training_support.hpp"

using namespace lockstep::tests;

namespace {

fs::path products_of(const fs::path& folder) {
    return run_folder(folder) / "products.json";
}

// By library and kind. (Times vary and are not compared.)
std::map<std::string, std::string> algorithms_of(const fs::path& folder) {
    std::map<std::string, std::string> algorithms;
    const Json json = Json::parse(read_file(products_of(folder)));
    for (const auto& [library, kinds] : json["libraries"].items())
        for (const auto& [kind, choice] : kinds.items()) algorithms[library + ": " + kind] = choice["algorithm"];
    return algorithms;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(one_gpu)

BOOST_AUTO_TEST_CASE(every_mixer_trains_as_on_the_cpu) {
    Trained trained;
    for (const std::string mixer : {"attention", "ttt-linear", "ttt-mlp", "gated-deltanet"}) BOOST_TEST_CONTEXT(mixer) {
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
    BOOST_TEST(!contains(second.error, "bit-identical"), second);
    BOOST_TEST(count_of(second.error, "in fp32 the GPU's tensor cores are idle") == 1u, second);
    check_same(parts, whole);
    check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
}

BOOST_AUTO_TEST_CASE(a_resume_says_what_changes_bits) {
    Trained trained;
    const fs::path folder = trained.place.twin("said");
    const auto resumed = [&](const std::string& settings) {
        const Result result =
            run(train("--set model.mlp=gelu --set precision.compute=bf16 " + settings), folder, 0, gpus(1));
        check_exit(result, 4);
        return result.error;
    };
    resumed("--stop-at 2");
    BOOST_TEST(!contains(resumed("--resume auto --stop-at 4 --set parallel.recompute=selective"), "bit-identical"));
    // GELU is an epilogue in the forward pass, and made again from what that has rounded.
    BOOST_TEST(contains(resumed("--resume auto --stop-at 6 --set parallel.recompute=cheap"),
                        "parallel.recompute is \"cheap\", was \"selective\""));
    BOOST_TEST(
        contains(resumed("--resume auto --stop-at 8 --set parallel.recompute=cheap --set run.tune_products=false"),
                 "run.tune_products false (was true)"));
}

BOOST_AUTO_TEST_CASE(a_run_moves_between_cpu_and_gpu) {
    Trained trained;
    const fs::path whole = trained.run(train("", "cpu"), 0, gpus(1)), parts = trained.place.twin("parts");
    check_exit(run(train("--stop-at 4", "cpu"), parts, 0, gpus(1)), 4);
    check_exit(run(train("--resume auto --stop-at 9"), parts, 0, gpus(1)), 4);
    const Result last = run(train("--resume auto", "cpu"), parts, 0, gpus(1));
    check_exit(last, 0);
    BOOST_TEST(contains(last.error, "bit-identical"), last);  // another processor than then, and it says so
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

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(fine_tuning)

// Recorded, with validations in between, and over NCCL.
BOOST_AUTO_TEST_CASE(adapters_have_the_dropout_of_the_cpu) {
    Trained trained;
    const fs::path base = trained.run(train("--set schedule.steps=5", "cpu"), 0, gpus(1));
    const std::string adapters = "--init-from " + checkpoint_file(base, 5).string() +
                                 " --set model.adapters.rank=3 --set model.adapters.dropout=0.4 --set "
                                 "schedule.peak_lr=1e-2 --set validation.every=5 ";
    const fs::path cpu = trained.run(train(adapters, "cpu"), 0, gpus(1));
    const fs::path plain = trained.run(train(adapters + "--set model.adapters.dropout=0.0", "cpu"), 0, gpus(1));
    BOOST_TEST(largest_difference(numbers_of(cpu, "loss"), numbers_of(plain, "loss")) > 5e-4);
    check_near(trained.run(train(adapters), 0, gpus(1)), cpu, 2e-4);
    check_near(trained.run(train(adapters + "--set parallel.zero=3"), 2, gpus(2)), cpu, 2e-4);
    check_near(trained.run(train(adapters + "--set parallel.tensor=2"), 2, gpus(2)), cpu, 2e-4);
    check_near(trained.run(train(adapters + "--set precision.compute=bf16"), 0, gpus(1)), cpu, 0.1);
}

// Recorded, in 16 bits, over NCCL, along a pipeline whose first stage is frozen.
BOOST_AUTO_TEST_CASE(frozen_parameters_stay_as_they_are) {
    Trained trained;
    const std::string lower = "--set 'model.frozen=[\"embedding/*\", \"blocks/0/*\", \"*norm/weight\"]' ";
    const fs::path cpu = trained.run(train(lower, "cpu"), 0, gpus(1));
    check_near(trained.run(train(lower), 0, gpus(1)), cpu, 2e-4);
    check_near(trained.run(train(lower + "--set parallel.pipeline=3"), 3, gpus(3)), cpu, 2e-4);
    for (const char* divided : {"0", "1"}) {
        const std::string settings = lower + "--set precision.compute=" + (*divided == '0' ? "fp16" : "bf16") +
                                     " --set parallel.zero=" + divided;
        const fs::path whole = trained.run(train(settings), 2, gpus(2));
        const fs::path parts = trained.place.twin(std::string("parts") + divided);
        check_near(whole, cpu, 0.1);
        check_exit(run(train(settings + " --stop-at 6"), parts, 2, gpus(2)), 4);
        check_exit(run(train(settings + " --resume auto"), parts, 2, gpus(2)), 0);
        check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
        const auto before = tensors_of(checkpoint_file(parts, 6)), after = tensors_of(checkpoint_file(parts, 13));
        for (const std::string name : {"embedding/weight", "blocks/0/mlp/up/weight", "blocks/2/mlp_norm/weight"}) {
            BOOST_TEST((before.at("parameters/" + name) == after.at("parameters/" + name)), name);
            BOOST_TEST(after.count("optimizer/first_moment/" + name) == 0u, name);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(one_gpu)

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

BOOST_AUTO_TEST_SUITE(product_choices)

// The stand-in's algorithms differ in their last bits and, by a number in the environment, in their times.
BOOST_AUTO_TEST_CASE(algorithms_of_products_are_chosen_once) {
    Trained trained;
    const std::string otherwise = gpus(1) + " LOCKSTEP_EMULATED_PRODUCT_TIMES=5";
    // The peak is given, so that nothing but the model multiplies matrices.
    const fs::path whole = trained.run(train("--set run.peak_tflops=1"), 0, gpus(1));
    const std::string log = read_file(run_folder(whole) / "log.txt");
    BOOST_TEST(algorithms_of(whole).size() > 10u);
    BOOST_TEST(contains(log, " kinds timed in "));
    BOOST_TEST(!contains(log, "no algorithm was chosen"));  // every product of the run was listed before
    const auto losses = numbers_of(whole, "loss");
    BOOST_TEST((numbers_of(trained.run(train(""), 0, otherwise), "loss") != losses));
    const fs::path untuned = trained.run(train("--set run.tune_products=false"), 0, gpus(1));
    BOOST_TEST(!fs::exists(products_of(untuned)));
    BOOST_TEST((numbers_of(untuned, "loss") != losses));

    const fs::path parts = trained.place.twin("parts");
    check_exit(run(train("--stop-at 6"), parts, 0, gpus(1)), 4);
    const Result second = run(train("--resume auto"), parts, 0, otherwise);
    check_exit(second, 0);
    BOOST_TEST(contains(second.error, " kinds as in "), second);
    BOOST_TEST(!contains(second.error, "last bits"), second);
    BOOST_TEST((algorithms_of(parts) == algorithms_of(whole)));
    check_same(parts, whole);
    check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
}

BOOST_AUTO_TEST_CASE(choices_of_another_library_and_damaged_ones_are_made_anew) {
    Trained trained;
    const fs::path folder = trained.place.twin("parts"), file = products_of(folder);
    check_exit(run(train("--stop-at 3"), folder, 0, gpus(1)), 4);
    const std::string text = read_file(file);
    const auto first = algorithms_of(folder);
    const Result newer =
        run(train("--resume auto --stop-at 5"), folder, 0, gpus(1) + " LOCKSTEP_EMULATED_CUBLASLT_VERSION=130102");
    check_exit(newer, 4);
    BOOST_TEST(count_of(newer.error, "last bits") == 1u, newer);
    BOOST_TEST(contains(newer.error, "was made with cuBLASLt 13.0.0 on "), newer);
    BOOST_TEST(contains(newer.error, "; this is cuBLASLt 13.1.2 on "), newer);
    BOOST_TEST(algorithms_of(folder).size() == 2 * first.size());
    const Result back = run(train("--resume auto --stop-at 6"), folder, 0, gpus(1));
    check_exit(back, 4);
    BOOST_TEST(contains(back.error, " kinds as in "), back);

    write_file(file, text.substr(0, text.size() / 2));
    const Result damaged = run(train("--resume auto --stop-at 8"), folder, 0, gpus(1));
    check_exit(damaged, 4);
    BOOST_TEST(count_of(damaged.error, "products.json is damaged") == 1u, damaged);
    BOOST_TEST(fs::exists(file.string() + ".broken"));
    BOOST_TEST((algorithms_of(folder) == first));
    fs::remove(file);
    const Result absent = run(train("--resume auto"), folder, 0, gpus(1));
    check_exit(absent, 0);
    BOOST_TEST(count_of(absent.error, "last bits") == 1u, absent);
    BOOST_TEST((algorithms_of(folder) == first));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(several_gpus)

// One, two and three micro-batches a step: the first is also the last, or another kind than the last, or neither.
BOOST_AUTO_TEST_CASE(recorded_steps_give_the_bits_of_others) {
    Trained trained;
    for (const std::string batch : {"2", "4", "6"}) BOOST_TEST_CONTEXT(batch) {
            const std::string run =
                "--set schedule.steps=7 --set run.peak_tflops=1 --set parallel.bucket_bytes=5000 --set batch.global=" +
                batch;
            const fs::path recorded = trained.run(train(run), 2, gpus(2));
            BOOST_TEST(!contains(read_file(run_folder(recorded) / "log.txt"), "no algorithm was chosen"));
            check_same(trained.run(train(run + " --sync phase"), 2, gpus(2)), recorded);
        }
}

// Stages have products of their own, and replicas' GPUs would choose differently.
BOOST_AUTO_TEST_CASE(all_ranks_take_the_same_algorithms_of_products) {
    Trained trained;
    const std::string stages =
        "--set model.layers=4 --set model.bias=all --set parallel.pipeline=2 --set precision.compute=bf16 "
        "--set run.peak_tflops=1 ";
    const fs::path whole = trained.run(train(stages), 4, gpus(4)), parts = trained.place.twin("parts");
    const std::string log = read_file(run_folder(whole) / "log.txt");
    BOOST_TEST(contains(log, " kinds timed in "));
    BOOST_TEST(!contains(log, "no algorithm was chosen"));
    check_exit(run(train(stages + "--stop-at 5"), parts, 4, gpus(4)), 4);
    BOOST_TEST((algorithms_of(parts) == algorithms_of(whole)));
    check_exit(run(train(stages + "--resume auto"), parts, 4, gpus(4) + " LOCKSTEP_EMULATED_PRODUCT_TIMES=5"), 0);
    check_same(parts, whole);
    check_same_checkpoint(checkpoint_file(whole, 13), checkpoint_file(parts, 13));
}

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
    BOOST_TEST(contains(read_file(run_folder(shared) / "log.txt"), "pinned memory; ranks share a GPU"));
    check_near(shared, cpu, 2e-4);
    const fs::path absent = trained.run(train(""), 3, gpus(3) + " LOCKSTEP_EMULATED_NCCL_ABSENT=1");
    BOOST_TEST(contains(read_file(run_folder(absent) / "log.txt"), "pinned memory; NCCL"));
    check_near(absent, cpu, 2e-4);
}

// A missing wait between the streams of computation and communication shows in some order.
BOOST_AUTO_TEST_CASE(no_order_of_streams_changes_a_bit) {
    Trained trained;
    const fs::path first = trained.run(train(""), 2, gpus(2, 1));
    for (const int seed : {2, 3, 4}) check_same(trained.run(train(""), 2, gpus(2, seed)), first);
    const fs::path staged = trained.run(train(""), 2, gpus(1, 1));
    for (const int seed : {2, 3}) check_same(trained.run(train(""), 2, gpus(1, seed)), staged);
    // Sums of a tensor group run beside the products of weights' gradients.
    for (const std::string mixer : {"attention", "ttt-linear"})
        for (const int devices : {1, 2}) {  // all pairs of mixer, divided rows and devices
            const std::string divided = (mixer == "attention") == (devices == 1) ? "false" : "true";
            BOOST_TEST_CONTEXT(mixer << ", divided rows " << divided << ", " << devices) {
                const std::string tensor =
                    train("--set schedule.steps=5 --set parallel.tensor=2 --set model.mixer=" + mixer +
                          " --set parallel.sequence=" + divided);
                const fs::path one = trained.run(tensor, 2, gpus(devices, 1));
                check_same(trained.run(tensor, 2, gpus(devices, 2)), one);
            }
        }
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

BOOST_AUTO_TEST_SUITE(fp16)

BOOST_AUTO_TEST_CASE(it_trains_with_a_scaled_loss) {
    Trained trained;
    const fs::path cpu = trained.run(train("", "cpu"), 0, gpus(1));
    const fs::path scaled = trained.run(train("--set precision.compute=fp16"), 0, gpus(1));
    check_near(scaled, cpu, 0.1);
    for (const auto& [step, scale] : numbers_of(scaled, "loss_scale")) BOOST_TEST(scale == 65536, "step " << step);
}

// One rank's overflow is all ranks', the scale falls and grows again, and a checkpoint holds where it is.
BOOST_AUTO_TEST_CASE(an_overflow_halves_the_scale_and_skips_the_step_on_all_ranks) {
    Trained trained;
    const std::string settings =
        "--set precision.compute=fp16 --set precision.loss_scale.hysteresis=1 --set "
        "precision.loss_scale.growth_interval=5"
        " --set parallel.zero=1";
    const std::string overflow = gpus(2) + " LOCKSTEP_FAULT=gradient:1:4:inf";
    const fs::path whole = trained.run(train(settings), 2, overflow), parts = trained.place.twin("parts");
    const auto scales = numbers_of(whole, "loss_scale");
    const std::vector<double> expected = {65536, 65536, 65536, 65536, 32768, 32768, 32768,
                                          32768, 32768, 65536, 65536, 65536, 65536};
    for (std::size_t i = 0; i < expected.size(); ++i)
        BOOST_TEST(scales.at(static_cast<int>(i) + 1) == expected[i], "step " << i + 1);
    for (const Json& line : metrics_of(whole))
        if (line.contains("learning_rate")) BOOST_TEST(line.value("skipped", false) == (line["step"] == 4));
    const auto losses = numbers_of(whole, "loss");
    BOOST_TEST(losses.at(13) < losses.at(1));
    check_exit(run(train(settings + " --stop-at 7"), parts, 2, overflow), 4);
    check_exit(run(train(settings + " --resume auto"), parts, 2, gpus(2)), 0);
    BOOST_TEST((numbers_of(parts, "loss_scale") == scales));
    check_same(parts, whole);
}

BOOST_AUTO_TEST_CASE(the_scale_waits_for_the_hysteresis_and_stops_at_the_minimum) {
    Trained trained;
    const std::string settings = "--set precision.compute=fp16 --set precision.loss_scale.minimum=65536 ";
    const fs::path held = trained.run(train(settings), 0, gpus(1) + " LOCKSTEP_FAULT=gradient:0:4:inf");
    BOOST_TEST(numbers_of(held, "loss_scale").at(5) == 65536);
    const fs::path once =
        trained.run(train("--set precision.compute=fp16"), 0, gpus(1) + " LOCKSTEP_FAULT=gradient:0:4:inf");
    BOOST_TEST(numbers_of(once, "loss_scale").at(5) == 65536);  // the first of two that it takes
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(lanes)

BOOST_AUTO_TEST_CASE(lanes_give_the_same_bits_on_any_number_of_gpus) {
    Trained trained;
    const std::string lanes = "--set run.tune_products=false --set parallel.lanes=6 ";  // of two micro-batches
    const fs::path one = trained.run(train(lanes), 0, gpus(1));
    check_near(one, trained.run(train(lanes, "cpu"), 0, gpus(1)), 2e-4);
    const struct {
        int ranks, gpus;
        const char* settings;
    } cases[] = {{2, 2, ""}, {3, 3, "--set parallel.zero=1"}, {3, 1, ""}};  // the last through pinned memory
    for (const auto& c : cases) {
        const fs::path other = trained.run(train(lanes + c.settings), c.ranks, gpus(c.gpus));
        check_same(other, one);
        check_same_tensors(checkpoint_file(one, 13), checkpoint_file(other, 13));
    }
    const std::string tensor = lanes + "--set schedule.steps=4 --set precision.compute=bf16 --set parallel.tensor=2 ";
    const fs::path whole = trained.run(train(tensor), 2, gpus(2));
    check_same(trained.run(train(tensor + "--set parallel.zero=1"), 4, gpus(4)), whole);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(zero)

// Over NCCL in buffers that blocks share, and recorded; through pinned memory; with stages and tensor ranks.
BOOST_AUTO_TEST_CASE(divided_gradients_and_parameters_change_no_bit) {
    Trained trained;
    const std::string one_pass = "--set run.tune_products=false --set batch.micro=0 ";
    const struct {
        int ranks;
        std::string settings;
    } cases[] = {{2, ""},
                 {2, "--set precision.compute=fp16 --set model.tied_head=true "},
                 {3, "--set batch.micro=1 --set model.tied_head=true "},
                 {4, "--set parallel.pipeline=2 --set parallel.recompute=full --set optimizer.kind=sgd "},
                 {4, "--set parallel.tensor=2 --set precision.compute=bf16 --set optimizer.kind=muon "}};
    for (const auto& c : cases) BOOST_TEST_CONTEXT(c.settings) {
            const std::string settings = one_pass + c.settings;
            const fs::path whole = trained.run(train(settings + "--set parallel.zero=1"), c.ranks, gpus(c.ranks));
            for (const int count : {c.ranks, 1})
                for (const char* stage : {"2", "3"}) {
                    const fs::path divided =
                        trained.run(train(settings + "--set parallel.zero=" + stage), c.ranks, gpus(count));
                    check_near(divided, whole, 2e-4);
                    // Of several micro-batches, or three ranks, the sums have another order.
                    if (c.ranks == 2 || c.settings.find("tensor") != std::string::npos)
                        check_same_tensors(checkpoint_file(whole, 13), checkpoint_file(divided, 13));
                }
        }
}

BOOST_AUTO_TEST_SUITE_END()
