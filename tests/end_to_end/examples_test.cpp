// The run descriptions of jobs/examples that say they run unchanged, on a small model: the data that they name must be
// readable, and their keys must fit together.
#define BOOST_TEST_MODULE examples
#include <set>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

void train_small(const std::string& name, int ranks) {
    const Workplace place;
    const fs::path& folder = place.path();
    const std::set<std::string> written = {"build", "checkpoints", "runs"};
    for (const fs::directory_entry& part : fs::directory_iterator(source_path(""))) {
        const std::string word = part.path().filename();
        if (part.is_directory() && word[0] != '.' && !written.contains(word))
            fs::create_directory_symlink(part.path(), folder / word);
    }
    const Result result = run("train " + source_path("jobs/examples/" + name + ".toml") +
                                  " --stop-at 1 --set run.self_test=false --set model.width=32 --set model.layers=4"
                                  " --set model.heads=2 --set model.mlp_width=64 --set batch.global=8"
                                  " --set batch.micro=1 --set batch.length=32",
                              folder, ranks);
    check_exit(result, 4);
    BOOST_TEST(fs::exists(folder / "checkpoints" / name / "step-00000001.h5"), result);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(examples)

BOOST_AUTO_TEST_CASE(gpt2_124m) {
    train_small("gpt2-124m", 2);
}

BOOST_AUTO_TEST_CASE(ttt_linear_125m) {
    train_small("ttt-linear-125m", 2);
}

BOOST_AUTO_TEST_CASE(gpt2_774m_grid) {
    train_small("gpt2-774m-grid", 8);
}

BOOST_AUTO_TEST_SUITE_END()
