// Frozen parameters keep their values; the others train as in mathematics they must, however the run is laid out.
#define BOOST_TEST_MODULE frozen
#include "end_to_end/command.hpp"
#include "end_to_end/grid_cases.hpp"

using namespace lockstep::tests;

namespace {

const std::string model =
    " --set model.width=32 --set model.layers=4 --set model.heads=4 --set model.mlp_width=48 --set model.vocabulary=259"
    " --set model.context=32 --set model.ttt.mini_batch=4 --set batch.global=12 --set batch.micro=0"
    " --set schedule.steps=6 --set schedule.warmup=2 --set schedule.peak_lr=1e-3 --set checkpoint.every=0"
    " --set run.self_test=false --device cpu";
const std::string environment = "LOCKSTEP_SYNCHRONOUS_SENDS=1 OMP_NUM_THREADS=1 LOCKSTEP_CPU_BF16=1";

// Stages of a pipeline without anything trained in them or below them, between trained ones, and above them; the head's
// table, norms, inner models and single layers of a block.
const std::vector<std::string> lists = {
    R"(["embedding/*", "blocks/[01]/*"])", R"(["blocks/[123]/*", "final_norm/*"])", R"(["embedding/*", "*norm/*"])",
    R"(["embedding/*", "blocks/[012]/*", "blocks/3/m*_norm/*", "blocks/3/mixer/*", "final_norm/*"])",
    R"(["*/mixer/*", "blocks/2/*"])"};

std::string freezing(const std::string& list) {
    return " --set 'model.frozen=" + list + "'";
}

Result train(const fs::path& folder, const std::string& name, const GridCase& grid, const std::string& more) {
    return run("train run.toml --set run.name=" + name + model + grid.settings() + " " + more, folder, grid.ranks(),
               environment);
}

bool is_parameter(const std::string& path) {
    return path.find("parameters/") == 0;
}
std::string name_of(const std::string& path) {
    for (const std::string group : {"parameters/", "optimizer/first_moment/", "optimizer/second_moment/"})
        if (path.find(group) == 0) return path.substr(group.size());
    return path;
}

// Names of the checkpoint's parameters that have moments.
std::set<std::string> trained_in(const fs::path& checkpoint) {
    std::set<std::string> names;
    for (const auto& [path, values] : tensors_of(checkpoint))
        if (!is_parameter(path)) names.insert(name_of(path));
    return names;
}

void run_all(int ranks) {
    const Workplace place;
    std::vector<GridCase> cases = grid_cases(ranks);
    BOOST_TEST_REQUIRE(!cases.empty());
    write_short_documents(place.path() / "short.jsonl");
    std::set<std::string> references;
    std::size_t next = static_cast<std::size_t>(ranks);
    for (const GridCase& one : cases) {
        const std::size_t list = next++ % lists.size();
        const std::string expected = "one-" + one.kind() + std::to_string(list), name = one.name();
        BOOST_TEST_CONTEXT(name << " with " << lists[list]) {
            GridCase alone;
            alone.mixer = one.mixer;
            alone.own_heads = one.own_heads;
            alone.bounded = one.bounded;
            alone.documents = one.documents;
            if (references.insert(expected).second)
                check_exit(train(place.path(), expected, alone, freezing(lists[list])), 0);
            check_exit(train(place.path(), name, one, freezing(lists[list])), 0);
            for (const char* key : {"loss", "validation_loss"})
                BOOST_TEST(largest_difference(numbers_of(place.path(), key, expected),
                                              numbers_of(place.path(), key, name)) <= 2e-6);
            BOOST_TEST(largest_difference(numbers_of(place.path(), "gradient_norm", expected),
                                          numbers_of(place.path(), "gradient_norm", name)) <= 1e-4);
            BOOST_TEST((trained_in(checkpoint_file(place.path(), 6, expected)) ==
                        trained_in(checkpoint_file(place.path(), 6, name))));
        }
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frozen)

BOOST_AUTO_TEST_CASE(values_stay_and_gradients_of_the_others_are_the_same) {
    const Workplace place;
    const std::string unclipped = " --set optimizer.clip=0";  // the norm is of trained parameters only
    for (const char* mixer : {"attention", "ttt-mlp"}) {
        GridCase alone;
        alone.mixer = mixer;
        const std::string whole = std::string("whole-") + mixer;
        check_exit(train(place.path(), whole, alone, unclipped + " --stop-at 1"), 4);
        const auto all = tensors_of(checkpoint_file(place.path(), 1, whole));
        for (std::size_t i = 0; i < lists.size(); ++i) {
            const std::string name = mixer + std::to_string(i);
            check_exit(train(place.path(), name, alone, freezing(lists[i]) + unclipped + " --stop-at 1"), 4);
            const Result result = train(place.path(), name, alone, freezing(lists[i]) + unclipped + " --resume auto");
            check_exit(result, 0);
            const auto first = tensors_of(checkpoint_file(place.path(), 1, name)),
                       last = tensors_of(checkpoint_file(place.path(), 6, name));
            const auto trained = trained_in(checkpoint_file(place.path(), 1, name));
            BOOST_TEST(!trained.empty());
            std::size_t count = 0, count_trained = 0;
            for (const auto& [path, values] : first) {
                // The first moments of the first step are its gradients.
                if (!is_parameter(path)) {
                    BOOST_TEST((values == all.at(path)), name << ": " << path);
                    continue;
                }
                const bool is_trained = trained.count(name_of(path)) > 0;
                count += values.size();
                if (is_trained) count_trained += values.size();
                BOOST_TEST((values == last.at(path)) == !is_trained, name << ": " << path);
            }
            const auto commas = [](std::size_t number) {
                std::string text = std::to_string(number);
                for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
                return text;
            };
            BOOST_TEST(
                contains(result.error, commas(count_trained) + " of " + commas(count) + " parameters are trained"),
                result);
            BOOST_TEST(numbers_of(place.path(), "loss", name).at(1) == numbers_of(place.path(), "loss", whole).at(1));
            check_exit(run("verify checkpoints/" + name + "/step-00000006.h5", place.path()), 0);
        }
    }
    for (const char* command : {"eval --data text --checkpoint ", "generate --prompt the --tokens 5 --checkpoint "})
        check_exit(run(command + std::string("checkpoints/ttt-mlp0/step-00000006.h5 --device cpu"), place.path()), 0);
    const Result inspected =
        run("inspect --preset gpt2-124m --format json --set 'model.frozen=[\"*/weight\"]'", place.path());
    check_exit(inspected, 0);
    const Json json = Json::parse(inspected.out);
    BOOST_TEST(json["trained_parameters"] == 12 * (2 + 3 + 1 + 4 + 1) * 768 + 768);  // biases of norms and products
    BOOST_TEST(json["training_bytes_without_activations"].get<double>() ==
               4.0 * json["parameters"].get<double>() + 12.0 * json["trained_parameters"].get<double>());
}

