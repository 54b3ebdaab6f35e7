// Adapters beside a model that stays as it is: on any layout, resumed, evaluated, merged into its weights.
#define BOOST_TEST_MODULE adapters
#include "end_to_end/grid_training.hpp"

using namespace lockstep::tests;

namespace {

const std::string beside =
    " --init-from checkpoints/base/step-00000010.h5 --set model.adapters.rank=4 "
    "--set model.adapters.alpha=8.0 --set schedule.peak_lr=1e-2 ";

// One rank, in fp32; its mixers are TTT-Linear and attention.
std::string train_base(const Workplace& place) {
    GridCase one = layout(1, 1, 1);
    one.mixer = "hybrid";
    check_exit(train(place.path(), "base", one), 0);
    return checkpoint_file(place.path(), 10, "base").string();
}

GridCase hybrid(GridCase grid) {
    grid.mixer = "hybrid";
    return grid;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapters)

BOOST_AUTO_TEST_CASE(adapters_alone_are_trained_on_any_layout) {
    const Workplace place;
    const auto base = tensors_of(train_base(place));
    const Result one = train(place.path(), "one", hybrid(layout(1, 1, 1)), beside);
    check_exit(one, 0);
    BOOST_TEST(contains(one.error, ", with new adapters"), one);
    std::size_t trained = 0, frozen = 0;
    const auto after = tensors_of(checkpoint_file(place.path(), 10, "one"));
    for (const auto& [path, values] : after) {
        if (!path.starts_with("parameters/")) {
            BOOST_TEST(path.find("/lora_") != std::string::npos, path << " has moments");
            continue;
        }
        const bool adapter = path.find("/lora_") != std::string::npos;
        (adapter ? trained : frozen) += 1;
        if (!adapter) BOOST_TEST((values == base.at(path)), path << " has changed");
    }
    BOOST_TEST(trained > 20u);
    BOOST_TEST(frozen > 20u);
    const auto losses = numbers_of(place.path(), "loss", "one");
    BOOST_TEST(losses.at(10) < losses.at(1));
    for (const GridCase& grid : {layout(2, 1, 1), layout(1, 2, 1), layout(1, 4, 1), layout(1, 1, 2), layout(1, 1, 1, 2),
                                 layout(2, 1, 1, 1, 3), layout(2, 2, 1, 1, 2)}) {
        const std::string sequence = grid.tensor > 1 ? " --set parallel.sequence=true" : "", name = grid.name();
        check_exit(train(place.path(), name, hybrid(grid), beside + sequence + " --stop-at 4"), 4);
        check_exit(train(place.path(), name, hybrid(grid), beside + sequence + " --resume auto"), 0);
        BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", name)) <= loss_tolerance, name);
    }
    const GridCase recomputed = [] {
        GridCase grid = hybrid(layout(1, 1, 1));
        grid.recompute = "full";
        return grid;
    }();
    check_exit(train(place.path(), "recomputed", recomputed, beside), 0);
    BOOST_TEST((numbers_of(place.path(), "loss", "recomputed") == losses));
    check_exit(train(place.path(), "bf16", hybrid(layout(2, 1, 1, 1, 1)), beside + "--set precision.compute=bf16"), 0);
    BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", "bf16")) <= 2e-2);
}

// What is hidden follows from the sample and the position alone.
BOOST_AUTO_TEST_CASE(dropout_is_the_same_on_any_layout) {
    const Workplace place;
    train_base(place);
    const std::string some = beside + "--set model.adapters.dropout=0.3 --set validation.every=5 ";
    check_exit(train(place.path(), "without", hybrid(layout(1, 1, 1)), beside), 0);
    check_exit(train(place.path(), "one", hybrid(layout(1, 1, 1)), some), 0);
    const auto losses = numbers_of(place.path(), "loss", "one");
    BOOST_TEST(losses.at(1) == numbers_of(place.path(), "loss", "without").at(1));  // as long as B is zero
    BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", "without")) > 1e-4);
    for (const GridCase& grid : {layout(1, 1, 1), layout(2, 1, 1, 1, 2), layout(1, 2, 1), layout(1, 1, 2),
                                 layout(1, 1, 2, 1, 0, 2), layout(1, 1, 1, 2), layout(2, 2, 1, 1, 3)}) {
        const std::string sequence = grid.tensor > 1 ? " --set parallel.sequence=true" : "", name = grid.name();
        check_exit(train(place.path(), name, hybrid(grid), some + sequence + " --stop-at 4"), 4);
        check_exit(train(place.path(), name, hybrid(grid), some + sequence + " --resume auto"), 0);
        const double difference = largest_difference(losses, numbers_of(place.path(), "loss", name));
        BOOST_TEST(difference <= (grid.ranks() == 1 ? 0 : loss_tolerance), name << ": " << difference);
    }
    GridCase recomputed = hybrid(layout(1, 1, 1));
    recomputed.recompute = "full";
    check_exit(train(place.path(), "recomputed", recomputed, some), 0);
    BOOST_TEST((numbers_of(place.path(), "loss", "recomputed") == losses));
    // Among documents, by lanes, in bf16.
    for (const std::string more :
         {" --set data.documents=separate --set data.tokenizer=bytes ", " --set parallel.lanes=4 "}) {
        check_exit(train(place.path(), "a", hybrid(layout(1, 1, 1)), some + more), 0);
        check_exit(train(place.path(), "b", hybrid(layout(2, 1, 1)), some + more), 0);
        const double difference =
            largest_difference(numbers_of(place.path(), "loss", "a"), numbers_of(place.path(), "loss", "b"));
        BOOST_TEST(difference <= (more.find("lanes") != std::string::npos ? 0 : loss_tolerance), more << difference);
        for (const char* folder : {"runs", "checkpoints"})
            for (const char* name : {"a", "b"}) fs::remove_all(place.path() / folder / name);
    }
    check_exit(train(place.path(), "bf16", hybrid(layout(2, 1, 1, 1, 1)), some + "--set precision.compute=bf16"), 0);
    BOOST_TEST(largest_difference(losses, numbers_of(place.path(), "loss", "bf16")) <= 2e-2);
    // Another probability from the next launch on.
    check_exit(train(place.path(), "changed", hybrid(layout(1, 1, 1)), some + " --stop-at 4"), 4);
    const Result changed = train(place.path(), "changed", hybrid(layout(1, 1, 1)),
                                 some + "--set model.adapters.dropout=0.1 --resume auto");
    check_exit(changed, 0);
    BOOST_TEST(contains(changed.error, "changed since the checkpoint: model.adapters.dropout"), changed);
    // Validations and evaluations have none: with a step of next to nothing they stay as they were.
    const auto still = [&](const std::string& name, const std::string& dropout) {
        check_exit(train(place.path(), name, hybrid(layout(1, 1, 1)),
                         "--init-from runs/one --set schedule.peak_lr=1e-9 --set validation.every=5 "
                         "--set model.adapters.dropout=" +
                             dropout),
                   0);
        return numbers_of(place.path(), "validation_loss", name).at(10);
    };
    BOOST_TEST(std::abs(still("still-hidden", "0.6") - still("still", "0.0")) < 1e-6);
    BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", "still-hidden"),
                                  numbers_of(place.path(), "loss", "still")) > 1e-4);
    const Result wrong =
        train(place.path(), "wrong", hybrid(layout(1, 1, 1)), beside + "--set model.adapters.dropout=1.0");
    check_exit(wrong, 2);
    BOOST_TEST(contains(wrong.error, "model.adapters.dropout = 1: it must be less than 1"), wrong);
}

