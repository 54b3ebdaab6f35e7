// What one does with a trained model: evaluate it, generate from it, look into it, see where its time went.
#define BOOST_TEST_MODULE models
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;
namespace data = boost::unit_test::data;

namespace {

Json json_of(const Result& result) {
    check_exit(result, 0);
    const Json json = Json::parse(result.out, nullptr, false);
    BOOST_TEST_REQUIRE(!json.is_discarded(), result);
    return json;
}

// Some of `lockstep generate`'s options before those of the case.
std::string generate(const fs::path& folder, const fs::path& checkpoint, const std::string& options) {
    const Result result =
        run("generate --checkpoint " + checkpoint.string() + " --prompt 'the small ' " + options, folder);
    check_exit(result, 0);
    BOOST_TEST(result.error == "");
    BOOST_TEST(!result.out.empty());
    return result.out.substr(0, result.out.size() - 1);  // without the line's end
}

constexpr const char* hybrid = "'[\"ttt-linear\", \"attention\"]'";

// Courses of the whole program on more ranks stay with that of one.
constexpr double rank_tolerance = 2e-6;

}  // namespace

BOOST_AUTO_TEST_SUITE(rank_invariance)

BOOST_DATA_TEST_CASE(the_same_losses_on_any_number_of_ranks,
                     data::make({"attention", "ttt-linear", "ttt-mlp", "gated-deltanet", hybrid}), mixer) {
    const Workplace place;
    const std::string train =
        "train run.toml --set batch.micro=0 --set schedule.steps=20 --set schedule.peak_lr=1e-3 "
        "--set validation.every=10 --set model.mixer=" +
        std::string(mixer);
    std::map<int, double> losses, validation_losses;
    for (const int ranks : {1, 2, 3, 4}) {
        const std::string name = "ranks-" + std::to_string(ranks);
        check_exit(run(train + " --set run.name=" + name, place.path(), ranks), 0);
        const auto these = numbers_of(place.path(), "loss", name);
        const auto these_validated = numbers_of(place.path(), "validation_loss", name);
        BOOST_TEST_REQUIRE(these.size() == 20u);
        BOOST_TEST_REQUIRE(these_validated.size() == 2u);
        if (ranks == 1) {
            losses = these;
            validation_losses = these_validated;
            BOOST_TEST(losses.at(20) < losses.at(1) - 0.1);  // it learns
            continue;
        }
        const double worst = largest_difference(losses, these);
        BOOST_TEST_MESSAGE(mixer << " on " << ranks << " ranks: losses differ by up to " << worst);
        BOOST_TEST(worst < rank_tolerance);
        BOOST_TEST(largest_difference(validation_losses, these_validated) < rank_tolerance);
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(eval)

BOOST_AUTO_TEST_CASE(the_z_loss_is_minimized_and_not_logged) {
    const Workplace place;
    const std::string train = "train run.toml --set schedule.steps=4 --set schedule.warmup=1 --set optimizer.z_loss=";
    check_exit(run(train + "0 --set run.name=without", place.path()), 0);
    check_exit(run(train + "0.1 --set run.name=with", place.path()), 0);
    const auto without = numbers_of(place.path(), "loss", "without"), with = numbers_of(place.path(), "loss", "with");
    BOOST_TEST(with.at(1) == without.at(1));
    BOOST_TEST(with.at(4) != without.at(4));
    const auto norms = numbers_of(place.path(), "gradient_norm", "with"),
               norms_without = numbers_of(place.path(), "gradient_norm", "without");
    BOOST_TEST(norms.at(1) > 1.01 * norms_without.at(1));
    check_exit(run(train + "-1", place.path()), 2);
}

BOOST_DATA_TEST_CASE(eval_gives_the_runs_last_validation_loss,
                     data::make({"attention", "ttt-linear", "ttt-mlp", "gated-deltanet", hybrid}), mixer) {
    const Workplace place;
    write_file(place.path() / "held-out.txt", make_text(3000, 99));
    check_exit(
        run("train run.toml --set data.validation=held-out.txt --set validation.batches=0 --set schedule.steps=6 --set model.mixer=" +
                std::string(mixer),
            place.path()),
        0);
    const double expected = numbers_of(place.path(), "validation_loss").at(6);
    const std::string command =
        "eval --data held-out.txt --format json --checkpoint " + checkpoint_file(place.path(), 6).string();
    for (const auto& [arguments, ranks] :
         std::vector<std::pair<std::string, int>>{{command, 0}, {command, 2}, {command + " --micro 5", 0}}) {
        const Json json = json_of(run(arguments, place.path(), ranks));
        BOOST_TEST(std::abs(json["validation_loss"].get<double>() - expected) < 1e-6 * expected);
        BOOST_TEST(std::abs(json["perplexity"].get<double>() - std::exp(expected)) < 1e-5 * std::exp(expected));
        BOOST_TEST(json["step"] == 6);
        BOOST_TEST(json["tokens"] == 2999 / 32 * 32);
        // Of bytes each is a token.
        const double bits = expected / std::log(2.0);
        BOOST_TEST(std::abs(json["bits_per_byte"].get<double>() - bits) < 1e-4 * bits);
        BOOST_TEST(std::abs(numbers_of(place.path(), "validation_bits_per_byte").at(6) - bits) < 1e-9 * bits);
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(generation)

BOOST_DATA_TEST_CASE(text_is_a_function_of_checkpoint_prompt_and_seed,
                     data::make({"attention", "ttt-linear", "ttt-mlp", "gated-deltanet", hybrid}), mixer) {
    const Workplace place;
    check_exit(
        run("train run.toml --set model.context=64 --set batch.length=32 --set model.mixer=" + std::string(mixer),
            place.path()),
        0);
    // Only the checkpoint is needed.
    const fs::path checkpoint = place.path() / "alone" / "model.h5";
    fs::create_directory(checkpoint.parent_path());
    fs::rename(checkpoint_file(place.path(), 12), checkpoint);
    fs::remove_all(place.path() / "text");
    const auto text = [&](const std::string& options) {
        return generate(checkpoint.parent_path(), checkpoint, options);
    };
    const std::string ten = text("--tokens 10 --seed 3 --top-k 20");
    BOOST_TEST(ten.rfind("the small ", 0) == 0u);
    BOOST_TEST(text("--tokens 10 --seed 3 --top-k 20") == ten);
    BOOST_TEST(ten.rfind(text("--tokens 5 --seed 3 --top-k 20"), 0) == 0u);
    BOOST_TEST(text("--tokens 40 --seed 4") != text("--tokens 40 --seed 3"));
    const std::string likeliest = text("--tokens 20 --temperature 0");
    BOOST_TEST(text("--tokens 20 --temperature 0 --seed 9") == likeliest);
    BOOST_TEST(text("--tokens 20 --top-k 1 --seed 9") == likeliest);
    BOOST_TEST(likeliest.size() == std::string("the small ").size() + 20);
    BOOST_TEST(text("--tokens 0") == "the small ");
}

BOOST_AUTO_TEST_CASE(a_text_ends_with_the_models_positions) {
    const Workplace place;
    check_exit(run("train run.toml --set model.mixer=attention", place.path()), 0);
    const std::string command = "generate --checkpoint runs/small --prompt the --temperature 0";
    const Result all = run(command, place.path());
    check_exit(all, 0);
    BOOST_TEST(all.out == run(command + " --tokens 29", place.path()).out);  // a context of 32
    const Result more = run(command + " --tokens 30", place.path());
    check_exit(more, 2);
    BOOST_TEST(contains(more.error, "--tokens may be at most 29"), more);
}

BOOST_AUTO_TEST_CASE(a_runs_folder_stands_for_its_newest_checkpoint) {
    const Workplace place;
    check_exit(run("train run.toml --set model.context=64 --set batch.length=32", place.path()), 0);
    const std::string rest = " --prompt the --tokens 5 --seed 1";
    const Result of_file =
        run("generate --checkpoint " + checkpoint_file(place.path(), 12).string() + rest, place.path());
    check_exit(of_file, 0);
    for (const char* folder : {"runs/small", "checkpoints/small"}) {
        const Result of_folder = run("generate --checkpoint " + std::string(folder) + rest, place.path());
        check_exit(of_folder, 0);
        BOOST_TEST(of_folder.out == of_file.out);
        BOOST_TEST(contains(of_folder.error, "step-00000012.h5"), of_folder);
    }
    check_exit(run("eval --data text --checkpoint runs/small", place.path(), 2), 0);
    // From elsewhere too: its relative checkpoint.folder lies where the run was launched.
    const fs::path elsewhere = place.path() / "elsewhere";
    fs::create_directory(elsewhere);
    for (const std::string& name : {run_folder(place.path()).string(), std::string("../runs/small/")}) {
        const Result of_folder = run("generate --checkpoint " + name + rest, elsewhere);
        check_exit(of_folder, 0);
        BOOST_TEST(of_folder.out == of_file.out);
        BOOST_TEST(contains(of_folder.error, " ../checkpoints/small/step-00000012.h5"), of_folder);
    }
    // Ranks that see other data under the same path.
    for (const char* rank : {"0", "1"}) {
        const fs::path own = place.path() / ("rank-" + std::string(rank));
        fs::create_directory(own);
        write_file(own / "data.txt", make_text(3000, rank[0] == '0' ? 1 : 2));
    }
    const Result differing = Process(mpi_launcher() + " -np 2 sh -c 'cd rank-" + rank_in_shell + " && exec " +
                                         lockstep_program + " eval --data data.txt --checkpoint ../runs/small'",
                                     place.path())
                                 .wait();
    check_exit(differing, 2);
    BOOST_TEST(contains(differing.error, "ranks see different data under the same paths (--data)"), differing);
    const Result none = run("generate --checkpoint text" + rest, place.path());
    check_exit(none, 2);
    BOOST_TEST(contains(none.error, "text has no checkpoints"), none);
}

BOOST_AUTO_TEST_CASE(a_trained_tokenizer_travels_with_the_checkpoint) {
    const Workplace place;
    const fs::path& folder = place.path();
    if (contains(run("--version", folder).out, "sentencepiece: no")) {
        BOOST_TEST_MESSAGE("skipped: built without sentencepiece");
        return;
    }
    const Json packed = json_of(run("pack --out tokens.h5 --train-tokenizer 300 --format json text", folder));
    BOOST_TEST(packed["vocabulary"] == 300);
    BOOST_TEST(packed["tokens"].get<int>() < packed["bytes"].get<int>());
    BOOST_TEST(packed["conditional_entropy"].get<double>() < packed["byte_entropy"].get<double>());
    check_exit(run("train run.toml --set data.train=tokens.h5 --set model.vocabulary=300", folder, 2), 0);
    check_exit(run("verify tokens.h5", folder), 0);
    fs::remove_all(folder / "text");
    fs::remove(folder / "tokens.h5");
    const fs::path checkpoint = checkpoint_file(folder, 12);
    const std::string text = generate(folder, checkpoint, "--tokens 12 --seed 2");
    BOOST_TEST(contains(text, "the small"));
    BOOST_TEST(text.size() > std::string("the small ").size());
    BOOST_TEST(generate(folder, checkpoint, "--tokens 12 --seed 2") == text);
    // Plain text is read with the checkpoint's tokenizer.
    write_file(folder / "held-out.txt", make_text(3000, 99));
    const Json evaluated =
        json_of(run("eval --data held-out.txt --format json --checkpoint " + checkpoint.string(), folder));
    BOOST_TEST(evaluated["tokens"].get<int>() < 3000);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(presets)

BOOST_AUTO_TEST_CASE(presets_have_exactly_these_parameters) {
    const fs::path folder = fs::temp_directory_path();
    const std::vector<std::pair<std::string, std::int64_t>> presets = {
        {"gpt2-124m", 124439808},
        {"ttt-linear-125m --set model.vocabulary=50257", 124298064},
        {"ttt-mlp-125m --set model.vocabulary=32000", 114442320},
        {"llama-3.1-8b", 8030261248},
        {"llama-3.2-1b", 1235814400},
        {"qwen2.5-7b", 7615616512},
        {"qwen3-0.6b", 596049920}};
    for (const auto& [preset, parameters] : presets) {
        const Json json = json_of(run("inspect --format json --preset " + preset, folder));
        BOOST_TEST(json["parameters"] == parameters, preset << ": " << json["parameters"]);
        std::int64_t sum = 0;
        for (const Json& tensor : json["tensors"]) sum += tensor["parameters"].get<std::int64_t>();
        BOOST_TEST(sum == parameters);
    }
    for (const char* format : {"text", "markdown", "csv"}) {
        const Result result = run(std::string("inspect --preset gpt2-124m --format ") + format, folder);
        check_exit(result, 0);
        BOOST_TEST(contains(result.out, "embedding"));
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(inspect)

BOOST_AUTO_TEST_CASE(a_run_its_files_and_its_summary) {
    const Workplace place;
    const fs::path& folder = place.path();
    check_exit(run("pack --out tokens.h5 text", folder), 0);
    const std::string train = "train run.toml --set data.train=tokens.h5 --set validation.every=4";
    check_exit(run(train + " --stop-at 5", folder, 2), 4);
    check_exit(run(train + " --resume auto", folder, 2), 0);

    const fs::path checkpoint = checkpoint_file(folder, 12);
    const Json model = json_of(run("inspect --format json " + checkpoint.string(), folder));
    std::int64_t parameters = 0;
    std::size_t tensors = 0;
    for (const auto& [path, values] : tensors_of(checkpoint)) {
        if (path.rfind("parameters/", 0) != 0) continue;
        parameters += static_cast<std::int64_t>(values.size());
        ++tensors;
    }
    BOOST_TEST(model["parameters"] == parameters);
    BOOST_TEST(model["format"] == "lockstep-checkpoint");
    // In short what it holds, with --details every dataset.
    const Result in_short = run("inspect " + checkpoint.string(), folder);
    check_exit(in_short, 0);
    BOOST_TEST(contains(in_short.out, "optimizer/first_moment"), in_short);
    BOOST_TEST(!contains(in_short.out, "embedding"), in_short);
    BOOST_TEST(!contains(in_short.out, "[schedule]"), in_short);
    BOOST_TEST(count_of(in_short.out, "\n") < 40u, in_short);
    const Result in_full = run("inspect --details " + checkpoint.string(), folder);
    check_exit(in_full, 0);
    for (const char* part : {"parameters/embedding/weight", "checksums/parameters/embedding/weight", "[schedule]"})
        BOOST_TEST(contains(in_full.out, part), in_full);
    BOOST_TEST(json_of(run("inspect --format json tokens.h5", folder))["format"] == "lockstep-tokens");

    // The run: what it will be, as a description that says the same again, and how it went.
    const Result resolved = run("inspect run.toml --set data.train=tokens.h5", folder);
    check_exit(resolved, 0);
    BOOST_TEST(contains(resolved.out, "\n# run folder: runs/small\n# checkpoints: checkpoints/small\n"), resolved);
    std::ofstream(folder / "resolved.toml") << resolved.out;
    BOOST_TEST(run("inspect resolved.toml", folder).out == resolved.out);
    const Json described = json_of(run("inspect run.toml --format json", folder));
    BOOST_TEST(described["parameters"] == parameters);
    BOOST_TEST(described["tensors"].size() == tensors);
    const Json on_cpu = described["memory_bytes"]["cpu"];  // tensors begin aligned
    BOOST_TEST(on_cpu["parameters"] >= 4 * parameters);
    BOOST_TEST(on_cpu["parameters"] < 4.1 * static_cast<double>(parameters));
    BOOST_TEST(contains(resolved.out, "\n# memory of the fullest rank, cpu, one replica: blocks 0 to "), resolved);
    const Json leaner = json_of(run("inspect run.toml --set parallel.recompute=full --format json", folder));
    BOOST_TEST(leaner["memory_bytes"]["cpu"]["activations"] < described["memory_bytes"]["cpu"]["activations"]);
    const Result impossible = run("inspect run.toml --set parallel.tensor=3", folder);
    BOOST_TEST(contains(impossible.out, "not planned, since parallel.tensor = 3 does not divide"), impossible);
    const Json wide =
        json_of(run("inspect run.toml --set model.mixer=attention --set model.heads=1 --set model.width=512 "
                    "--set model.head_width=512 --format json",
                    folder));
    BOOST_TEST(wide["memory_bytes"]["cpu"].contains("together"));
    BOOST_TEST(contains(wide["memory_bytes"]["cuda"]["problem"].get<std::string>(), "head"));
    const Result listed = run("inspect run.toml --details --set 'model.frozen=[\"embedding/*\"]'", folder);
    check_exit(listed, 0);
    for (const Json& tensor : described["tensors"])
        BOOST_TEST(contains(listed.out, "# " + tensor["name"].get<std::string>() + " "), listed);
    std::ofstream(folder / "listed.toml") << listed.out;
    check_exit(run("inspect listed.toml", folder), 0);  // still a run description
    BOOST_TEST(run("inspect run.toml --set run.seed=7 --print run.name --print run.seed --print model.preset "
                   "--print precision.compute",
                   folder)
                   .out == "small\n7\n\nfp32\n");
    BOOST_TEST(run("inspect run.toml --print model.preset", folder).out.empty());
    BOOST_TEST(run("inspect runs/small --print state --print step", folder).out == "finished\n12\n");

    // The trace of the second launch counts on from the first's.
    std::vector<std::string> traces;
    for (const auto& name : names_in(run_folder(folder)))
        if (name.rfind("trace-", 0) == 0) traces.push_back((run_folder(folder) / name).string());
    BOOST_TEST_REQUIRE(traces.size() == 2u);
    for (const auto& trace : traces) {
        BOOST_TEST(json_of(run("inspect --format json " + trace, folder))["format"] == "lockstep-trace");
        check_exit(run("verify " + trace, folder), 0);
    }
    const Json summary = json_of(Process(analyze_program + " summary runs/small --format json", folder).wait());
    BOOST_TEST(summary["ranks"].size() == 2u);
    // A run's folder stands for its traces and its checkpoints.
    const Result verified = run("verify runs/small", folder);
    check_exit(verified, 0);
    BOOST_TEST(count_of(verified.out, ": intact: a trace of ") == 2u, verified);
    BOOST_TEST(count_of(verified.out, ": intact: a checkpoint of ") == checkpoints_in(folder).size(), verified);
    BOOST_TEST(run("verify checkpoints/small", folder).out.find("checkpoints/small/step-00000012.h5: intact") !=
               std::string::npos);
    const Result no_files = run("verify text", folder);
    check_exit(no_files, 2);
    BOOST_TEST(no_files.out.starts_with("error: text has no Lockstep files"), no_files);
    BOOST_TEST(run("verify nowhere.h5", folder).out.starts_with("error: nowhere.h5 does not exist"));
    BOOST_TEST(summary["totals"]["steps"] == 12);
    BOOST_TEST(summary["totals"]["last_step"] == 12);
    BOOST_TEST(summary["totals"]["skipped_steps"] == 0);
    BOOST_TEST(summary["status"]["state"] == "finished");
    const Json& phases = summary["average"]["phases"];
    for (const char* name : {"data_loading", "data_movement", "forward", "loss", "backward", "communication",
                             "optimizer", "validation", "checkpoint"}) {
        BOOST_TEST_REQUIRE(phases.contains(name), name << " is missing");
        BOOST_TEST(phases[name]["calls"].get<double>() > 0, name << " was never called");
    }
    BOOST_TEST(phases["forward"]["calls"] == 12 * 3);  // six sequences a rank, two at a time
    // Committing one later is no further call.
    BOOST_TEST(
        phases["checkpoint"]["calls"].get<double>() ==
        static_cast<double>(count_of(read_file(run_folder(folder) / "log.txt"), " checkpoint checkpoints/small/")));
    const auto losses = numbers_of(folder, "loss");
    for (const Json& rank : summary["ranks"])
        BOOST_TEST(std::abs(rank["loss"]["last"].get<double>() - losses.at(12)) < 1);
    double mean = 0;  // of the ranks' losses: the run's
    for (const Json& rank : summary["ranks"]) mean += rank["loss"]["last"].get<double>() / 2;
    BOOST_TEST(std::abs(mean - losses.at(12)) < 1e-9 * losses.at(12));
    for (const char* format : {"text", "markdown", "csv"})
        check_exit(Process(analyze_program + " summary runs/small --format " + format, folder).wait(), 0);
    check_exit(Process(analyze_program + " summary runs/nowhere", folder).wait(), 2);
}

BOOST_AUTO_TEST_CASE(every_command_helps) {
    const fs::path folder = fs::temp_directory_path();
    for (const char* command : {"", "train", "eval", "generate", "pack", "inspect", "verify"}) {
        const Result result = run(std::string(command) + " --help", folder);
        check_exit(result, 0);
        BOOST_TEST(contains(result.out, "--help"));
    }
    for (const char* words : {"--version", "-V"}) {
        const Result version = run(words, folder);
        check_exit(version, 0);
        BOOST_TEST(contains(version.out, "commit"));
    }
    BOOST_TEST(run("help", folder).out == run("--help", folder).out);
    BOOST_TEST(run("help train", folder).out == run("train --help", folder).out);
    BOOST_TEST(contains(run("help train", folder).out, "--resume"));
    BOOST_TEST(contains(Process(analyze_program + " help scaling", folder).wait().out, "speedup"));
}

BOOST_AUTO_TEST_CASE(completion_and_man_pages_have_every_option) {
    const Workplace place;
    const fs::path& folder = place.path();
    for (const std::string& program : {lockstep_program, analyze_program}) {
        const std::string name = fs::path(program).filename().string();
        const auto print = [&](const std::string& what) {
            const Result result = Process(program + " help " + what, folder).wait();
            check_exit(result, 0);
            return result.out;
        };
        const std::string bash = print("--completion bash"), zsh = print("--completion zsh"),
                          fish = print("--completion fish"), page = print("--man");
        const std::string command = name == "lockstep" ? "train" : "scaling";
        const std::string help = Process(program + " " + command + " --help", folder).wait().out;
        int options = 0;
        for (std::size_t at = help.find("  --"); at != std::string::npos; at = help.find("  --", at + 1)) {
            const std::string option = help.substr(at + 4, help.find_first_of(" ,\n", at + 4) - at - 4);
            ++options;
            BOOST_TEST(contains(bash, "--" + option), option);
            BOOST_TEST(contains(zsh, "--" + option + "["), option);
            BOOST_TEST(contains(fish, "-l " + option + " "), option);
            std::string troff;
            for (const char letter : "--" + option) troff += letter == '-' ? "\\-" : std::string(1, letter);
            BOOST_TEST(contains(page, troff), option);
        }
        BOOST_TEST(options > 3, help);
        write_file(folder / "completion", bash);
        const std::string function = name == "lockstep" ? "_lockstep" : "_lockstep_analyze";
        const std::string words = " COMP_WORDS=(" + name + " " + command.substr(0, 3) + "); COMP_CWORD=1; " + function +
                                  "; echo \"${COMPREPLY[@]}\"";
        const Result completed = Process("bash -c '. ./completion;" + words + "'", folder).wait();
        check_exit(completed, 0);
        BOOST_TEST(completed.out == command + "\n", completed);
    }
    check_exit(run("help --completion csh", folder), 2);
}

BOOST_AUTO_TEST_CASE(slips_of_the_pen_are_answered) {
    const fs::path folder = fs::temp_directory_path();
    const auto answer = [&](const std::string& program, const std::string& arguments) {
        const Result result = Process(program + " " + arguments, folder).wait();
        check_exit(result, 2);
        BOOST_TEST(result.out == "");
        return result.error;
    };
    const auto of_lockstep = [&](const std::string& arguments) { return answer(lockstep_program, arguments); };
    BOOST_TEST(contains(of_lockstep("trian run.toml"), "'trian' is not a command of lockstep (did you mean train?)"));
    BOOST_TEST(contains(of_lockstep("version"), "did you mean --version?"));
    BOOST_TEST(contains(of_lockstep("help trian"), "did you mean train?"));
    BOOST_TEST(
        contains(of_lockstep("train --resum auto"),
                 "--resum is not an option of lockstep train (did you mean --resume?); see lockstep train --help"));
    BOOST_TEST(contains(of_lockstep("frobnicate"), "'frobnicate' is not a command of lockstep; see lockstep --help"));
    BOOST_TEST(
        contains(of_lockstep("train --set run.name=a --set lr=3"), "unknown key lr (did you mean schedule.peak_lr?)"));
    BOOST_TEST(contains(answer(analyze_program, "summery x"),
                        "'summery' is not a command of lockstep-analyze (did you mean summary?)"));
    BOOST_TEST(contains(answer(analyze_program, "scaling --formt json x"), "did you mean --format?"));
    write_file(folder / "lockstep-notes.md", "# Notes\n");
    for (const char* command : {"inspect ", "verify "}) {
        const Result result = run(command + (folder / "lockstep-notes.md").string(), folder);
        check_exit(result, 2);
        BOOST_TEST(contains(result.out + result.error, "is not an HDF5 file, as lockstep's checkpoints"), result);
    }
}

BOOST_AUTO_TEST_SUITE_END()
