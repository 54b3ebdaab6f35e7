// Adapters beside a model that stays as it is: on any layout, resumed, evaluated, merged into its weights.
#define BOOST_TEST_MODULE adapters
#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

namespace {

const std::string beside =
    " --init-from checkpoints/base/step-00000010.h5 --set model.adapters.rank=4 "
    "--set model.adapters.alpha=8.0 --set schedule.peak_lr=1e-2 ";

// One rank, in fp32; its mixers are TTT-Linear and attention.
std::string train_base(const Workplace& place) {
    GridCase one = layout(1, 1, 1);
    one.mixer = "hybrid";
    check_exit(train(place.path(), "base", one), 0);
    return checkpoint_file(place.path(), 10, "base").string();
}

GridCase hybrid(GridCase grid) {
    grid.mixer = "hybrid";
    return grid;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapters)

BOOST_AUTO_TEST_CASE(adapters_alone_are_trained_on_any_layout) {
    const Workplace place;
    const auto base = tensors_of(train_base(place));
    const Result one = train(place.path(), "one", hybrid(layout(1, 1, 1)), beside);
    check_exit(one, 0);
    BOOST_TEST(contains(one.error, ", with new adapters"), one);
    std::size_t trained = 0, frozen = 0;
    const auto after = tensors_of(checkpoint_file(place.path(), 10, "one"));
    for (const auto& [path, values] : after) {
        if (!path.starts_with("parameters/")) {
            BOOST_TEST(path.find("/lora_") != std::string::npos, path << " has moments");
            continue;
        }
        const bool adapter = path.find("/lora_") != std::string::npos;
        (adapter ? trained : frozen) += 1;
        if (!adapter) BOOST_TEST((values == base.at(path)), path << " has changed");
    }
    BOOST_TEST(trained > 20u);
    BOOST_TEST(frozen > 20u);
    const auto losses = numbers_of(place.path(), "loss", "one");
    BOOST_TEST(losses.at(10) < losses.at(1));
    for (const GridCase& grid : {layout(2, 1, 1), layout(1, 2, 1), layout(1, 4, 1), layout(1, 1, 2), layout(1, 1, 1, 2),
                                 layout(2, 1, 1, 1, 3), layout(2, 2, 1, 1, 2)}) {
        const std::string sequence = grid.tensor > 1 ? " --set parallel.sequence=true" : "", name = grid.name();
        check_exit(train(place.path(), name, hybrid(grid), beside + sequence + " --stop-at 4"), 4);
        check_exit(train(place.path(), name, hybrid(grid), beside + sequence + " --resume auto"), 0);
        BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", name)) <= loss_tolerance, name);
    }
    const GridCase recomputed = [] {
        GridCase grid = hybrid(layout(1, 1, 1));
        grid.recompute = "full";
        return grid;
    }();
    check_exit(train(place.path(), "recomputed", recomputed, beside), 0);
    BOOST_TEST((numbers_of(place.path(), "loss", "recomputed") == losses));
    check_exit(train(place.path(), "bf16", hybrid(layout(2, 1, 1, 1, 1)), beside + "--set precision.compute=bf16"), 0);
    BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", "bf16")) <= 2e-2);
}

// What was learned is in the adapters, and in the merged weights the same.
BOOST_AUTO_TEST_CASE(adapters_are_evaluated_and_merged) {
    const Workplace place;
    const std::string gpt2 =
        " --set model.norm=layer --set model.mlp=gelu --set model.position=learned --set "
        "model.bias=all --set model.tied_head=true --set model.ttt.mini_batch=16 ";
    GridCase one = layout(1, 1, 1);
    one.mixer = "attention";
    check_exit(train(place.path(), "base", one, gpt2), 0);
    check_exit(train(place.path(), "tuned", one,
                     gpt2 + beside +
                         "--set optimizer.ema=0.5 --set model.adapters.match='[\"*/"
                         "mixer/*\",\"*/mlp/down\"]'"),
               0);
    const std::string eval = "eval --data text --format json --windows 8 --device cpu --checkpoint ";
    const auto loss_of = [&](const std::string& checkpoint, const std::string& more = "") {
        const Result result = run(eval + checkpoint + more, place.path());
        check_exit(result, 0);
        return Json::parse(result.out)["validation_loss"].get<double>();
    };
    for (const std::string averages : {"", " --ema"}) {
        const std::string suffix = averages.empty() ? "plain" : "averages";
        check_exit(run("convert runs/tuned " + suffix + averages, place.path(), 2), 0);
        check_exit(run("convert " + suffix + " " + suffix + ".h5", place.path()), 0);
        const double apart = loss_of("runs/tuned", averages), merged = loss_of(suffix + ".h5");
        BOOST_TEST(std::abs(apart - merged) < 1e-6 * apart, suffix << ": " << apart << ", merged " << merged);
        BOOST_TEST(std::abs(apart - loss_of("runs/base")) > 1e-3);
    }
    check_exit(run("generate --device cpu --tokens 4 --prompt the --checkpoint runs/tuned", place.path()), 0);
    const Result inspected =
        run("inspect --details " + checkpoint_file(place.path(), 10, "tuned").string(), place.path());
    check_exit(inspected, 0);
    BOOST_TEST(contains(inspected.out, "blocks/0/mixer/query/lora_a"), inspected);
    // They train on from where they were, and a run without [model.adapters] has them too.
    const Result further = train(place.path(), "further", one, gpt2 + " --init-from runs/tuned");
    check_exit(further, 0);
    BOOST_TEST(!contains(further.error, "new adapters"), further);
    BOOST_TEST(tensors_of(checkpoint_file(place.path(), 10, "further"))
                   .contains("optimizer/first_moment/blocks/0/mixer/query/lora_b"));
}

BOOST_AUTO_TEST_CASE(what_cannot_have_adapters_is_refused) {
    const Workplace place;
    const auto refused = [&](const std::string& settings, const std::string& sentence) {
        const Result result = train(place.path(), "x", layout(2, 1, 1), settings);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
        BOOST_TEST(count_of(result.error, "error:") == 1u, result);
    };
    refused("--set model.adapters.rank=2",
            "model.adapters trains adapters beside a model, and none is named: set init.from");
    refused("--set model.adapters.rank=2 --set 'model.frozen=[\"*\"]'", "remove model.frozen");
    refused("--set model.adapters.rank=2 --set 'model.adapters.match=[\"*/quary\"]'",
            "model.adapters.match: the pattern \"*/quary\" matches no linear layer of the model");
    refused("--set model.adapters.rank=2 --set 'model.adapters.match=[]'", "model.adapters.match is empty");
    refused("--set model.adapters.rank=-1", "model.adapters.rank");
    train_base(place);
    const std::string base = " --init-from checkpoints/base/step-00000010.h5 ";
    check_exit(train(place.path(), "kept", hybrid(layout(1, 1, 1)), beside + "--stop-at 2"), 4);
    const Result other =
        train(place.path(), "kept", hybrid(layout(1, 1, 1)), base + "--set model.adapters.rank=5 --resume auto");
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "model.adapters.rank"), other);
}

BOOST_AUTO_TEST_SUITE_END()
