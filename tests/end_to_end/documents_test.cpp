// Documents that are kept apart: from wherever their ends are known, and in whatever order they are packed.
#define BOOST_TEST_MODULE documents
#include <algorithm>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

const std::string separate = " --set data.documents=separate --set data.validation=0.2";

std::string train(const std::string& name, const std::string& data, const std::string& more = "") {
    return "train run.toml --set schedule.steps=4 --set validation.every=2 --set run.name=" + name +
           " --set data.train=" + data + separate + more;
}

// Documents of a length that is a window's half with the byte that ends each.
std::vector<std::string> half_windows() {
    std::vector<std::string> documents;
    for (std::uint64_t number = 0; number < 41; ++number) {
        documents.push_back(make_text(15, number));
        std::replace(documents.back().begin(), documents.back().end(), '\n', ' ');
    }
    return documents;
}

double validation_loss(const fs::path& folder, const std::string& run_name, const std::string& data,
                       const std::string& more = "") {
    const Result result =
        run("eval --checkpoint checkpoints/" + run_name + " --format json --data " + data + more, folder);
    check_exit(result, 0);
    return Json::parse(result.out)["validation_loss"];
}

}  // namespace

BOOST_AUTO_TEST_SUITE(documents)

BOOST_AUTO_TEST_CASE(their_ends_are_known_from_every_source) {
    const Workplace place;
    const fs::path& folder = place.path();
    std::vector<std::string> documents;
    for (std::size_t number = 0; number < 200; ++number) documents.push_back(make_text(1 + number * 7 % 90, number));
    write_lines(folder / "lines.jsonl", documents);
    check_exit(run("pack --out tokens.h5 lines.jsonl", folder), 0);
    check_exit(run("pack --out corpus --to megatron lines.jsonl", folder), 0);
    for (const std::string mixer : {"ttt-linear", "attention"}) {
        const std::string of_mixer = " --set model.mixer=" + mixer;
        const Result first = run(train("lines-" + mixer, "lines.jsonl", of_mixer), folder);
        check_exit(first, 0);
        BOOST_TEST(first.error.find("200 documents, kept apart") != std::string::npos, first.error);
        const auto expected = numbers_of(folder, "loss", "lines-" + mixer);
        BOOST_TEST_REQUIRE(expected.size() == 4u);
        for (const std::string data : {"tokens.h5", "corpus"}) {
            const std::string name = data.substr(0, 6) + "-" + mixer;
            check_exit(run(train(name, data, of_mixer), folder), 0);
            BOOST_TEST((numbers_of(folder, "loss", name) == expected), name);
        }
        // The boundaries matter.
        check_exit(run(train("joined-" + mixer, "tokens.h5", of_mixer + " --set data.documents=joined"), folder), 0);
        BOOST_TEST((numbers_of(folder, "loss", "joined-" + mixer) != expected));
    }
}

BOOST_AUTO_TEST_CASE(they_may_be_packed_in_any_order) {
    const Workplace place;
    const fs::path& folder = place.path();
    std::vector<std::string> documents = half_windows();
    write_lines(folder / "first.jsonl", documents);
    std::reverse(documents.begin(), documents.end() - 1);  // the last one has no whole window
    write_lines(folder / "second.jsonl", documents);
    for (const std::string mixer : {"attention", "ttt-mlp", "gated-deltanet"}) {
        std::string more = " --set model.mixer=" + mixer + " --set model.layers=1";
        if (mixer == "attention") more += " --set model.position=learned";
        check_exit(run(train(mixer, "text", more), folder), 0);
        const double one = validation_loss(folder, mixer, "first.jsonl"),
                     other = validation_loss(folder, mixer, "second.jsonl");
        BOOST_TEST(std::abs(one - other) < 2e-6, mixer << ": " << one << " and " << other);
        const double joined = validation_loss(folder, mixer, "first.jsonl", " --documents joined");
        BOOST_TEST(std::abs(joined - one) > 1e-4, mixer);
    }
}

// Documents of half a window: no token of its last position, nor of the one in the middle, has a target.
BOOST_AUTO_TEST_CASE(losses_by_position_are_of_the_tokens_there) {
    const Workplace place;
    const fs::path& folder = place.path();
    write_lines(folder / "halves.jsonl", half_windows());
    check_exit(run(train("tl", "text"), folder), 0);
    const Result result =
        run("eval --checkpoint checkpoints/tl --format json --by-position --data halves.jsonl", folder);
    check_exit(result, 0);
    const Json all = Json::parse(result.out);
    double sum = 0, tokens = 0;
    for (const Json& range : all["positions"]) {
        const int first = range["first_position"], last = range["last_position"];
        // 20 windows, and in each two documents with 15 targets.
        const int targets = 20 * (last - first + 1 - (first <= 16 && last >= 16 ? 1 : 0) - (last == 32 ? 1 : 0));
        sum += range["validation_loss"].get<double>() * targets;
        tokens += targets;
    }
    BOOST_TEST(tokens == 600);
    BOOST_TEST(all["tokens"] == 600);
    BOOST_TEST(std::abs(sum / tokens - all["validation_loss"].get<double>()) < 1e-5);
}

BOOST_AUTO_TEST_CASE(files_without_their_ends_are_refused) {
    const Workplace place;
    const fs::path& folder = place.path();
    std::string tokens;
    for (int i = 0; i < 5000; ++i) tokens += std::string(1, static_cast<char>('a' + i % 7)) + std::string(1, '\0');
    write_file(folder / "raw.bin", tokens);
    const Result result = run(train("raw", "raw.bin"), folder, 2);
    check_exit(result, 2);
    for (const std::string word : {"raw.bin", "no document boundaries"})
        BOOST_TEST(result.error.find(word) != std::string::npos, result.error);
    const Result uneven = run(train("uneven", "text", " --set batch.length=24"), folder);
    check_exit(uneven, 2);
    for (const std::string word : {"batch.length = 24 is not a multiple of 16 tokens", "make it 16"})
        BOOST_TEST(uneven.error.find(word) != std::string::npos, uneven.error);
    const Result planned = run(
        "plan run.toml --hardware a100-80-4x100g --gpus 2 --set data.documents=separate --set batch.length=24", folder);
    check_exit(planned, 2);
    BOOST_TEST(planned.error.find("batch.length = 24") != std::string::npos, planned.error);
}

BOOST_AUTO_TEST_SUITE_END()
