// A lockstep with a mixer of the test's own, linked to the product's commands as they are.
#define BOOST_TEST_MODULE extension
#include "extension/training.hpp"

using namespace lockstep::tests;

namespace {

const std::string small =
    "--set model.mixer=ema --set model.heads=4 --set model.position=none --set run.self_test=false";

const Extended extended(small);

Result train(const fs::path& folder, int ranks, const std::string& more) {
    return extended.train(folder, ranks, more);
}

const std::vector<Layout> layouts = {
    {2, "--set parallel.data=2 --set parallel.zero=1"},
    {2, "--set parallel.tensor=2"},
    {2, "--set parallel.tensor=2 --set parallel.sequence=true --set parallel.recompute=selective"},
    {2, "--set parallel.pipeline=2 --set parallel.recompute=full"},
    {4, "--set parallel.tensor=2 --set parallel.pipeline=2"},
    {4, "--set parallel.data=2 --set parallel.tensor=2 --set parallel.zero=1"},
    {2, "--set parallel.tensor=2 --set precision.compute=bf16"}};
// parallel.tensor=2, with a key of the mixer's own
const Layout keyed = {2, "--set parallel.tensor=2 --set model.ema.floor=0.25"};

}  // namespace

BOOST_AUTO_TEST_SUITE(own_mixer)

BOOST_AUTO_TEST_CASE(trains_on_every_layout_as_on_one_rank) {
    extended.check_losses_of_one_rank(layouts);
}

BOOST_AUTO_TEST_CASE(is_refused_where_its_limits_say_so) {
    const Workplace place;
    const auto refuses = [&](int ranks, const std::string& settings, const std::string& why) {
        const Result result = train(place.path(), ranks, settings);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, why), result);
    };
    refuses(2, "--set parallel.context=2",
            "parallel.context = 2 divides sequences, but ema needs all tokens of a "
            "sequence; possible with 2 ranks: data 2");
    refuses(3, "--set parallel.tensor=3", "parallel.tensor = 3 does not divide model.heads = 4");
    refuses(1, "--set model.ema.floor=1", "model.ema.floor = 1: the average would never change");
    refuses(1, "--set model.ema.floor=2", "model.ema.floor = 2: it must be at most 1");
    refuses(1, "--set model.ema.flor=0.5", "did you mean model.ema.floor");
    refuses(1, "--set model.mixer=eema", "ema");
    refuses(1, "--set data.documents=separate", "the mixer ema does not keep documents apart");
}

BOOST_AUTO_TEST_CASE(resumes_bit_for_bit) {
    const Workplace place;
    for (const Layout& layout : {keyed, layouts[3], layouts[5]}) extended.check_resumes_bit_for_bit(place, layout);
}

// Without clipping and a tied head, whose gradients two stages add up, a pipeline computes what one rank does, in the
// same order.
BOOST_AUTO_TEST_CASE(resumes_bit_for_bit_on_another_number_of_ranks) {
    const Workplace place;
    const fs::path whole = place.twin("whole"), moved = place.twin("moved");
    const std::string settings = "--set model.tied_head=false --set optimizer.clip=0 --set parallel.zero=1";
    check_exit(train(whole, 1, settings), 0);
    check_exit(train(moved, 1, settings + " --stop-at 5"), 4);
    check_exit(train(moved, 2, settings + " --set parallel.pipeline=2 --resume auto --stop-at 9"), 4);
    check_exit(train(moved, 1, settings + " --resume auto"), 0);
    const auto expected = tensors_of(checkpoint_file(whole, last_step)),
               found = tensors_of(checkpoint_file(moved, last_step));
    for (const auto& [path, values] : expected) BOOST_TEST((values == found.at(path)), path << " differs");
}

BOOST_AUTO_TEST_CASE(goes_on_from_any_layout_to_any_other) {
    const Workplace place;
    check_exit(train(place.path(), 1, "--set run.name=one"), 0);
    const auto expected = numbers_of(place.path(), "loss", "one");
    const fs::path moving = place.twin("moving");
    check_exit(train(moving, 4, layouts[5].settings + " --stop-at 4"), 4);
    check_exit(train(moving, 2, layouts[3].settings + " --resume auto --stop-at 8"), 4);
    check_exit(train(moving, 2, layouts[0].settings + " --resume auto"), 0);
    BOOST_TEST(largest_difference(expected, numbers_of(moving, "loss")) < loss_tolerance);
}

BOOST_AUTO_TEST_CASE(its_checkpoints_are_read_by_every_command) {
    const Workplace place;
    check_exit(train(place.path(), 1, "--set schedule.steps=2 --set schedule.warmup=1"), 0);
    const std::string file = "checkpoints/small/step-00000002.h5";
    check_exit(run("verify " + file, place.path()), 0);
    check_exit(run("eval --checkpoint " + file + " --data text", place.path()), 0);
    check_exit(run("generate --checkpoint " + file + " --prompt the --tokens 8", place.path()), 0);
    const Result shown = run("inspect --details " + file, place.path());
    check_exit(shown, 0);
    BOOST_TEST(contains(shown.out, "blocks/0/mixer/rate"), shown);
}

BOOST_AUTO_TEST_CASE(its_parameters_are_counted) {
    const Workplace place;
    const Result result =
        run("inspect --set model.mixer=ema --set model.width=64 --set model.layers=2 --set model.heads=4 "
            "--set model.mlp_width=96 --set model.vocabulary=256 --set model.context=32 --format json",
            place.path());
    check_exit(result, 0);
    const Json model = Json::parse(result.out);
    constexpr int block = 2 * 64 * 64 + 4 + 3 * 64 * 96 + 2 * 64;
    BOOST_TEST(model["parameters"] == 256 * 64 + 2 * block + 64);
    BOOST_TEST(model["training_flop_per_token"] > 0.0);
}

BOOST_AUTO_TEST_CASE(a_plan_has_a_price_for_it) {
    const Workplace place;
    const Result result =
        run("plan run.toml " + small + " --hardware a100-80-4x100g --gpus 4 --format json", place.path());
    check_exit(result, 0);
    const Json plan = Json::parse(result.out);
    BOOST_TEST(!plan["layouts"].empty());
    for (const Json& layout : plan["layouts"]) {
        BOOST_TEST(layout["seconds"] > 0.0);
        BOOST_TEST(layout["context"] == 1);
    }
}

BOOST_AUTO_TEST_SUITE_END()
