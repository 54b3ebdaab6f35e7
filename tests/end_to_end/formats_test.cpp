// Data of other programs: whatever holds the tokens, the run is the same. Mixtures: the same on any number of ranks.
#define BOOST_TEST_MODULE formats
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

constexpr double rank_tolerance = 2e-6;

std::string document(const fs::path& folder, int number) {
    return read_file(folder / "text" / (std::to_string(number) + ".txt"));
}

// The documents with one byte 0 between them, as uint16.
std::string tokens_of(const fs::path& folder, std::size_t from, std::size_t to) {
    std::string bytes, tokens;
    for (int i = 0; i < 3; ++i) bytes += (i > 0 ? std::string(1, '\0') : "") + document(folder, i);
    for (std::size_t i = from; i < std::min(to, bytes.size()); ++i) tokens += bytes[i] + std::string(1, '\0');
    return tokens;
}

std::string shard(const std::string& tokens) {
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = static_cast<std::int32_t>(tokens.size() / 2);
    return std::string(reinterpret_cast<const char*>(header.data()), 1024) + tokens;
}

const std::string short_run = "train run.toml --set schedule.steps=4 --set validation.every=2 --set run.name=";

}  // namespace

BOOST_AUTO_TEST_SUITE(formats)

BOOST_AUTO_TEST_CASE(the_same_tokens_give_the_same_losses) {
    const Workplace place;
    const fs::path& folder = place.path();
    check_exit(run("pack --out tokens.h5 text", folder), 0);
    const Result packed = run("pack --out corpus --to megatron --format json text", folder);
    check_exit(packed, 0);
    BOOST_TEST(Json::parse(packed.out)["documents"] == 3);
    BOOST_TEST(fs::exists(folder / "corpus.bin"));
    BOOST_TEST(fs::exists(folder / "corpus.idx"));
    write_file(folder / "raw.bin", tokens_of(folder, 0, 1 << 20));
    write_file(folder / "shards" / "part_1.bin", shard(tokens_of(folder, 0, 9000)));
    write_file(folder / "shards" / "part_2.bin", shard(tokens_of(folder, 9000, 1 << 20)));
    std::string lines;
    for (int i = 0; i < 3; ++i) lines += Json{{"id", i}, {"body", document(folder, i)}}.dump() + "\n\n";
    write_file(folder / "lines.jsonl", lines);
    check_exit(run("pack --out lines.h5 --jsonl-field body lines.jsonl", folder), 0);

    check_exit(run(short_run + "packed --set data.train=tokens.h5", folder), 0);
    const auto expected = numbers_of(folder, "loss", "packed"),
               validated = numbers_of(folder, "validation_loss", "packed");
    BOOST_TEST_REQUIRE(expected.size() == 4u);
    BOOST_TEST_REQUIRE(validated.size() == 2u);
    int number = 0;
    for (const std::string train : {"corpus", "corpus.idx", "raw.bin", "shards", "'shards/*.bin'", "lines.h5",
                                    "lines.jsonl --set data.jsonl_field=body"}) {
        const std::string name = "other-" + std::to_string(++number);
        check_exit(run(short_run + name + " --set data.train=" + train, folder), 0);
        BOOST_TEST((numbers_of(folder, "loss", name) == expected), train);
        BOOST_TEST((numbers_of(folder, "validation_loss", name) == validated), train);
    }
}

