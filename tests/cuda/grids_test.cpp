// Layouts of several emulated GPUs train as one CPU does, within rounding.
#define BOOST_TEST_MODULE grids
#include "cuda/training_support.hpp"

using namespace lockstep::tests;

namespace {

struct Layout {
    std::string mixer, model, settings;
    int ranks;
    bool shared = false;  // also through MPI and pinned memory, since the ranks share a GPU
};

void check_layouts(const std::vector<Layout>& layouts) {
    Trained trained;
    const std::string few = "--set schedule.steps=4 --set model.layers=4 --set model.ttt.mini_batch=4 ";
    for (const Layout& layout : layouts) BOOST_TEST_CONTEXT(layout.mixer << " " << layout.settings) {
            const std::string run = few + "--set 'model.mixer=" + layout.mixer + "' " + layout.model;
            const fs::path cpu = trained.run(train(run, "cpu"), 0, gpus(1));
            check_near(trained.run(train(run + layout.settings), layout.ranks, gpus(layout.ranks)), cpu, 2e-4);
            if (layout.shared) check_near(trained.run(train(run + layout.settings), layout.ranks, gpus(1)), cpu, 2e-4);
        }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(grids)

BOOST_AUTO_TEST_CASE(layouts_train_as_one_rank_does) {
    check_layouts(
        {{"attention", "", "--set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.interleave=2", 4},
         {"[\"ttt-linear\",\"attention\"]", "",
          "--set parallel.context=2 --set parallel.tensor=2 --set parallel.sequence=true --set parallel.recompute=full",
          4}});
}

// Every mixer among documents that do not see each other, around windows of 32 tokens.
BOOST_AUTO_TEST_CASE(documents_are_kept_apart_as_on_cpus) {
    Trained trained;
    const fs::path lines = trained.place.path() / "short.jsonl";
    write_short_documents(lines);
    const std::string documents =
        "--set schedule.steps=2 --set schedule.warmup=1 --set model.ttt.mini_batch=4 --set data.documents=separate "
        "--set data.train=" +
        lines.string() + " ";
    for (const std::string mixers : {"[\"attention\",\"ttt-linear\"]", "[\"gated-deltanet\",\"ttt-mlp\"]"})
        BOOST_TEST_CONTEXT(mixers) {
            const std::string of_mixers = documents + "--set 'model.mixer=" + mixers + "' ";
            const fs::path cpu = trained.run(train(of_mixers, "cpu"), 0, gpus(1));
            check_near(trained.run(train(of_mixers), 0, gpus(1)), cpu, 2e-4);
            check_near(trained.run(train(of_mixers + "--set parallel.context=2"), 2, gpus(2)), cpu, 2e-4);
        }
}

// What is divided for bf16 is the fp32 master values, which no rank has whole.
BOOST_AUTO_TEST_CASE(divided_master_values_change_nothing) {
    Trained trained;
    const std::string bf16 = "--set schedule.steps=5 --set precision.compute=bf16 ";
    const fs::path whole = trained.run(train(bf16), 2, gpus(2));
    const fs::path divided = trained.run(train(bf16 + "--set parallel.zero=1"), 2, gpus(2));
    check_near(divided, whole, 1e-5);
    const auto a = tensors_of(checkpoint_file(whole, 5)), b = tensors_of(checkpoint_file(divided, 5));
    for (const auto& [path, values] : a) {
        double difference = 0, size = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            difference += std::pow(values[i] - b.at(path)[i], 2);
            size += std::pow(values[i], 2);
        }
        BOOST_TEST(difference <= 1e-8 * size, path);
    }
}

BOOST_AUTO_TEST_CASE(a_run_moves_between_layouts_and_devices) {
    Trained trained;
    const std::string layers = "--set model.layers=4 ";
    const fs::path whole = trained.run(train(layers, "cpu"), 0, gpus(1)), parts = trained.place.twin("parts");
    const std::string two_by_two = layers + "--set parallel.tensor=2 --set parallel.zero=1 ";
    const std::string stages = layers + "--set parallel.pipeline=3 ";
    check_exit(run(train(two_by_two + "--stop-at 4", "cpu"), parts, 4, gpus(4)), 4);
    check_exit(run(train(stages + "--resume auto --stop-at 9"), parts, 3, gpus(4)), 4);
    check_exit(run(train(two_by_two + "--resume auto"), parts, 4, gpus(4)), 0);
    check_near(parts, whole, 2e-4);
}

BOOST_AUTO_TEST_SUITE_END()

// Minutes.
BOOST_AUTO_TEST_SUITE(more_grids)

BOOST_AUTO_TEST_CASE(more_layouts_train_as_one_rank_does) {
    const std::string longer = "--set model.context=24 ";
    check_layouts(
        {{"attention", "", "--set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.interleave=2", 4, true},
         {"ttt-linear", "--set optimizer.kind=muon ",
          "--set parallel.tensor=2 --set parallel.sequence=true --set parallel.zero=1", 4},
         {"ttt-linear", "", "--set parallel.context=2 --set parallel.pipeline=2 --set parallel.recompute=full", 4},
         {"gated-deltanet", "", "--set parallel.context=2 --set parallel.tensor=2 --set parallel.zero=1", 4, true},
         {"attention", "--set optimizer.kind=sgd ", "--set parallel.context=4", 4},
         {"[\"ttt-linear\",\"attention\"]", "",
          "--set parallel.context=2 --set parallel.tensor=2 --set parallel.sequence=true --set parallel.recompute=full",
          4, true},
         {"attention", longer, "--set parallel.context=3", 3},
         {"ttt-mlp", longer, "--set parallel.context=3 --set parallel.recompute=selective", 3}});
}

BOOST_AUTO_TEST_SUITE_END()