// A checkpoint of the model alone can be made of any: also of mixers that no folder can name, in the middle of the
// warm-up of an inner rate, and of adapters alone.
BOOST_AUTO_TEST_CASE(adapters_are_merged_into_a_checkpoint) {
    const Workplace place;
    GridCase one = layout(1, 1, 1), two = layout(2, 1, 1, 1, 1);
    const std::string mixers =
        " --set 'model.mixer=[\"ttt-linear\",\"gated-deltanet\",\"attention\"]' --set model.ttt.base_lr_warmup=0.1 "
        "--set schedule.warmup=8 ";
    const std::string settings = mixers + beside + "--set optimizer.ema=0.5 --stop-at 5 ";
    check_exit(train(place.path(), "base", one, mixers), 0);
    check_exit(train(place.path(), "whole", two, settings), 4);
    check_exit(train(place.path(), "alone", one, settings + "--set checkpoint.adapters_alone=true"), 4);
    const auto loss_of = [&](const std::string& checkpoint, const std::string& more = "") {
        const Result result = run(
            "eval --data text --format json --windows 8 --device cpu --checkpoint " + checkpoint + more, place.path());
        check_exit(result, 0);
        return Json::parse(result.out)["validation_loss"].get<double>();
    };
    const double before = loss_of("runs/base");
    for (const std::string name : {"whole", "alone"})
        for (const std::string averages : {"", " --ema"}) {
            const std::string from = "runs/" + name, out = name + (averages.empty() ? ".h5" : "-averages.h5");
            const Result made = run("convert " + from + " " + out + averages, place.path(), name == "whole" ? 3 : 1);
            check_exit(made, 0);
            BOOST_TEST(contains(made.out, ", its adapters merged, " +
                                              std::string(averages.empty() ? "as a checkpoint" : "averaged")),
                       made);
            const double apart = loss_of(from, averages), merged = loss_of(out);
            BOOST_TEST(std::abs(apart - merged) < 2e-6 * apart, out << ": " << apart << ", merged " << merged);
            BOOST_TEST(std::abs(apart - before) > 1e-3);
            check_exit(run("verify " + out, place.path()), 0);
            for (const auto& [path, values] : tensors_of(place.path() / out))
                BOOST_TEST((path.starts_with("parameters/") && path.find("/lora_") == std::string::npos), path);
        }
    // New adapters beside them. At step 5 of 8 the inner rate was at 0.1 + 0.9 · 5/8.
    const std::string settled = mixers + "--set model.ttt.base_lr_warmup=0.0 --set model.ttt.base_lr=0.6625 ";
    check_exit(train(place.path(), "again", two, settled + "--init-from whole.h5 --set model.adapters.rank=2"), 0);
    const auto refused = [&](const std::string& arguments, const std::string& sentence) {
        const Result result = run("convert " + arguments, place.path(), 2);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
        BOOST_TEST(!fs::exists(place.path() / "new.h5"));
    };
    refused("runs/whole new.h5 --dtype bf16",
            "--dtype applies only when the output is a folder; new.h5 becomes a checkpoint");
    refused("runs/whole new.h5 --adapters", "--adapters applies only when the output is a folder");
    refused("runs/whole whole.h5", "whole.h5 already exists and is not overwritten");
    refused("runs/whole new.h5 --base runs/base", "holds its whole model; leave out the base");
    refused("runs/whole new", "lockstep convert IN OUT.h5 merges the adapters into a checkpoint");
    fs::remove_all(place.path() / "checkpoints" / "base");
    refused("runs/alone new.h5", "holds adapters alone, and their model, ");
}

