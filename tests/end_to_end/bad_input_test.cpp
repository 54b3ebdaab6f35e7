// Input that is wrong ends in one sentence, the right exit code and nothing damaged, on one rank and on three.
#define BOOST_TEST_MODULE bad_input
#include <sys/stat.h>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

// Everything below runs/ and checkpoints/ but the lock, which says who held it last, and the log.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
    std::map<std::string, std::string> contents;
    for (const char* part : {"runs", "checkpoints"}) {
        if (!fs::exists(folder / part)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(folder / part))
            if (entry.is_regular_file() && entry.path().filename() != "lock" && entry.path().filename() != ".lock" &&
                entry.path().filename() != "log.txt")
                contents[entry.path().string()] = read_file(entry.path());
    }
    return contents;
}

// The text after "error: " of the one line that says it, and a check that there is one such line.
std::string sentence_of(const Result& result) {
    const std::string mark = result.error.rfind("lockstep: ", 0) == 0 ? "lockstep: " : "error: ";
    BOOST_TEST_REQUIRE(count_of(result.error, mark) == 1u, result);
    const std::size_t at = result.error.find(mark) + mark.size(), end = result.error.find('\n', at);
    BOOST_TEST(end + 1 == result.error.size(), "the sentence is the last that is said: " << result);
    return result.error.substr(at, end - at);
}

