// Runs that begin with the parameters of a checkpoint.
#define BOOST_TEST_MODULE init
#include <limits>

#include "checkpoint_fixture.hpp"
#include "end_to_end/beginnings.hpp"

using namespace lockstep::tests;

namespace {

// A run of another name that takes its model from `from`: no key of [model] is given.
std::string begin(const std::string& from, const std::string& name, const std::string& more = "") {
    return "train fine.toml --init-from " + from + " --set run.name=" + name + " " + more;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(init_from)

BOOST_AUTO_TEST_CASE(the_parameters_are_those_of_the_checkpoint) {
    const Workplace place;
    check_exit(run("train run.toml", place.path()), 0);
    write_fine_description(place.path());
    const fs::path source = checkpoint_file(place.path(), 12);
    const auto expected = parameters_of(source);
    struct Case {
        std::string from, name, more;
        int ranks;
    };
    for (const Case& each : {Case{source.string(), "file", "", 0}, Case{"runs/small", "folder", "", 2},
                             Case{"checkpoints/small", "tensor", "--set parallel.tensor=2", 2},
                             Case{source.string(), "zero", "--set parallel.zero=1", 3},
                             Case{source.string(), "stages", "--set parallel.pipeline=2 --set batch.micro=1", 2}})
        BOOST_TEST_CONTEXT(each.name) {
            const Result result = run(begin(each.from, each.name, each.more), place.path(), each.ranks);
            check_exit(result, 0);
            BOOST_TEST(contains(result.error, "parameters from "), result);
            const fs::path checkpoint = checkpoint_file(place.path(), 2, each.name);
            BOOST_TEST((parameters_of(checkpoint) == expected));  // the learning rate is nothing
            BOOST_TEST(state_of(checkpoint).at("step") == "2");
        }
}

// Tables of layers: the checkpoint has lists of them, and a file with the same tables means the same model.
BOOST_AUTO_TEST_CASE(layers_that_differ_are_the_same_model_again) {
    const Workplace place;
    const std::string layers =
        " --set model.layers='[{count=2}, {mixer=\"attention\", heads=4, kv_heads=1, window=9}, "
        "{mixer=\"attention\", heads=2, head_width=20}]'";
    check_exit(run("train run.toml --stop-at 6" + layers, place.path(), 2), 4);
    check_exit(run("train run.toml --resume auto" + layers, place.path()), 0);
    check_exit(run("train runs/small/run.toml --set run.name=again --set schedule.steps=4", place.path()), 0);
    const Result same = run("train run.toml --init-from runs/small --set run.name=same --set schedule.steps=2 " +
                                ("--set schedule.warmup=0 --set schedule.peak_lr=1e-300" + layers),
                            place.path());
    check_exit(same, 0);
    BOOST_TEST(
        (parameters_of(checkpoint_file(place.path(), 2, "same")) == parameters_of(checkpoint_file(place.path(), 12))));
    const Result other =
        run("train run.toml --init-from runs/small --set run.name=other --set model.layers=4", place.path());
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "is another model: "), other);
    check_exit(run("generate --checkpoint checkpoints/small --prompt a --tokens 4", place.path()), 0);
}

BOOST_AUTO_TEST_CASE(training_goes_on_from_there) {
    const Workplace place;
    check_exit(run("train run.toml", place.path()), 0);
    write_fine_description(place.path());
    const std::string training = "--set schedule.steps=6 --set schedule.peak_lr=1e-3 --set checkpoint.every=3";
    check_exit(run(begin("runs/small", "fine", training), place.path()), 0);
    // Below the first loss of random parameters, and not where the source ended: other samples, fresh moments.
    BOOST_TEST(numbers_of(place.path(), "loss", "fine").at(1) < numbers_of(place.path(), "loss").at(1));
    // A frozen parameter stays.
    check_exit(run(begin("runs/small", "frozen", training + " --set 'model.frozen=[\"embedding/*\"]'"), place.path()),
               0);
    const auto before = parameters_of(checkpoint_file(place.path(), 12)),
               after = parameters_of(checkpoint_file(place.path(), 6, "frozen"));
    int same = 0;
    for (const auto& [path, values] : before) same += values == after.at(path) ? 1 : 0;
    BOOST_TEST(same == 1);
    // Stopped and resumed, with the source gone: the model is that of the run.
    check_exit(run(begin("runs/small", "halves", training + " --stop-at 3"), place.path()), 4);
    fs::remove_all(place.path() / "checkpoints" / "small");
    check_exit(run(begin("runs/small", "halves", training + " --resume auto"), place.path(), 2), 0);
    check_exit(run(begin("runs/small", "again", training), place.path()), 2);
    // What a run folder holds is complete, wherever it is read.
    const Result shown =
        run("inspect " + (run_folder(place.path(), "halves") / "run.toml").string() + " --print model.width",
            place.path() / "text");
    BOOST_TEST(shown.out == "64\n", shown);
    const auto whole = numbers_of(place.path(), "loss", "fine"), halves = numbers_of(place.path(), "loss", "halves");
    BOOST_TEST(largest_difference(whole, halves) < 1e-5);
}