// What bf16 has rounded once comes back from a checkpoint, also where it is divided.
BOOST_AUTO_TEST_CASE(resumes_are_exact) {
    const Workplace place;
    for (const char* compute : {"fp32", "bf16"})
        for (const int zero : {0, 1}) {
            GridCase two;  // replicas that divide the optimizer, or ranks that divide the tensors
            (zero == 1 ? two.data : two.tensor) = 2;
            two.zero = zero;
            const std::string settings = freezing(lists[0]) + " --set precision.compute=" + compute;
            const std::string name = std::string(compute) + std::to_string(zero);
            const fs::path whole = place.twin("whole-" + name), resumed = place.twin("resumed-" + name);
            check_exit(train(whole, "small", two, settings), 0);
            check_exit(train(resumed, "small", two, settings + " --stop-at 3"), 4);
            const Result second = train(resumed, "small", two, settings + " --resume auto");
            check_exit(second, 0);
            BOOST_TEST(!contains(second.error, "bit-identical"), second);
            check_same_checkpoint(checkpoint_file(whole, 6), checkpoint_file(resumed, 6));
            const auto before = tensors_of(checkpoint_file(resumed, 3)), after = tensors_of(checkpoint_file(whole, 6));
            const auto trained = trained_in(checkpoint_file(whole, 6));
            for (const auto& [path, values] : before) {
                if (is_parameter(path) && trained.count(name_of(path)) == 0)
                    BOOST_TEST((values == after.at(path)), path);
            }
            // On to one rank.
            check_exit(run("train run.toml --set run.name=small" + model + GridCase().settings() + settings +
                               " --resume checkpoints/small/step-00000003.h5",
                           resumed, 0, environment),
                       0);
            BOOST_TEST(largest_difference(numbers_of(whole, "loss"), numbers_of(resumed, "loss")) <=
                       (compute == std::string("fp32") ? 2e-6 : 2e-3));
        }
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_with_another_list) {
    const Workplace place;
    const GridCase alone;
    check_exit(train(place.path(), "small", alone, freezing(R"(["blocks/0/*"])") + " --stop-at 2"), 4);
    const auto before = tensors_of(checkpoint_file(place.path(), 2));
    const Result changed =
        train(place.path(), "small", alone,
              freezing(R"(["blocks/1/mlp/up/weight", "embedding/*"])") + " --resume auto --stop-at 3");
    check_exit(changed, 4);
    BOOST_TEST(contains(changed.error, "9,824 parameters are newly frozen, and their optimizer state is dropped"),
               changed);
    BOOST_TEST(contains(changed.error, "are newly trained, and their optimizer state starts at zero"), changed);
    const auto after = tensors_of(checkpoint_file(place.path(), 3));
    const std::string dropped = "blocks/1/mlp/up/weight", begun = "blocks/0/mlp/up/weight";
    BOOST_TEST((before.at("parameters/" + dropped) == after.at("parameters/" + dropped)));
    BOOST_TEST(after.count("optimizer/first_moment/" + dropped) == 0u);
    BOOST_TEST(before.count("optimizer/first_moment/" + begun) == 0u);
    BOOST_TEST(after.count("optimizer/second_moment/" + begun) == 1u);
    BOOST_TEST((before.at("parameters/" + begun) != after.at("parameters/" + begun)));
    // Everything again.
    const Result none = train(place.path(), "small", alone, "--resume auto");
    check_exit(none, 0);
    BOOST_TEST(contains(none.error, "0 parameters are newly frozen"), none);
    BOOST_TEST(trained_in(checkpoint_file(place.path(), 6)).count(dropped) == 1u);
}

BOOST_AUTO_TEST_CASE(lists_that_cannot_be_meant_are_refused) {
    const Workplace place;
    const Result misspelt = train(place.path(), "small", {}, freezing(R"(["blocks/*/mpl/up/weight"])"));
    check_exit(misspelt, 2);
    BOOST_TEST(contains(misspelt.error, "the nearest is blocks/0/mlp/up/weight"), misspelt);
    GridCase two;
    two.data = 2;
    const Result all = train(place.path(), "small", two, freezing(R"(["*"])"));
    check_exit(all, 2);
    BOOST_TEST(count_of(all.error, "nothing to train") == 1u, all);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(frozen_grids)
BOOST_AUTO_TEST_CASE(on_two_ranks) {
    run_all(2);
}
BOOST_AUTO_TEST_CASE(on_three_ranks) {
    run_all(3);
}
BOOST_AUTO_TEST_CASE(on_four_ranks) {
    run_all(4);
}
BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(frozen_grids_np8)
BOOST_AUTO_TEST_CASE(on_eight_ranks) {
    run_all(8);
}
BOOST_AUTO_TEST_SUITE_END()
