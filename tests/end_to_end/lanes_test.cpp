// With parallel.lanes a run has the same bits on any number of replicas.
#define BOOST_TEST_MODULE lanes
#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

namespace {

// The final checkpoint and the numbers of every step, bit for bit.
void check_same_run(const fs::path& a, const std::string& name_a, const fs::path& b, const std::string& name_b) {
    BOOST_TEST_CONTEXT(name_b) {
        check_same_tensors(checkpoint_file(a, 10, name_a), checkpoint_file(b, 10, name_b));
        for (const char* key : {"loss", "gradient_norm"})
            BOOST_TEST((numbers_of(a, key, name_a) == numbers_of(b, key, name_b)), key << " differs");
    }
}

GridCase with_zero(GridCase grid, int zero) {
    grid.zero = zero;
    return grid;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lanes)

BOOST_AUTO_TEST_CASE(any_number_of_replicas_gives_the_same_bits) {
    const Workplace place;
    const std::string lanes = "--set parallel.lanes=12 --set parallel.bucket_bytes=8000";
    for (const std::string precision : {"fp32", "bf16"}) {
        const std::string settings = lanes + " --set precision.compute=" + precision, one = precision + "-1";
        check_exit(train(place.path(), one, layout(1, 1, 1), settings), 0);
        for (const int data : {2, 3, 4})
            for (const int zero : {0, 1}) {
                const std::string name = precision + "-" + std::to_string(data) + "-" + std::to_string(zero);
                check_exit(train(place.path(), name, with_zero(layout(data, 1, 1), zero), settings), 0);
                check_same_run(place.path(), one, place.path(), name);
            }
    }
    // Without lanes they do not, or this would show nothing.
    check_exit(train(place.path(), "free-1", layout(1, 1, 1)), 0);
    check_exit(train(place.path(), "free-3", layout(3, 1, 1)), 0);
    BOOST_TEST((tensors_of(checkpoint_file(place.path(), 10, "free-1")) !=
                tensors_of(checkpoint_file(place.path(), 10, "free-3"))));
    for (const char* key : {"loss", "gradient_norm"})
        BOOST_TEST(largest_difference(numbers_of(place.path(), key, "free-1"),
                                      numbers_of(place.path(), key, "fp32-1")) <= loss_tolerance);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_other_replicas) {
    const Workplace place;
    const std::string lanes = "--set parallel.lanes=12";
    check_exit(train(place.path(), "whole", layout(1, 1, 1), lanes), 0);
    check_exit(train(place.path(), "stopped", with_zero(layout(4, 1, 1), 1), lanes + " --stop-at 4"), 4);
    const Result second =
        train(place.path(), "stopped", with_zero(layout(3, 1, 1), 1), lanes + " --resume auto --stop-at 7");
    check_exit(second, 4);
    BOOST_TEST(!contains(second.error, "will not be bit-identical"), second);
    const fs::path other = place.twin("other");
    for (const char* folder : {"runs", "checkpoints"})
        fs::copy(place.path() / folder, other / folder, fs::copy_options::recursive);
    const Result third =
        train(place.path(), "stopped", layout(2, 1, 1), lanes + " --set parallel.bucket_bytes=9000 --resume auto");
    check_exit(third, 0);
    BOOST_TEST(!contains(third.error, "will not be bit-identical"), third);
    check_same_run(place.path(), "whole", place.path(), "stopped");
    const Result changed =
        train(other, "stopped", layout(2, 1, 1), "--set parallel.lanes=6 --set batch.micro=1 --resume auto");
    check_exit(changed, 0);
    BOOST_TEST(contains(changed.error, "will not be bit-identical"), changed);
    BOOST_TEST(contains(changed.error, "parallel.lanes"), changed);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(lanes_grids)

BOOST_AUTO_TEST_CASE(the_other_axes_stay_as_they_are) {
    const Workplace place;
    const std::string tied = " --set model.tied_head=true", muon = " --set optimizer.kind=muon --set parallel.zero=1";
    const struct {
        const char* name;
        GridCase one, other;
        std::string settings;
    } cases[] = {
        {"tensor", layout(1, 2, 1), layout(3, 2, 1), "--set parallel.lanes=6 --set parallel.sequence=true"},
        {"pipeline", layout(1, 1, 2, 1, 1), layout(2, 1, 2, 1, 1), "--set parallel.lanes=6" + tied},
        {"interleaved", layout(1, 1, 2, 1, 0, 2), layout(3, 1, 2, 1, 0, 2), "--set parallel.lanes=6" + tied},
        {"context", layout(1, 1, 1, 2), layout(3, 1, 1, 2, 1), "--set parallel.lanes=3"},
        {"attention", layout(1, 1, 1, 2), layout(2, 1, 1, 2, 1), "--set parallel.lanes=2 --set model.mixer=attention"},
        {"all", layout(1, 2, 1, 2), layout(2, 2, 1, 2, 1),
         "--set parallel.lanes=2 --set 'model.mixer=[\"ttt-linear\",\"attention\"]'"},
        {"muon", layout(1, 1, 1), layout(3, 1, 1, 1, 1), "--set parallel.lanes=3" + muon},
        {"sgd", layout(1, 1, 1), layout(2, 1, 1, 1, 1),
         "--set parallel.lanes=4 --set optimizer.kind=sgd --set optimizer.ema=0.9 --set optimizer.clip=0.1"},
        // Many blocks of the norm in a parameter, ZeRO's cuts between them, pieces exchanged in slices.
        {"large", layout(1, 1, 1), layout(3, 1, 1, 1, 1),
         "--set parallel.lanes=6 --set model.vocabulary=5003 --set parallel.bucket_bytes=8000"},
        {"sliced", layout(1, 1, 1, 2), layout(2, 1, 1, 2),
         "--set parallel.lanes=4 --set model.vocabulary=5003 --set parallel.bucket_bytes=8000"},
        {"frozen", layout(1, 1, 2), layout(2, 1, 2, 1, 1),
         "--set parallel.lanes=4 --set 'model.frozen=[\"embedding/*\",\"blocks/[01]/*\"]'"},
        {"ramp", layout(1, 1, 1), layout(2, 1, 1, 1, 1),
         "--set parallel.lanes=2 --set 'batch.ramp={start=4,increment=4,samples=24}' --set parallel.recompute=full"},
        {"documents", layout(1, 1, 1), layout(4, 1, 1), "--set parallel.lanes=4 --set data.documents=separate"},
    };
    for (const auto& c : cases) {
        const std::string one = std::string(c.name) + "-one", other = std::string(c.name) + "-other";
        check_exit(train(place.path(), one, c.one, c.settings + " --set batch.micro=1"), 0);
        check_exit(train(place.path(), other, c.other, c.settings + " --set batch.micro=1"), 0);
        check_same_run(place.path(), one, place.path(), other);
    }
}

BOOST_AUTO_TEST_CASE(lanes_that_do_not_divide_are_refused) {
    const Workplace place;
    const auto refused = [&](const GridCase& grid, const std::string& settings, const std::string& sentence) {
        const Result result = train(place.path(), "x", grid, settings);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
        BOOST_TEST(count_of(result.error, "error:") == 1u, result);
    };
    refused(layout(3, 1, 1), "--set parallel.lanes=4 --set parallel.data=auto",
            "parallel.lanes = 4 cannot be divided evenly among 3 replicas of the model; start 2 ranks instead");
    refused(
        layout(1, 1, 1), "--set parallel.lanes=8",
        "batch.global = 12 sequences, which do not divide evenly among 8 lanes (parallel.lanes); 6 lanes, or 8 or 16 "
        "sequences would");
    refused(layout(1, 1, 1), "--set parallel.lanes=-1", "parallel.lanes");
}

BOOST_AUTO_TEST_SUITE_END()