// What was learned is in the adapters, and in the merged weights the same.
BOOST_AUTO_TEST_CASE(adapters_are_evaluated_and_merged) {
    const Workplace place;
    const std::string gpt2 =
                          " --set model.norm=layer --set model.mlp=gelu --set model.position=learned --set "
                          "model.bias=all --set model.tied_head=true --set model.ttt.mini_batch=16 ",
                      llama = " --set model.ttt.mini_batch=16 ";
    GridCase one = layout(1, 1, 1);
    one.mixer = "attention";
    const auto loss_of = [&](const std::string& checkpoint, const std::string& more = "") {
        const Result result = run(
            "eval --data text --format json --windows 8 --device cpu --checkpoint " + checkpoint + more, place.path());
        check_exit(result, 0);
        return Json::parse(result.out)["validation_loss"].get<double>();
    };
    const struct {
        std::string name, model, match;
    } cases[] = {{"llama", llama, "[\"*\"]"}, {"tuned", gpt2, "[\"*/mixer/*\",\"*/mlp/down\"]"}};
    for (const auto& c : cases) {
        fs::remove_all(place.path() / "runs" / "base");
        fs::remove_all(place.path() / "checkpoints" / "base");
        check_exit(train(place.path(), "base", one, c.model), 0);
        check_exit(train(place.path(), c.name, one,
                         c.model + beside + "--set optimizer.ema=0.5 --set 'model.adapters.match=" + c.match + "'"),
                   0);
        const double before = loss_of("runs/base");
        for (const std::string averages : {"", " --ema"}) {
            const std::string out = c.name + (averages.empty() ? "-plain" : "-averages"), from = "runs/" + c.name;
            check_exit(run("convert " + from + " " + out + averages, place.path(), 2), 0);
            check_exit(run("convert " + out + " " + out + ".h5", place.path()), 0);
            const double apart = loss_of(from, averages), merged = loss_of(out + ".h5");
            BOOST_TEST(std::abs(apart - merged) < 1e-6 * apart, out << ": " << apart << ", merged " << merged);
            BOOST_TEST(std::abs(apart - before) > 1e-3);
        }
    }
    const Result joined = run("convert --adapters runs/tuned joined", place.path());
    check_exit(joined, 2);
    BOOST_TEST(contains(joined.error, "GPT2LMHeadModel has blocks/0/mixer/query and others in one layer"), joined);
    check_exit(run("generate --device cpu --tokens 4 --prompt the --checkpoint runs/tuned", place.path()), 0);
    const Result inspected =
        run("inspect --details " + checkpoint_file(place.path(), 10, "tuned").string(), place.path());
    check_exit(inspected, 0);
    BOOST_TEST(contains(inspected.out, "blocks/0/mixer/query/lora_a"), inspected);
    // They train on from where they were, and a run without [model.adapters] has them too.
    const Result further = train(place.path(), "further", one, gpt2 + " --init-from runs/tuned");
    check_exit(further, 0);
    BOOST_TEST(!contains(further.error, "new adapters"), further);
    BOOST_TEST(tensors_of(checkpoint_file(place.path(), 10, "further"))
                   .contains("optimizer/first_moment/blocks/0/mixer/query/lora_b"));
}

