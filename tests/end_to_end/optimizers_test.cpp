// Every optimizer on several layouts, resumed, with groups of parameters and averages of them.
#define BOOST_TEST_MODULE optimizers
#include <cmath>
#include <functional>
#include <set>

#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

BOOST_AUTO_TEST_SUITE(optimizers)

// Each on several layouts as on one rank, resumed bit for bit, and on another layout.
BOOST_AUTO_TEST_CASE(train_on_any_layout_and_go_on_in_another) {
    const Workplace place;
    const std::string groups =
        " --set 'optimizer.groups=[{match=\"embedding/*\",lr=3e-4},{match=\"*norm/weight\",decay=0.0}]'";
    const std::vector<std::pair<std::string, std::string>> kinds = {
        {"adamw", "--set optimizer.decay=matrices" + groups},
        {"sgd", "--set optimizer.kind=sgd --set schedule.peak_lr=0.1" + groups},
        {"nesterov", "--set optimizer.kind=sgd --set optimizer.sgd.nesterov=true --set schedule.peak_lr=0.05"},
        {"muon", "--set optimizer.kind=muon --set schedule.peak_lr=3e-3 --set optimizer.ema=0.8" + groups}};
    for (const auto& [kind, settings] : kinds) {
        const std::string one = "one-" + kind;
        check_exit(train(place.path(), one, layout(1, 1, 1), settings), 0);
        const auto expected = numbers_of(place.path(), "loss", one);
        for (const GridCase& grid : {layout(2, 2, 1, 1, 1), layout(3, 1, 1, 1, 1), layout(1, 1, 2, 2, 1)}) {
            const std::string name = kind + "-" + grid.name();
            check_exit(train(place.path(), name, grid, settings), 0);
            BOOST_TEST(largest_difference(expected, numbers_of(place.path(), "loss", name)) <= loss_tolerance, name);
            const fs::path stopped = place.twin("stopped-" + name);
            check_exit(train(stopped, name, grid, settings + " --stop-at 5"), 4);
            fs::path other = stopped;
            other += "-other";
            fs::copy(stopped, other, fs::copy_options::recursive);
            check_exit(train(stopped, name, grid, settings + " --resume auto"), 0);
            check_same_checkpoint(checkpoint_file(place.path(), 10, name), checkpoint_file(stopped, 10, name));
            check_exit(train(other, name, layout(2, 1, 1, 1, 1), settings + " --resume auto"), 0);
            BOOST_TEST(largest_difference(expected, numbers_of(other, "loss", name)) <= loss_tolerance, name);
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(optimizers_on_grids)

// Of all layouts of up to 4 ranks, stages of ZeRO, optimizers and precisions, each pair of choices: as on one rank,
// stopped, and resumed in another case's layout.
BOOST_AUTO_TEST_CASE(any_two_choices_go_together) {
    struct Choice {
        GridCase grid;
        std::string optimizer, precision;
        bool tied = false;
        std::string settings() const {
            return "--set precision.compute=" + precision + " --set model.tied_head=" + (tied ? "true" : "false") +
                   " --set batch.micro=1 " + optimizer;
        }
    };
    const std::vector<std::string> optimizers = {
        "--set optimizer.kind=adamw --set 'optimizer.groups=[{match=\"embedding/*\",lr=3e-4}]'",
        "--set optimizer.kind=sgd --set schedule.peak_lr=0.1 --set optimizer.ema=0.9",
        "--set optimizer.kind=muon --set schedule.peak_lr=3e-3"};
    std::vector<Choice> all;
    for (const GridCase& grid : all_grid_cases()) {
        if (grid.mixer != "attention" || grid.recompute != "none" || grid.sequence || grid.interleave > 1 ||
            grid.ranks() > 4)
            continue;
        for (const std::string& optimizer : optimizers)
            for (const char* precision : {"fp32", "bf16"})
                for (const bool tied : {false, true}) {
                    const bool whole = grid.zero == 0 && grid.data * grid.context > 1;
                    if (!whole || optimizer != optimizers.back()) all.push_back({grid, optimizer, precision, tied});
                }
    }
    const std::vector<Choice> chosen = covering_set(all, [](const Choice& one) {
        return std::vector<std::string>{std::to_string(one.grid.data),
                                        std::to_string(one.grid.tensor),
                                        std::to_string(one.grid.pipeline),
                                        std::to_string(one.grid.context),
                                        std::to_string(one.grid.zero),
                                        one.optimizer,
                                        one.precision,
                                        one.tied ? "tied" : ""};
    });
    BOOST_TEST_MESSAGE(chosen.size() << " of " << all.size() << " cases cover all pairs");
    const Workplace place;
    std::set<std::string> references;
    for (std::size_t at = 0; at < chosen.size(); ++at) {
        const Choice& one = chosen[at];
        const std::string expected = "one-" + std::to_string(std::hash<std::string>()(one.settings()));
        GridCase alone;
        alone.mixer = one.grid.mixer;
        if (references.insert(expected).second) check_exit(train(place.path(), expected, alone, one.settings()), 0);
        GridCase other = chosen[(at + 1) % chosen.size()].grid;
        if (one.optimizer == optimizers.back()) other.zero = std::max(other.zero, 1);
        const std::string name = std::to_string(at) + "-" + one.grid.name();
        BOOST_TEST_CONTEXT(name << " and " << other.name() << ": " << one.settings()) {
            check_exit(train(place.path(), name, one.grid, one.settings() + " --stop-at 6"), 4);
            check_exit(train(place.path(), name, other, one.settings() + " --resume auto"), 0);
            const double tolerance = one.precision == "fp32" ? loss_tolerance : 2e-2;
            BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", expected),
                                          numbers_of(place.path(), "loss", name)) <= tolerance);
        }
        fs::remove_all(place.path() / "checkpoints" / name);
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(optimizers)

BOOST_AUTO_TEST_CASE(muon_wants_each_matrix_updated_once) {
    const Workplace place;
    const Result refused = train(place.path(), "x", layout(2, 1, 1), "--set optimizer.kind=muon");
    check_exit(refused, 2);
    BOOST_TEST(contains(refused.error, "optimizer.kind = \"muon\" on 2 replicas needs parallel.zero = 1"), refused);
    BOOST_TEST(count_of(refused.error, "error:") == 1u, refused);
    // In 16 bits, with frozen matrices, over stages and tensor ranks.
    const std::string settings =
        "--set optimizer.kind=muon --set schedule.peak_lr=3e-3 --set precision.compute=bf16 --set "
        "'model.frozen=[\"blocks/1/mlp/*\"]'";
    check_exit(train(place.path(), "one", layout(1, 1, 1), settings), 0);
    check_exit(train(place.path(), "four", layout(1, 2, 2), settings), 0);
    BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", "one"), numbers_of(place.path(), "loss", "four")) <=
               2e-2);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_other_groups) {
    const Workplace place;
    check_exit(train(place.path(), "small", layout(1, 1, 1), "--stop-at 3"), 4);
    const Result other = train(place.path(), "small", layout(1, 1, 1),
                               "--resume auto --set 'optimizer.groups=[{match=\"*\",lr=1e-4,decay=0.0}]'");
    check_exit(other, 0);
    BOOST_TEST(contains(other.error, "changed since the checkpoint: optimizer.groups is "), other);
}

// On two ranks with ZeRO, and one: the average follows the parameters, and every command can take it in their place.
BOOST_AUTO_TEST_CASE(averages_are_kept_and_used) {
    const Workplace place;
    constexpr double decay = 0.75;
    const std::string settings = "--set optimizer.ema=0.75 --set 'model.frozen=[\"blocks/0/*\"]' ";
    const auto at_step = [&](int step, const std::string& name) {
        return tensors_of(checkpoint_file(place.path(), step, name));
    };
    check_exit(train(place.path(), "two", layout(2, 1, 1, 1, 1), settings + "--stop-at 1"), 4);
    const auto first = at_step(1, "two");
    check_exit(train(place.path(), "two", layout(2, 1, 1, 1, 1), settings + "--resume auto --stop-at 2"), 4);
    const auto second = at_step(2, "two");
    std::size_t averages = 0;
    for (const auto& [path, values] : second) {
        if (!path.starts_with("optimizer/ema/")) continue;
        ++averages;
        const std::vector<float>&before = first.at(path),
              &now = second.at("parameters/" + path.substr(std::string("optimizer/ema/").size()));
        double worst = 0;
        for (std::size_t i = 0; i < values.size(); ++i)
            worst = std::max(worst, std::abs(decay * before[i] + (1 - decay) * now[i] - values[i]));
        BOOST_TEST(worst < 1e-6, path);
    }
    BOOST_TEST(averages > 10u);
    BOOST_TEST(second.count("optimizer/ema/blocks/0/mlp/up/weight") == 0u);
    check_exit(train(place.path(), "two", layout(1, 1, 1), settings + "--resume auto"), 0);

    const fs::path last = checkpoint_file(place.path(), 10, "two");
    const std::string eval = "eval --data text --format json --windows 8 --device cpu --checkpoint ";
    const Result plain = run(eval + last.string(), place.path()),
                 average = run(eval + last.string() + " --ema", place.path());
    check_exit(plain, 0);
    check_exit(average, 0);
    BOOST_TEST(plain.out != average.out);
    check_exit(run("generate --device cpu --tokens 4 --prompt the --ema --checkpoint " + last.string(), place.path()),
               0);

    // Without averages from here on, and with new ones, which begin at the parameters.
    check_exit(train(place.path(), "two", layout(1, 1, 1),
                     settings + "--set schedule.steps=12 --set optimizer.ema=0.0 --resume auto"),
               0);
    const fs::path without = checkpoint_file(place.path(), 12, "two");
    for (const auto& [path, values] : tensors_of(without)) BOOST_TEST(!path.starts_with("optimizer/ema/"), path);
    const Result refused = run(eval + without.string() + " --ema", place.path());
    check_exit(refused, 2);
    BOOST_TEST(contains(refused.error, "has no averages of its parameters"), refused);
    check_exit(train(place.path(), "two", layout(1, 1, 1), settings + "--set schedule.steps=13 --resume auto"), 0);
    const auto begun = at_step(13, "two"), before = tensors_of(without);
    const std::string one = "blocks/1/mlp/up/weight";
    double worst = 0;
    for (std::size_t i = 0; i < begun.at("parameters/" + one).size(); ++i)
        worst = std::max(
            worst, std::abs(decay * before.at("parameters/" + one)[i] + (1 - decay) * begun.at("parameters/" + one)[i] -
                            begun.at("optimizer/ema/" + one)[i]));
    BOOST_TEST(worst < 1e-6);
}

BOOST_AUTO_TEST_CASE(groups_are_checked) {
    const Workplace place;
    const auto refuses = [&](const std::string& groups, const std::string& why, const std::string& more = "") {
        const Result result =
            train(place.path(), "x", layout(2, 1, 1), "--set 'optimizer.groups=" + groups + "'" + more);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, why), result);
        BOOST_TEST(count_of(result.error, "error:") == 1u, result);
    };
    refuses("[{match=\"embeding/weight\",lr=1e-3}]",
            "the pattern \"embeding/weight\" matches no parameter of the model; the nearest is embedding/weight");
    refuses("[{match=\"embedding/*\",lr=1e-3}]", "matches frozen parameters only",
            " --set 'model.frozen=[\"embedding/*\"]'");
    refuses("[{match=\"*\"}]", "has neither lr nor decay");
    refuses("[{match=\"*\",lr=1e-3},{match=\"embedding/*\",lr=1e-4}]",
            "the pattern \"embedding/*\" has no effect, since earlier patterns match all that it matches");
    std::string many;
    for (int i = 0; i < 8; ++i) many += std::string(i > 0 ? "," : "") + "{match=\"*\",lr=1e-3}";
    refuses("[" + many + "]", "has 8 tables; at most 7 are possible");
    refuses("[{lr=1e-3}]", "optimizer.groups[0].match is missing");
    refuses("[{match=\"*\",rate=1e-3}]", "optimizer.groups[0].rate");
    refuses("[{match=\"*\",lr=-1e-3}]", "must not be negative");
}

BOOST_AUTO_TEST_SUITE_END()
