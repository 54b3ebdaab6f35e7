// What replicas divide (parallel.zero) changes neither losses nor parameters.
#define BOOST_TEST_MODULE zero
#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

namespace {

// Ten steps, bit for bit; the validation loss too.
void check_same_run(const fs::path& folder, const std::string& expected, const std::string& name) {
    BOOST_TEST_CONTEXT(name) {
        check_same_tensors(checkpoint_file(folder, 10, expected), checkpoint_file(folder, 10, name));
        for (const char* key : {"loss", "validation_loss"})
            BOOST_TEST((numbers_of(folder, key, expected) == numbers_of(folder, key, name)), key << " differs");
        // Its sums are of what each rank owns.
        BOOST_TEST(largest_difference(numbers_of(folder, "gradient_norm", expected),
                                      numbers_of(folder, "gradient_norm", name)) <= 1e-12);
    }
}

void check_near(const fs::path& folder, const std::string& expected, const std::string& name,
                double tolerance = loss_tolerance) {
    for (const char* key : {"loss", "validation_loss"}) {
        const double difference = largest_difference(numbers_of(folder, key, expected), numbers_of(folder, key, name));
        BOOST_TEST(difference <= tolerance, name << ": " << key << " differs by up to " << difference);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(zero)

// Two ranks add up in one order only, and one micro-batch has nothing to add.
BOOST_AUTO_TEST_CASE(stages_have_the_same_bits_on_two_ranks) {
    const Workplace place;
    const std::string tied = " --set model.tied_head=true", learned = " --set model.position=learned";
    const std::string muon = " --set optimizer.kind=muon",
                      hybrid = " --set 'model.mixer=[\"ttt-linear\",\"attention\"]'";
    const struct {
        const char* name;
        std::string settings;
        int first = 0;  // stage
    } cases[] = {
        {"fp32", learned},
        {"bf16", " --set precision.compute=bf16 --set parallel.recompute=full" + hybrid},
        {"tied-bf16", " --set precision.compute=bf16" + tied + learned},
        {"tied", tied + " --set model.mixer=gated-deltanet --set parallel.recompute=selective"},
        {"muon", muon + tied, 1},
        {"sgd", " --set optimizer.kind=sgd --set optimizer.ema=0.9 --set optimizer.clip=0.1 --set model.mixer=ttt-mlp"},
        {"frozen", " --set 'model.frozen=[\"embedding/*\",\"blocks/[01]/*\"]' --set precision.compute=bf16"},
        {"frozen-head", tied + " --set 'model.frozen=[\"final_norm/*\",\"blocks/2/*\"]'"},
    };
    for (const auto& c : cases) {
        const std::string expected = std::string(c.name) + "-" + std::to_string(c.first);
        check_exit(train(place.path(), expected, layout(2, 1, 1, 1, c.first), "--set batch.micro=6" + c.settings), 0);
        for (int stage = c.first + 1; stage <= 3; ++stage) {
            const std::string name = std::string(c.name) + "-" + std::to_string(stage);
            check_exit(train(place.path(), name, layout(2, 1, 1, 1, stage), "--set batch.micro=6" + c.settings), 0);
            check_same_run(place.path(), expected, name);
        }
    }
}

// Micro-batches are added up in another order, and windows of validation do not divide evenly.
BOOST_AUTO_TEST_CASE(stages_agree_on_more_ranks) {
    const Workplace place;
    const std::string tied = " --set model.tied_head=true", micro = " --set batch.micro=1";
    const struct {
        const char* name;
        GridCase grid;
        std::string settings;
    } cases[] = {
        {"three", layout(3, 1, 1), micro},
        {"tensor", layout(2, 2, 1), micro + " --set parallel.sequence=true"},
        {"stages", layout(2, 1, 2), tied},
        {"interleaved", layout(2, 1, 2, 1, 0, 2), tied + " --set parallel.recompute=full"},
        {"context", layout(1, 1, 1, 3), micro + " --set batch.length=24"},
        {"attention", layout(2, 1, 1, 2), micro + tied + " --set model.mixer=attention"},
        {"documents", layout(2, 1, 1, 2), micro + " --set data.documents=separate"},
        // The first stage trains nothing.
        {"frozen-stage", layout(2, 1, 2), " --set 'model.frozen=[\"embedding/*\",\"blocks/[01]/*\"]'"},
        {"muon", layout(4, 1, 1, 1, 1), micro + " --set optimizer.kind=muon --set precision.compute=bf16"},
        {"ramp", layout(2, 1, 1), " --set batch.micro=2 --set 'batch.ramp={start=4,increment=4,samples=24}'"},
    };
    for (const auto& c : cases) {
        GridCase grid = c.grid;
        const std::string name = c.name, validation = " --set validation.batches=7 --set validation.every=5";
        check_exit(train(place.path(), name + "-0", grid, validation + c.settings), 0);
        const double tolerance = c.settings.find("bf16") == std::string::npos ? loss_tolerance : 2e-2;
        for (grid.zero = 2; grid.zero <= 3; ++grid.zero) {
            const std::string divided = name + "-" + std::to_string(grid.zero);
            check_exit(train(place.path(), divided, grid, validation + c.settings), 0);
            check_near(place.path(), name + "-0", divided, tolerance);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_at_another_stage) {
    const Workplace place;
    for (const std::string precision : {"fp32", "bf16"}) {
        const std::string settings = " --set batch.micro=2 --set precision.compute=" + precision;
        const std::string whole = precision + "-whole", parts = precision + "-parts";
        check_exit(train(place.path(), whole, layout(1, 1, 1), settings), 0);
        check_exit(train(place.path(), parts, layout(3, 1, 1, 1, 3), settings + " --stop-at 3"), 4);
        check_exit(train(place.path(), parts, layout(2, 1, 2, 1, 2), settings + " --resume auto --stop-at 6"), 4);
        check_exit(train(place.path(), parts, layout(2, 1, 1, 1, 3), settings + " --resume auto --stop-at 8"), 4);
        check_exit(train(place.path(), parts, layout(1, 2, 1, 1, 3), settings + " --resume auto"), 0);
        check_near(place.path(), whole, parts, precision == "fp32" ? loss_tolerance : 2e-3);

        // On the same ranks it goes on bit for bit.
        const GridCase same = layout(3, 1, 1, 1, 3);
        check_exit(train(place.path(), precision + "-a", same, settings), 0);
        check_exit(train(place.path(), precision + "-b", same, settings + " --stop-at 4"), 4);
        check_exit(train(place.path(), precision + "-b", same, settings + " --resume auto"), 0);
        check_same_run(place.path(), precision + "-a", precision + "-b");
    }
}

// Gathered parameters are waited for within a validation, too, which has no regions of a step.
BOOST_AUTO_TEST_CASE(a_validation_is_timed_as_one) {
    const Workplace place;
    std::vector<double> calls;
    for (const int every : {0, 2}) {
        const std::string name = "every-" + std::to_string(every);
        check_exit(train(place.path(), name, layout(2, 1, 1, 1, 3),
                         "--set validation.batches=2 --set validation.every=" + std::to_string(every)),
                   0);
        const Json summary =
            Json::parse(Process(analyze_program + " summary runs/" + name + " --format json", place.path()).wait().out);
        calls.push_back(summary["average"]["phases"]["communication"]["calls"].get<double>());
    }
    BOOST_TEST(calls[1] <= calls[0]);  // the step behind a validation finds some parameters there
}

BOOST_AUTO_TEST_CASE(what_cannot_be_divided_is_refused) {
    const Workplace place;
    const Result lanes = train(place.path(), "x", layout(2, 1, 1, 1, 2), "--set parallel.lanes=4");
    check_exit(lanes, 2);
    BOOST_TEST(contains(lanes.error, "parallel.zero = 2 shards gradients, but parallel.lanes = 4 needs whole sums"),
               lanes);
    const Result stage = train(place.path(), "x", layout(2, 1, 1, 1, 4));
    check_exit(stage, 2);
    BOOST_TEST(contains(stage.error, "parallel.zero = 4: the stages are 0 to 3"), stage);
}

BOOST_AUTO_TEST_SUITE_END()