// As PEFT has them: written apart, read back beside their model, and refused where a layer there is several here.
BOOST_AUTO_TEST_CASE(adapters_move_by_themselves) {
    const Workplace place;
    const std::string llama = " --set model.ttt.mini_batch=16 ";
    GridCase one = layout(1, 1, 1);
    one.mixer = "attention";
    check_exit(train(place.path(), "base", one, llama), 0);
    check_exit(run("convert runs/base base-hf", place.path()), 0);
    for (const std::string match : {"[\"*\"]", "[\"*/mixer/value\",\"blocks/2/mlp/up\"]"}) {
        const std::string name = match.size() < 8 ? "all" : "some";
        check_exit(
            train(place.path(), name, one,
                  llama + beside + "--set model.adapters.dropout=0.125 --set 'model.adapters.match=" + match + "'"),
            0);
        const std::string folder = name + "-adapters";
        check_exit(run("convert --adapters runs/" + name + " " + folder, place.path(), 2), 0);
        const Json config = Json::parse(read_file(place.path() / folder / "adapter_config.json"));
        BOOST_TEST((config["r"] == 4 && config["lora_alpha"] == 8 && config["peft_type"] == "LORA"));
        BOOST_TEST(config["lora_dropout"] == 0.125);
        BOOST_TEST(config["target_modules"].size() == (name == "all" ? 28u : 5u));
        BOOST_TEST(!fs::exists(place.path() / folder / "config.json"));
        check_exit(run("convert " + folder + " " + name + ".h5 --base base-hf", place.path(), 2), 0);
        const auto written = tensors_of(checkpoint_file(place.path(), 10, name)),
                   read = tensors_of(place.path() / (name + ".h5"));
        for (const auto& [path, values] : written)
            if (path.starts_with("parameters/")) BOOST_TEST((values == read.at(path)), path);
        check_exit(run("eval --data text --windows 2 --device cpu --checkpoint " + name + ".h5", place.path()), 0);
        const Result inspected = run("inspect --details " + name + ".h5", place.path());
        BOOST_TEST(contains(inspected.out, "dropout = 0.125"), inspected);
        check_exit(
            train(place.path(), name + "-on", one,
                  llama + "--init-from " + name +
                      ".h5 --set model.adapters.rank=4 --set model.adapters.alpha=8.0 --set 'model.adapters.match=" +
                      match + "'"),
            0);
    }
    const auto refused = [&](const std::string& arguments, const std::string& sentence, int code = 2) {
        const Result result = run("convert " + arguments, place.path());
        check_exit(result, code);
        BOOST_TEST(contains(result.error, sentence), result);
    };
    refused("all-adapters new.h5",
            "holds adapters of checkpoints/base/step-00000010.h5, which is not a local Hugging Face folder");
    const Result direct = run("eval --data text --checkpoint all-adapters", place.path());
    check_exit(direct, 2);
    BOOST_TEST(contains(direct.error, "make a checkpoint of both: lockstep convert all-adapters OUT.h5 --base FOLDER"),
               direct);
    refused("--adapters runs/base new", "has no adapters; leave out --adapters");
    refused("base-hf new.h5 --base base-hf", "--base applies only when converting adapters alone");
    refused("runs/all new --base base-hf", "holds its whole model; leave out the base");
    const fs::path config = place.path() / "all-adapters" / "adapter_config.json";
    const std::string before = read_file(config);
    const auto changed = [&](const std::string& key, const Json& value) {
        Json json = Json::parse(before);
        json[key] = value;
        write_file(config, json.dump());
    };
    changed("use_dora", true);
    refused("all-adapters new.h5 --base base-hf", "use_dora = true: only adapters with one rank");
    changed("r", 5);
    refused("all-adapters new.h5 --base base-hf",
            "has shape [4, 32]; adapter_config.json and its model require [5, 32]", 3);
    write_file(config, before);
    check_exit(train(place.path(), "wide", one, llama + "--set model.width=64"), 0);
    check_exit(run("convert runs/wide wide-hf", place.path()), 0);
    refused("all-adapters new.h5 --base wide-hf", "require [4, 64]", 3);
    BOOST_TEST(!fs::exists(place.path() / "new.h5"));
}