BOOST_AUTO_TEST_CASE(damaged_data_end_with_exit_code_3) {
    const Workplace place;
    const fs::path& folder = place.path();
    check_exit(run("pack --out corpus --to megatron text", folder), 0);
    const std::string tokens = read_file(folder / "corpus.bin");
    write_file(folder / "corpus.bin", tokens.substr(0, tokens.size() - 2));
    write_file(folder / "lines.jsonl", "{\"text\": \"good\"}\n{\"text\": \"cut\n");
    for (const auto& [command, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
             {short_run + "a --set data.train=corpus", {"corpus.idx", "corpus.bin", "truncated"}},
             {short_run + "b --set data.train=lines.jsonl", {"lines.jsonl:2:", "not valid JSON"}},
             {"pack --out lines.h5 lines.jsonl", {"lines.jsonl:2:", "not valid JSON"}}}) {
        const Result result = run(command, folder);
        check_exit(result, 3);
        for (const std::string& word : words) BOOST_TEST(contains(result.error, word), result);
    }
    BOOST_TEST(!fs::exists(folder / "lines.h5"));
    const Result csv = run("pack --out x --to csv text", folder);
    check_exit(csv, 2);
    BOOST_TEST(contains(csv.error, "--to"), csv);
    BOOST_TEST(contains(csv.error, "\"lockstep\", \"megatron\""), csv);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(mixtures)

BOOST_AUTO_TEST_CASE(the_same_on_any_number_of_ranks_and_after_a_stop) {
    const Workplace place;
    const fs::path& folder = place.path();
    check_exit(run("pack --out small.h5 text/0.txt", folder), 0);
    const std::string mixture =
        "--set 'data.train=[{path=\"small.h5\",weight=2},{path=[\"text/1.txt\",\"text/2.txt\"],weight=1}]' ";
    const std::string train =
        "train run.toml --set validation.every=6 --set batch.micro=0 --set schedule.steps=36 "
        "--set checkpoint.every=0 --set batch.ramp={start=6,increment=6,samples=60} " +
        mixture + "--set run.name=";
    std::map<int, double> losses, validated;
    for (const int ranks : {1, 2, 3}) {
        const std::string name = "ranks-" + std::to_string(ranks);
        const Result result = run(train + name, folder, ranks);
        check_exit(result, 0);
        const auto these = numbers_of(folder, "loss", name),
                   these_validated = numbers_of(folder, "validation_loss", name);
        BOOST_TEST_REQUIRE(these.size() == 36u);
        BOOST_TEST_REQUIRE(these_validated.size() == 6u);
        if (ranks == 1) {
            losses = these;
            validated = these_validated;
            BOOST_TEST(contains(result.error, "66.7 % of the samples from small.h5"), result);
            BOOST_TEST(contains(result.error, "33.3 % of the samples from text/1.txt and 1 more"), result);
            BOOST_TEST(contains(result.error, "small.h5: epoch 2 begins"), result);
            BOOST_TEST(!contains(result.error, "text/1.txt and 1 more: epoch 2 begins"), result);
            continue;
        }
        BOOST_TEST(largest_difference(losses, these) < rank_tolerance);
        BOOST_TEST(largest_difference(validated, these_validated) < rank_tolerance);
    }
    // Stopped on two ranks, continued on three, then on one.
    check_exit(run(train + "stopped --stop-at 7", folder, 2), 4);
    check_exit(run(train + "stopped --resume auto --stop-at 20", folder, 3), 4);
    const Result resumed = run(train + "stopped --resume auto", folder);
    check_exit(resumed, 0);
    BOOST_TEST(!contains(resumed.error, "the training data, data.documents, batch.length or run.seed differs"),
               resumed);
    BOOST_TEST(largest_difference(losses, numbers_of(folder, "loss", "stopped")) < rank_tolerance);
    BOOST_TEST(largest_difference(validated, numbers_of(folder, "validation_loss", "stopped")) < rank_tolerance);
    // The resolved description has the mixture, and reads back.
    const Result again = run("inspect runs/ranks-1/run.toml --print data.train", folder);
    check_exit(again, 0);
    BOOST_TEST(again.out ==
               "[{path = \"small.h5\", weight = 2.0}, {path = [\"text/1.txt\", \"text/2.txt\"], weight = 1.0}]\n");
}

BOOST_AUTO_TEST_CASE(other_weights_are_other_data) {
    const Workplace place;
    const std::string train = "train run.toml --set schedule.steps=6 --set run.name=a --set data.train=";
    const auto mixture = [](const char* weight) {
        return std::string("'[{path=\"text/0.txt\",weight=") + weight + "},{path=\"text/1.txt\",weight=1}]'";
    };
    const std::string warning = "the training data, data.documents, batch.length or run.seed differs";
    check_exit(run(train + mixture("3") + " --stop-at 2", place.path()), 4);
    const Result same = run(train + mixture("3.0") + " --resume auto --stop-at 4", place.path());
    check_exit(same, 4);
    BOOST_TEST(!contains(same.error, warning), same);
    const Result other = run(train + mixture("4") + " --resume auto", place.path());
    check_exit(other, 0);
    BOOST_TEST(contains(other.error, warning), other);
    const Result mixed = run(train + "'[{path=\"text/0.txt\",weight=1},\"text/1.txt\"]'", place.path());
    check_exit(mixed, 2);
    BOOST_TEST(contains(mixed.error, "give every source a weight"), mixed);
}

BOOST_AUTO_TEST_SUITE_END()