// As other programs write them.
BOOST_AUTO_TEST_CASE(a_file_with_parameters_alone) {
    const Workplace place;
    check_exit(run("train run.toml", place.path()), 0);
    write_fine_description(place.path());
    const std::string source = checkpoint_file(place.path(), 12).string();
    std::vector<lockstep::checkpoint_tests::Tensors::Named> parameters;
    for (const auto& tensor : lockstep::checkpoint::list_tensors(source))
        if (tensor.path.starts_with("parameters/")) parameters.push_back({tensor.path, tensor.shape});
    const lockstep::checkpoint_tests::Tensors tensors(parameters, 1e-6F);
    const std::string folder = (place.path() / "converted").string();
    auto writer = lockstep::checkpoint_tests::solo_writer(folder);
    BOOST_TEST_REQUIRE(writer.write_now(lockstep::checkpoint::read_contents(source), tensors.entries));
    const std::string file = folder + "/step-00000012.h5";
    const Result resumed = run("train run.toml --set run.name=new --resume " + file, place.path());
    check_exit(resumed, 2);
    BOOST_TEST(contains(resumed.error, "has no optimizer state to resume with"), resumed);
    BOOST_TEST(contains(resumed.error, "--init-from " + file), resumed);
    check_exit(run(begin(file, "fine"), place.path(), 2), 0);
    BOOST_TEST(parameters_of(checkpoint_file(place.path(), 2, "fine")).size() == parameters.size());
}

BOOST_AUTO_TEST_CASE(a_model_that_is_not_finite_is_refused) {
    const Workplace place;
    check_exit(run("train run.toml --stop-at 1", place.path()), 4);
    write_fine_description(place.path());
    const std::string source = checkpoint_file(place.path(), 1).string();
    std::vector<lockstep::checkpoint_tests::Tensors::Named> parameters;
    for (const auto& tensor : lockstep::checkpoint::list_tensors(source))
        if (tensor.path.starts_with("parameters/")) parameters.push_back({tensor.path, tensor.shape});
    const lockstep::checkpoint_tests::Tensors tensors(parameters, std::numeric_limits<float>::quiet_NaN());
    auto writer = lockstep::checkpoint_tests::solo_writer((place.path() / "odd").string());
    BOOST_TEST_REQUIRE(writer.write_now(lockstep::checkpoint::read_contents(source), tensors.entries));
    for (const char* command : {"convert odd new", "eval --data text --checkpoint odd",
                                "train fine.toml --set run.name=new --init-from odd"}) {
        const Result result = run(command, place.path(), 2);
        check_exit(result, 3);
        BOOST_TEST(count_of(result.error, "holds values that are not finite") == 1u, result);
        BOOST_TEST(!fs::exists(place.path() / "new"));
    }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
    const Workplace place;
    check_exit(run("train run.toml", place.path()), 0);
    write_fine_description(place.path());
    const Result other = run(begin("runs/small", "other", "--set model.width=32"), place.path(), 2);
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "is another model: model.width is 32, was 64"), other);
    BOOST_TEST(count_of(other.error, "error: ") == 1u, other);
    BOOST_TEST(!fs::exists(run_folder(place.path(), "other")));
    BOOST_TEST(!fs::exists(place.path() / "checkpoints" / "other"));
    // Not that 2 does not divide 3, which nobody wrote.
    const Result heads = run(begin("runs/small", "other", "--set model.heads=3"), place.path());
    check_exit(heads, 2);
    BOOST_TEST(contains(heads.error, "is another model: model.heads is 3, was "), heads);
    const Result misspelt = run("train fine.toml --set init.form=runs/small", place.path());
    check_exit(misspelt, 2);
    BOOST_TEST(contains(misspelt.error, "did you mean init.from?"), misspelt);
    const Result missing = run(begin("nowhere.h5", "missing"), place.path());
    check_exit(missing, 2);
    BOOST_TEST(contains(missing.error, "nowhere.h5"), missing);
    BOOST_TEST(!fs::exists(run_folder(place.path(), "missing")));
    const Result none = run(begin("text", "none"), place.path());
    check_exit(none, 2);
    BOOST_TEST(contains(none.error, "text has no checkpoints"), none);
    // inspect and plan know the model too.
    const Result shown =
        run("inspect fine.toml --set run.name=x --set init.from=runs/small --print model.width", place.path());
    BOOST_TEST(shown.out == "64\n", shown);
}

BOOST_AUTO_TEST_SUITE_END()