// Their model stays where the run began, a checkpoint or a folder, and is known by its checksum.
BOOST_AUTO_TEST_CASE(checkpoints_hold_adapters_alone) {
    const Workplace place;
    const std::string llama = " --set model.ttt.mini_batch=16 ", alone = " --set checkpoint.adapters_alone=true ";
    GridCase one = layout(1, 1, 1), two = layout(2, 1, 1, 1, 1), three = layout(3, 1, 1, 1, 3);
    one.mixer = two.mixer = three.mixer = "attention";
    check_exit(train(place.path(), "base", one, llama), 0);
    check_exit(run("convert runs/base base-hf", place.path()), 0);
    const std::string settings = llama + beside + "--set optimizer.ema=0.5 ";
    check_exit(train(place.path(), "whole", one, settings), 0);
    const std::string local = alone + "--set checkpoint.local=node --set checkpoint.local_every=1 ";
    check_exit(train(place.path(), "alone", two, settings + local + "--stop-at 3"), 4);
    const Result changed = train(place.path(), "alone", two, settings + "--resume auto");
    check_exit(changed, 2);
    BOOST_TEST(contains(changed.error, "holds adapters alone; set checkpoint.adapters_alone = true"), changed);
    fs::remove(checkpoint_file(place.path(), 3, "alone"));  // the local one of step 2 or 3 is left
    const Result resumed = train(place.path(), "alone", three, settings + local + "--resume auto");
    check_exit(resumed, 0);
    BOOST_TEST(contains(resumed.error, "resumed from local parts"), resumed);
    BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", "whole"),
                                  numbers_of(place.path(), "loss", "alone")) <= loss_tolerance);
    for (const auto& [path, values] : tensors_of(checkpoint_file(place.path(), 10, "alone")))
        BOOST_TEST(path.find("/lora_") != std::string::npos, path);
    check_exit(run("verify " + checkpoint_file(place.path(), 10, "alone").string(), place.path()), 0);

    const auto loss_of = [&](const std::string& checkpoint, const std::string& more = "") {
        const Result result = run(
            "eval --data text --format json --windows 8 --device cpu --checkpoint " + checkpoint + more, place.path());
        check_exit(result, 0);
        return Json::parse(result.out)["validation_loss"].get<double>();
    };
    for (const std::string averages : {"", " --ema"}) {
        const double whole = loss_of("runs/whole", averages), here = loss_of("runs/alone", averages);
        BOOST_TEST(std::abs(whole - here) < 2e-6 * whole);
        const std::string out = averages.empty() ? "merged" : "averaged";
        check_exit(run("convert runs/alone " + out + averages, place.path(), 2), 0);
        BOOST_TEST(std::abs(loss_of(out) - here) < 2e-6 * whole);
    }
    check_exit(run("convert --adapters runs/alone adapters", place.path()), 0);
    BOOST_TEST(
        contains(read_file(place.path() / "adapters" / "adapter_config.json"), "checkpoints/base/step-00000010.h5"));

    const Result latin = run("convert --adapters runs/alone other --base caf\xe9", place.path());
    check_exit(latin, 2);
    BOOST_TEST(contains(latin.error, "is not UTF-8"), latin);
    BOOST_TEST(!fs::exists(place.path() / "other"));
    const Result unknown = run("convert --adapters runs/alone other --base text", place.path());
    check_exit(unknown, 2);
    BOOST_TEST(!fs::exists(place.path() / "other"));

    // Beside a folder; and on from adapters alone, which belong to the same model.
    const std::string folder = " --init-from base-hf --set model.adapters.rank=2 " + alone;
    check_exit(train(place.path(), "folder", two, llama + folder + "--stop-at 5"), 4);
    check_exit(train(place.path(), "further", one, llama + " --init-from runs/folder" + alone), 0);
    check_exit(train(place.path(), "joined", one, llama + " --init-from runs/folder"), 0);
    BOOST_TEST(largest_difference(numbers_of(place.path(), "loss", "further"),
                                  numbers_of(place.path(), "loss", "joined")) == 0);
    BOOST_TEST(loss_of("runs/further") == loss_of("runs/joined"));

    const auto refused = [&](const Result& result, const std::string& sentence) {
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
    };
    const std::string eval = "eval --data text --windows 2 --device cpu --checkpoint ";
    refused(run(eval + "runs/whole --base base-hf", place.path()), "holds its whole model; leave out the base");
    refused(run(eval + "runs/alone --base runs/folder", place.path()), "name the model they were trained on");
    BOOST_TEST(loss_of("runs/alone", " --base runs/whole") == loss_of("runs/alone"));  // the same, and other adapters
    fs::rename(place.path() / "base-hf", place.path() / "elsewhere");
    refused(run(eval + "runs/folder", place.path()), "holds adapters alone, and their model, ");
    refused(run("convert runs/folder again", place.path(), 2), "holds adapters alone, and their model, ");
    BOOST_TEST(!fs::exists(place.path() / "again"));
    const std::string resume = llama + folder + "--resume auto ";
    refused(train(place.path(), "folder", two, resume), "holds adapters alone, and their model, ");
    // The same model elsewhere, and as it was before it was converted.
    const double before = loss_of("runs/folder", " --base elsewhere");
    BOOST_TEST(loss_of("runs/folder", " --base runs/base") == before);
    check_exit(run("convert runs/folder again --base elsewhere", place.path(), 2), 0);
    BOOST_TEST(std::abs(loss_of("again") - before) < 2e-6 * before);
    check_exit(train(place.path(), "folder", two, resume + "--set init.base=elsewhere"), 0);
    BOOST_TEST(loss_of("runs/folder") > 0);  // which now names it
    const std::string whole = llama + " --init-from runs/folder --set init.base=elsewhere ";
    check_exit(train(place.path(), "whole-again", one, whole + "--stop-at 2"), 4);
    check_exit(train(place.path(), "whole-again", one, whole + "--resume auto"), 0);
    check_exit(run("convert runs/whole base-hf", place.path()), 0);
    refused(run(eval + "runs/folder --base base-hf", place.path()), "is not the model that the adapters");
}