struct Refusal {
    const fs::path& folder;
    // Alone and on three ranks: exit code, one sentence with these words, ended soon, nothing changed.
    void operator()(const std::string& arguments, int exit_code, const std::vector<std::string>& words) const {
        BOOST_TEST_CONTEXT("lockstep " << arguments) {
            const auto before = contents_of(folder);
            for (const int ranks : {0, 3}) {
                const Result result = run(arguments, folder, ranks);
                check_exit(result, exit_code);
                const std::string sentence = sentence_of(result);
                for (const auto& word : words)
                    BOOST_TEST(contains(sentence, word), "'" << word << "' is missing: " << sentence);
                BOOST_TEST(result.out == "");
                BOOST_TEST(result.seconds < 10);
            }
            BOOST_TEST((contents_of(folder) == before), "files of the run were changed");
        }
    }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(bad_description)

BOOST_AUTO_TEST_CASE(descriptions_that_are_wrong) {
    const Workplace place;
    const fs::path& folder = place.path();
    const Refusal refused{folder};
    std::string misspelt = read_file(folder / "run.toml");
    misspelt.replace(misspelt.find("[schedule]"), 10, "[shedule]");
    write_file(folder / "misspelt.toml", misspelt);
    write_file(folder / "broken.toml", "[run\nname = \"small\"\n");

    refused("train nowhere.toml", 2, {"nowhere.toml"});
    refused("train broken.toml", 2, {"broken.toml"});
    refused("train misspelt.toml", 2, {"shedule", "schedule"});
    refused("train run.toml --set model.widht=32", 2, {"model.widht", "model.width"});
    refused("train run.toml --set schedule.steps=many", 2, {"schedule.steps"});
    refused("train run.toml --set model.mixer=atention", 2, {"model.mixer", "attention"});
    refused("train run.toml --set batch.global=12 --set batch.micro=5", 2, {"batch.micro", "12"});
    refused("train run.toml --set parallel.tensor=2", 2, {"parallel.tensor"});
    refused("train run.toml --device cpu --set precision.compute=fp16", 2, {"precision.compute", "fp32 or bf16"});
    refused("train run.toml --device cuda", 2, {"cuda"});
    refused("train run.toml --sync never", 2, {"--sync = \"never\"", "async"});
    refused("train run.toml --device gpu", 2, {"--device = \"gpu\"", "did you mean \"cuda\"?"});
    refused("train", 2, {"train takes a run description"});
    BOOST_TEST(!fs::exists(folder / "runs"));
    BOOST_TEST(!fs::exists(folder / "checkpoints"));

    const Result uneven = run("train run.toml --set batch.global=14 --set batch.micro=1", folder, 3);
    check_exit(uneven, 2);
    BOOST_TEST(contains(sentence_of(uneven), "3 ranks"));
    const Result too_many = run("train run.toml --set batch.global=2 --set batch.micro=1", folder, 3);
    check_exit(too_many, 2);
    BOOST_TEST(contains(sentence_of(too_many), "3 ranks"));
    BOOST_TEST(!fs::exists(folder / "runs"));
}

BOOST_AUTO_TEST_CASE(command_lines_that_are_wrong) {
    const Workplace place;
    const Refusal refused{place.path()};
    refused("tarin run.toml", 2, {"tarin"});
    refused("train run.toml --resum auto", 2, {"--resum"});
    refused("", 2, {"subcommand"});
    refused("train run.toml --set batch.global", 2, {"batch.global"});
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(bad_data)

BOOST_AUTO_TEST_CASE(data_that_is_wrong) {
    const Workplace place;
    const fs::path& folder = place.path();
    const Refusal refused{folder};
    write_file(folder / "no-text" / "binary", std::string(100, '\0'));
    check_exit(run("pack --out tokens.h5 text", folder), 0);
    const std::string tokens = read_file(folder / "tokens.h5");
    write_file(folder / "short.h5", tokens.substr(0, tokens.size() - 1000));
    write_file(folder / "stub.h5", tokens.substr(0, 300));
    check_exit(run("pack --out pieces.h5 --train-tokenizer 300 text", folder), 0);

    refused("train run.toml --set data.train=nowhere", 2, {"nowhere"});
    refused("train run.toml --set data.train=no-text", 2, {"no-text"});
    refused("train run.toml --set data.validation=nowhere", 2, {"nowhere"});
    refused("train run.toml --set data.train=pieces.h5", 2, {"300", "256", "model.vocabulary"});
    refused("train run.toml --set data.train=short.h5", 3, {"short.h5", "truncated"});
    refused("train run.toml --set data.train=stub.h5", 3, {"stub.h5"});
    refused("train run.toml --set model.context=30000 --set batch.length=30000", 2, {"30,000"});
    refused("train run.toml --set run.folder=run.toml", 2, {"run.toml"});
    BOOST_TEST(!fs::exists(folder / "runs"));
    BOOST_TEST(!fs::exists(folder / "checkpoints"));

    const Result nothing = run("pack --out none.h5 no-text", folder);
    check_exit(nothing, 2);
    BOOST_TEST(contains(sentence_of(nothing), "no-text"));
    BOOST_TEST(!fs::exists(folder / "none.h5"));
}

BOOST_AUTO_TEST_CASE(folders_that_cannot_be_written) {
    if (::geteuid() == 0) {
        BOOST_TEST_MESSAGE("skipped: root may write everywhere");
        return;
    }
    const Workplace place;
    fs::create_directory(place.path() / "locked");
    fs::permissions(place.path() / "locked", fs::perms::owner_read | fs::perms::owner_exec);
    const Refusal refused{place.path()};
    refused("train run.toml --set run.folder=locked/runs", 2, {"locked/runs"});
    refused("train run.toml --set checkpoint.folder=locked/checkpoints", 2, {"locked/checkpoints"});
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(bad_checkpoint)

BOOST_AUTO_TEST_CASE(checkpoints_that_are_wrong) {
    const Workplace place;
    const fs::path& folder = place.path();
    check_exit(run("train run.toml --stop-at 6", folder), 4);
    const fs::path newest = checkpoint_file(folder, 6);
    write_file(folder / "short.h5", read_file(newest).substr(0, 200000));
    std::string flipped = read_file(newest);
    const auto at = lockstep::hdf5::File::open(newest.string()).info("parameters/embedding/weight").offset + 100;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    write_file(folder / "flipped.h5", flipped);
    check_exit(run("pack --out tokens.h5 text", folder), 0);

    const Refusal refused{folder};
    refused("train run.toml", 2, {"--resume auto", "run.name"});
    refused("train run.toml --resume nowhere.h5 --set run.name=other", 2, {"nowhere.h5: there is no such file"});
    fs::create_symlink("loop.h5", folder / "loop.h5");
    refused("train run.toml --resume loop.h5 --set run.name=other", 2, {"loop.h5: it cannot be read: Too many levels"});
    refused("train run.toml --resume atuo --set run.name=other", 2, {"(did you mean auto?)"});
    BOOST_TEST(!fs::exists(run_folder(folder, "other")));
    refused("train tokens.h5", 2, {"tokens.h5: an HDF5 file, where a TOML file is expected"});
    refused("train run.toml --resume tokens.h5", 2, {"tokens.h5"});
    refused("train run.toml --resume run.toml", 3, {"run.toml"});
    refused("train run.toml --resume short.h5", 3, {"short.h5"});
    refused("train run.toml --resume flipped.h5", 3, {"flipped.h5"});
    refused("train run.toml --resume auto --set model.width=32", 2, {"another model"});
    refused("train run.toml --resume auto --set model.mixer=ttt-mlp", 2, {"another model"});
    refused("train run.toml --resume auto --set model.heads=4", 2, {"another model", "model.heads is 4, was 2"});
    refused("train run.toml --resume auto --set model.layers=3", 2, {"another model"});
    refused("train run.toml --resume auto --set model.layers=1", 2, {"another model"});
    refused("eval --checkpoint flipped.h5 --data text", 3, {"flipped.h5"});
    refused("eval --checkpoint nowhere.h5 --data text", 2, {"nowhere.h5"});
    refused("eval --checkpoint " + newest.string() + " --data nowhere", 2, {"nowhere"});

    // These run alone.
    const auto alone = [&](const std::string& arguments, int exit_code, const std::string& word) {
        const Result result = run(arguments, folder);
        check_exit(result, exit_code);
        BOOST_TEST(contains(sentence_of(result), word), result);
    };
    alone("generate --checkpoint nowhere.h5 --prompt a", 2, "nowhere.h5");
    alone("generate --checkpoint flipped.h5 --prompt a", 3, "flipped.h5");
    alone("inspect nowhere.h5", 2, "nowhere.h5");
    alone("inspect flipped.h5 --print state", 2, "--print is for run descriptions");
    alone("inspect nowhere.toml", 2, "nowhere.toml");
    alone("inspect run.toml --print run.nam", 2, "did you mean run.name?");
    alone("inspect run.toml --set batch.micro=-1", 2, "batch.micro");
    alone("inspect text --print state", 2, "status.json");
    constexpr std::size_t levels = 300000;
    write_file(folder / "nested" / "status.json",
               "{\"state\": " + std::string(levels, '[') + std::string(levels, ']') + "}");
    alone("inspect nested", 3, "status.json is damaged");
    alone("inspect nested --print state", 3, "status.json is damaged");
    fs::create_directories(folder / "odd" / "status.json");
    alone("inspect odd", 3, "status.json is damaged");
    write_file(folder / "nameless" / "run.toml", "");
    write_file(folder / "nameless" / "status.json", "{}");
    const auto looked_at = [&](const std::string& path, int exit_code, const std::string& word) {
        const Result result = run("verify " + path, folder);
        check_exit(result, exit_code);
        BOOST_TEST(contains(result.out, word), result);
    };
    looked_at("nameless", 3, "it has no run.name");
    write_file(folder / "half" / "status.json", "{}");
    looked_at("half", 2, "run.toml is missing");
    fs::create_directory(folder / "links");
    fs::create_symlink("loop.h5", folder / "links" / "loop.h5");
    looked_at("links", 2, "loop.h5");
    alone("convert " + newest.string() + " out --base ''", 2, "--base: its value is empty");
    alone("train run.toml --init-from ''", 2, "--init-from: its value is empty");
    alone("train run.toml --init-from caf\xe9", 2, "is not UTF-8");
    alone("train run.toml --set 'run.folder=\"a\\u0000b\"'", 2, "U+0000");
    alone("generate --checkpoint " + newest.string() + " --prompt a --tokens 9223372036854775807", 2,
          "at most 1073741824");
    fs::rename(run_folder(folder) / "metrics.jsonl", folder / "metrics.jsonl");
    BOOST_TEST_REQUIRE(::mkfifo((run_folder(folder) / "metrics.jsonl").c_str(), 0600) == 0);
    alone("train run.toml --resume auto", 2, "metrics.jsonl is no regular file");
    fs::rename(folder / "metrics.jsonl", run_folder(folder) / "metrics.jsonl");
    alone("inspect " + run_folder(folder).string() + " --print sate", 2, "did you mean state?");
    alone("inspect run.toml --format csv", 2, "run.toml is printed as text or json");
    alone("inspect " + run_folder(folder).string() + " --format markdown", 2, "is printed as text or json");
    alone("inspect --preset gpt3", 2, "gpt3");
    for (const std::string name : {"short.h5", "flipped.h5"}) {
        const Result verified = run("verify " + name + " " + newest.string(), folder);
        check_exit(verified, 3);
        BOOST_TEST(count_of(verified.out, "\n") == 2u);  // one line a file
        BOOST_TEST(contains(verified.out, newest.string() + ": intact"));
    }
    check_exit(run("verify nowhere.h5", folder), 2);
    check_exit(run("train run.toml --resume auto", folder), 0);
}

BOOST_AUTO_TEST_SUITE_END()
