// Files that lockstep 0.1.0 at commit 0e84e8491281 wrote, before optimizers and mixers had names in registries: run
// descriptions, checkpoints of step 2, a trace of 12 steps on two ranks. sentencepiece*.h5 are of commit d3b0ef1,
// before a tokenizer was several files.
#define BOOST_TEST_MODULE compatibility
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;
namespace data = boost::unit_test::data;

namespace {

struct Case {
    std::string name;
    std::vector<double> losses;  // of steps 3 to 5, as that program had them after its own resume
    double validation_loss;
};
std::ostream& operator<<(std::ostream& stream, const Case& one) {
    return stream << one.name;
}

const std::vector<Case> cases = {
    {"attention", {5.548533909022808, 5.532920308411121, 5.522049114108086}, 5.521424536521618},
    {"ttt", {5.513705715537071, 5.500940427184105, 5.493997320532799}, 5.492054732946249}};

// Processors differ in how they round.
constexpr double tolerance = 1e-6;

// A copy of the files, to be worked in.
struct Copies {
    Copies() { fs::copy(source_path("tests/compatibility"), place.path() / "old", fs::copy_options::recursive); }
    Workplace place;
    fs::path path = place.path() / "old";
};

}  // namespace

BOOST_AUTO_TEST_SUITE(compatibility)

BOOST_DATA_TEST_CASE(a_checkpoint_is_resumed_to_the_same_losses, data::make(cases), one) {
    for (const int ranks : {1, 2}) {
        const Copies copies;
        const std::string layout = ranks == 2 ? " --set parallel.zero=1" : "";
        check_exit(run("train " + one.name + ".toml --resume " + one.name + ".h5 --set validation.batches=0" + layout,
                       copies.path, ranks),
                   0);
        const auto losses = numbers_of(copies.path, "loss", one.name);
        BOOST_TEST_REQUIRE(losses.size() == one.losses.size());
        for (std::size_t i = 0; i < one.losses.size(); ++i)
            BOOST_TEST(std::abs(losses.at(static_cast<int>(i) + 3) - one.losses[i]) < tolerance * one.losses[i]);
        const auto validation = numbers_of(copies.path, "validation_loss", one.name);
        BOOST_TEST(std::abs(validation.at(5) - one.validation_loss) < tolerance * one.validation_loss);
    }
}

BOOST_DATA_TEST_CASE(a_checkpoint_is_inspected_and_verified, data::make(cases), one) {
    const Copies copies;
    const Result inspected = run("inspect --format json " + one.name + ".h5", copies.path);
    check_exit(inspected, 0);
    const Json json = Json::parse(inspected.out);
    BOOST_TEST(json["optimizer"] == "adamw");
    BOOST_TEST(json["optimizer_state"]["second_moment"] == json["parameters"]);
    check_exit(run("verify " + one.name + ".h5", copies.path), 0);
}

BOOST_AUTO_TEST_CASE(a_tokenizer_of_one_file_is_read) {
    const Copies copies;
    check_exit(run("verify sentencepiece.h5 sentencepiece-tokens.h5", copies.path), 0);
    if (contains(run("--version", copies.path).out, "sentencepiece: no")) return;
    const std::string rest = " --prompt 'the small' --tokens 6 --temperature 0";
    const Result generated = run("generate --checkpoint sentencepiece.h5" + rest, copies.path);
    check_exit(generated, 0);
    BOOST_TEST(generated.out == "the small//////\n", generated);
    for (const char* kept : {"sentencepiece.h5", "sentencepiece-tokens.h5"})
        check_exit(run(std::string("pack --out new.h5 text --tokenizer ") + kept, copies.path), 0);
    check_exit(run("eval --checkpoint sentencepiece.h5 --data new.h5", copies.path), 0);
}

BOOST_AUTO_TEST_CASE(a_trace_is_inspected_and_summarised) {
    const Copies copies;
    const Result inspected = run("inspect traced/trace-001.h5", copies.path);
    check_exit(inspected, 0);
    BOOST_TEST(contains(inspected.out, "lockstep-trace"), inspected);
    const Result summary = Process(analyze_program + " summary traced --format json", copies.path).wait();
    check_exit(summary, 0);
    BOOST_TEST(contains(summary.out, "0e84e8491281"), summary);
    const Json json = Json::parse(summary.out);
    BOOST_TEST(json["totals"]["steps"] == 12);
    BOOST_TEST(json["totals"]["validation"].is_null());  // that program did not trace its losses
    const Result events = Process(analyze_program + " export traced --to chrome", copies.path).wait();
    check_exit(events, 0);
    BOOST_TEST(contains(events.out, "\"ph\":\"X\""));
    BOOST_TEST(!contains(events.out, ",\"bytes\":"));  // nor the bytes of its events
}

BOOST_AUTO_TEST_SUITE_END()
