// A lockstep with an optimizer of the test's own, linked to the product's commands as they are.
#define BOOST_TEST_MODULE extension_optimizer
#include "extension/training.hpp"
#include "places.hpp"

using namespace lockstep::tests;

namespace {

const std::string small =
    "--set optimizer.kind=momentum-sgd --set optimizer.momentum-sgd.momentum=0.8 --set schedule.peak_lr=0.3";
const std::string divided = " --set parallel.zero=1 --set parallel.bucket_bytes=20000";

const Extended extended(small);

Result train(const fs::path& folder, int ranks, const std::string& more) {
    return extended.train(folder, ranks, more);
}

const std::vector<Layout> layouts = {{2, "--set parallel.data=2"},
                                     {2, divided},
                                     {3, divided},
                                     {2, "--set parallel.tensor=2"},
                                     {2, "--set parallel.pipeline=2"},
                                     {4, "--set parallel.tensor=2" + divided},
                                     {4, "--set parallel.pipeline=2" + divided},
                                     {4, "--set batch.micro=1 --set precision.compute=bf16" + divided}};

}  // namespace

BOOST_AUTO_TEST_SUITE(own_optimizer)

// The trainer itself compares planned and allocated bytes.
BOOST_AUTO_TEST_CASE(trains_on_every_layout_as_on_one_rank) {
    extended.check_losses_of_one_rank(layouts);
}

BOOST_AUTO_TEST_CASE(resumes_bit_for_bit_and_on_other_ranks) {
    const Workplace place;
    extended.check_resumes_bit_for_bit(place, {2, divided});
    const fs::path whole = place.twin("whole"), other = place.twin("other");
    check_exit(train(whole, 2, divided), 0);
    check_exit(train(other, 2, divided + " --stop-at 5"), 4);
    check_exit(train(other, 3, divided + " --resume auto"), 0);
    BOOST_TEST(largest_difference(numbers_of(whole, "loss"), numbers_of(other, "loss")) < loss_tolerance);
}

BOOST_AUTO_TEST_CASE(its_checkpoint_says_whose_it_is) {
    const Workplace place;
    check_exit(train(place.path(), 2, divided + " --stop-at 2"), 4);
    const fs::path file = checkpoint_file(place.path(), 2);
    BOOST_TEST(state_of(file).at("optimizer") == "momentum-sgd");
    std::size_t momenta = 0, parameters = 0;
    for (const auto& [path, values] : tensors_of(file)) {
        BOOST_TEST((path.starts_with("parameters/") || path.starts_with("optimizer/momentum/")), path);
        ++(path.starts_with("parameters/") ? parameters : momenta);
    }
    BOOST_TEST(momenta == parameters);
    BOOST_TEST(lockstep::hdf5::File::open(file.string()).read_integer("/", "format_version") == 2);
    check_exit(run("verify " + file.string(), place.path()), 0);
    const Result text = run("inspect " + file.string(), place.path());
    check_exit(text, 0);
    BOOST_TEST(contains(text.out, "momentum-sgd state: momentum ("), text);
    const Result inspected = run("inspect --format json " + file.string(), place.path());
    const Json json = Json::parse(inspected.out);
    BOOST_TEST(json["optimizer"] == "momentum-sgd");
    BOOST_TEST(json["optimizer_state"]["momentum"] == json["parameters"]);
    // A lockstep without this optimizer evaluates the model, and generates.
    for (const std::string command : {"eval --data text", "generate --prompt the --tokens 8"})
        check_exit(
            Process(build_path("bin/lockstep ") + command + " --checkpoint " + file.string(), place.path()).wait(), 0);
    // Another optimizer cannot resume from it.
    const Result refused = run("train run.toml --resume auto --device cpu", place.path());
    check_exit(refused, 2);
    BOOST_TEST(contains(refused.error, "is a checkpoint of the optimizer momentum-sgd"), refused);
    BOOST_TEST(contains(refused.error,
                        "set optimizer.kind = \"momentum-sgd\", or start a new run from its parameters: --init-from "),
               refused);
}

BOOST_AUTO_TEST_CASE(inspect_counts_its_state) {
    const Workplace place;
    const std::string model = "inspect --preset gpt2-124m --format json";
    const Json adamw = Json::parse(run(model, place.path()).out);
    const Json own = Json::parse(run(model + " --set optimizer.kind=momentum-sgd", place.path()).out);
    BOOST_TEST(own["optimizer"] == "momentum-sgd");
    BOOST_TEST(own["optimizer_state"] == own["parameters"]);
    const auto bytes = [](const Json& json) { return json["training_bytes_without_activations"].get<double>(); };
    BOOST_TEST(bytes(adamw) == 16 * adamw["parameters"].get<double>());
    BOOST_TEST(bytes(own) == 12 * own["parameters"].get<double>());
}

// One state instead of two.
BOOST_AUTO_TEST_CASE(plan_counts_its_memory) {
    const Workplace place;
    const auto planned = [&](const std::string& kind) {
        const Result result =
            run("plan run.toml --gpus 1 --hardware h100-80-8x400g --format json --set "
                "model.preset=gpt2-124m --set model.width=1024 --set optimizer.kind=" +
                    kind,
                place.path());
        check_exit(result, 0);
        return Json::parse(result.out)["layouts"][0];
    };
    const Json adamw = planned("adamw"), own = planned("momentum-sgd");
    BOOST_TEST(own["memory_gib"].get<double>() < adamw["memory_gib"].get<double>());
}

BOOST_AUTO_TEST_CASE(its_key_is_a_key_like_any_other) {
    const Workplace place;
    const Result high = train(place.path(), 1, "--set optimizer.momentum-sgd.momentum=1.5");
    check_exit(high, 2);
    BOOST_TEST(contains(high.error, "optimizer.momentum-sgd.momentum = 1.5: it must be at most 1"), high);
    const Result wrong = train(place.path(), 1, "--set optimizer.kind=momentum");
    check_exit(wrong, 2);
    BOOST_TEST(contains(wrong.error, "momentum-sgd"), wrong);
}

BOOST_AUTO_TEST_SUITE_END()