BOOST_AUTO_TEST_CASE(what_cannot_have_adapters_is_refused) {
    const Workplace place;
    const auto refused = [&](const std::string& settings, const std::string& sentence) {
        const Result result = train(place.path(), "x", layout(2, 1, 1), settings);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, sentence), result);
        BOOST_TEST(count_of(result.error, "error:") == 1u, result);
    };
    refused("--set model.adapters.rank=2", "model.adapters needs a base model to train adapters for: set init.from");
    refused("--set model.adapters.rank=2 --set 'model.frozen=[\"*\"]'", "remove model.frozen");
    refused("--set model.adapters.rank=2 --set 'model.adapters.match=[\"*/quary\"]'",
            "model.adapters.match: the pattern \"*/quary\" matches no linear layer of the model");
    refused("--set model.adapters.rank=2 --set 'model.adapters.match=[]'", "model.adapters.match is empty");
    refused("--set model.adapters.rank=-1", "model.adapters.rank");
    refused("--set model.adapters.alpha=8.0", "model.adapters.alpha is given, but model.adapters.rank = 0");
    refused("--set 'model.adapters.match=[\"*/query\"]'", "model.adapters.match is given, but model.adapters.rank = 0");
    train_base(place);
    const std::string base = " --init-from checkpoints/base/step-00000010.h5 ";
    check_exit(train(place.path(), "kept", hybrid(layout(1, 1, 1)), beside + "--stop-at 2"), 4);
    const Result other =
        train(place.path(), "kept", hybrid(layout(1, 1, 1)), base + "--set model.adapters.rank=5 --resume auto");
    check_exit(other, 2);
    BOOST_TEST(contains(other.error, "model.adapters.rank"), other);
}

BOOST_AUTO_TEST_SUITE_END()
