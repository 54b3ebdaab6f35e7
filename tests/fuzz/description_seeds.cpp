#include "fuzz/description_seeds.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <variant>

#include "config/key.hpp"
#include "config/machine.hpp"
#include "config/run_description.hpp"
#include "config/shipped_machines.hpp"
#include "fuzz/harness.hpp"
#include "places.hpp"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

// Of every type, for keys of another one; and at the ends of ranges.
constexpr auto odd_values = std::to_array<std::string_view>({"true",
                                                             "-1",
                                                             "0",
                                                             "1",
                                                             "3",
                                                             "0.5",
                                                             "2.0",
                                                             "1e300",
                                                             "nan",
                                                             "\"\"",
                                                             "\"x\"",
                                                             "\"auto\"",
                                                             "\"a, b\"",
                                                             "[]",
                                                             "[1, 2]",
                                                             "[1, \"a\"]",
                                                             "[\"a\", \"\"]",
                                                             "[{}]",
                                                             "[{path = \"a\", weight = 1}, \"b\"]",
                                                             "[{path = [\"a\", 1], weight = 1}]",
                                                             "{a = 1}",
                                                             "2020-01-01"});

// The lines "key = value", each with the section that it stands in.
struct Line {
    std::string section, key;
};
std::vector<Line> lines_of(const std::string& toml) {
    std::vector<Line> lines;
    std::istringstream stream(toml);
    std::string section;
    for (std::string line; std::getline(stream, line);) {
        if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1);
        const std::size_t equals = line.find(" = ");
        if (line.starts_with('#') || equals == std::string::npos) continue;
        lines.push_back({section, line.substr(0, equals)});
    }
    return lines;
}

// The text with one of its values replaced, for each of them.
Inputs with_odd_values(const std::string& toml) {
    Inputs inputs;
    for (std::size_t at = 0; (at = toml.find(" = ", at)) != std::string::npos;) {
        at += 3;
        const std::size_t end = std::min(toml.find('\n', at), toml.size());
        for (const std::string_view odd : odd_values)
            inputs.push_back(toml.substr(0, at) + std::string(odd) + toml.substr(end));
        at = end;
    }
    return inputs;
}

constexpr const char* small_run =
    "[run]\nname = \"small\"\n[model]\nwidth = 64\nlayers = 2\nheads = 4\nvocabulary = 256\ncontext = 32\n"
    "[data]\ntrain = [\"text\"]\n[batch]\nglobal = 8\n[schedule]\nsteps = 10\npeak_lr = 1e-3\n";

// Settings that do not fit together, or just do; and what is no setting.
const std::vector<Inputs>& settings_to_try() {
    static const std::vector<Inputs> all = {
        {"run.name=.a"},
        {"data.train=[\"\"]"},
        {"data.validation=[\"\"]"},
        {"data.train=[{path = \"\", weight = 1}]"},
        {"data.train=[{path = [\"a\", \"b\"], weight = 1}, {path = \"c\", weight = 0}]"},
        {"data.train=[{path = \"a\"}]"},
        {"data.train=[{weight = 1}]"},
        {"data.train=[{path = \"a\", weight = 1, share = 2}]"},
        {"data.train=[{path = 1, weight = 1}]"},
        {"data.train=[{path = \"a\", weight = \"b\"}]"},
        {"batch.length=64"},
        {"batch.micro=1000000", "batch.global=1000000", "model.context=1000000", "batch.length=1000000"},
        {"batch.ramp.start=2", "batch.ramp.increment=4", "batch.ramp.samples=100"},
        {"batch.ramp.start=1", "batch.ramp.increment=1", "batch.ramp.samples=100", "batch.global=1000000"},
        {"batch.ramp.start=2", "batch.ramp.increment=2", "batch.ramp.samples=100"},
        {"optimizer.groups=[{match = \"*\"}]"},
        {"optimizer.groups=[{match = \"*\", lr = 1e-4}, {match = \"a\", decay = 0}]"},
        {"optimizer.groups=[{lr = 1e-4}]"},
        {"optimizer.groups=[{match = \"*\", rate = 1}]"},
        {"model.layers=[{count = 2, mixer = \"ttt-mlp\"}]"},
        {"model.layers=[{mixer = \"attention\"}, {mixer = \"ttt-linear\", count = 3}]"},
        {"model.layers=[{count = 0}]"},
        {"model.layers=[{count = 9999}, {count = 9999}]"},
        {"schedule.epochs=1"},
        {"schedule.final_lr=1"},
        {"schedule.kind=constant", "schedule.final_lr=1e-4"},
        {"schedule.decay_steps=2"},
        {"schedule.kind=wsd", "schedule.warmup=6", "schedule.decay_steps=6"},
        {"schedule.warmup=20"},
        {"precision.compute=fp16", "precision.loss_scale.initial=1", "precision.loss_scale.minimum=2"},
        {"precision.compute=fp16", "parallel.offload=moments"},
        {"parallel.zero=2", "parallel.lanes=2"},
        {"checkpoint.local=~/a"},
        {"checkpoint.local=$TMPDIR"},
        {"checkpoint.local=/local", "checkpoint.local_every=5"},
        {"checkpoint.local_every=5"},
        {"validation.batches=2000000000"},
        {"validation.every=5"},
        {"data.validation=0.5", "validation.every=5"},
        {"model.heads=[4, 3]", "model.layers=1"},
        {"model.heads=1024", "model.head_width=65536"},
        {"model.kv_heads=3"},
        {"model.mixer=[\"attention\", \"ttt-linear\"]", "model.heads=[4, 3]"},
        {"model.mixer=[\"attention\", \"gated-deltanet\", \"ttt-mlp\"]"},
        {"model.mixer=[\"attention\", \"ttt-linear\"]", "model.window=[0, 16]", "model.layers=4"},
        {"model.rope_scaling=llama3"},
        {"model.rope_scaling=llama3", "model.rope_low=4", "model.rope_high=1"},
        {"model.rope_factor=4"},
        {"model.ttt.share_qk=true"},
        {"model.adapters.rank=4", "model.frozen=[\"*\"]"},
        {"model.adapters.alpha=4"},
        {"model.adapters.dropout=0.5"},
        {"model.adapters.rank=4", "model.adapters.dropout=1"},
        {"model.adapters.rank=4", "model.adapters.match=[]"},
        {"model.adapters.match=[\"a\"]"},
        {"model.vocabulary=3000000000"},
        {"model.score_cap=1e-9"},
        {"model.preset=gpt2-124m"},
        {"model.preset=nothing"},
        {"checkpoint.adapters_alone=true"},
        {"optimizer.kind=muon", "parallel.zero=3"},
        {"optimizer.kind=sgd", "optimizer.ema=1"},
        {"init.from=somewhere"},
        {"init.from=somewhere", "model={}"},
        {"model={width = 32, heads = 2}"},
        {"schedule={steps = 5, stops = 6}"},
        {"steps"},
        {"=1"},
        {"run.name="},
        {"run.name=a\nb"},
        {"run.name='"},
        {"batch.global=[1"},
    };
    return all;
}

// By name.
std::vector<fs::path> files_in(const std::string& folder, const std::string& ending) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(tests::source_path(folder)))
        if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

Inputs contents_of(const std::string& folder, const std::string& ending) {
    Inputs inputs;
    for (const fs::path& path : files_in(folder, ending)) inputs.push_back(read_file(path.string()));
    return inputs;
}

std::string joined(const Inputs& parts) {
    std::string input;
    for (std::size_t i = 0; i < parts.size(); ++i) input += (i > 0 ? std::string(part_end) : "") + parts[i];
    return input;
}

Inputs run_descriptions() {
    Inputs inputs = contents_of("jobs/examples", ".toml");
    for (const std::string& text : contents_of("tests/compatibility", ".toml")) inputs.push_back(text);
    inputs.push_back(joined({inputs.front(), "run.name=seven", "batch.global=64", "optimizer.kind=\"muon\"",
                             "model.mixer=[\"attention\", \"ttt-linear\"]"}));
    inputs.emplace_back(
        "[run]\nname = \"hybrid\"\n[model]\nwidth = 64\nheads = 4\nvocabulary = 256\ncontext = 32\n"
        "[[model.layers]]\ncount = 2\nmixer = \"ttt-mlp\"\n[[model.layers]]\nwindow = 8\nkv_heads = 2\n"
        "[data]\ntrain = [{path = \"a\", weight = 0.5}, {path = [\"b\", \"c\"], weight = 2}]\n"
        "[batch]\nglobal = 16\nramp = {start = 8, increment = 8, samples = 1000}\n"
        "[schedule]\nsteps = 10\npeak_lr = 1e-3\n"
        "[optimizer]\ngroups = [{match = \"*norm/weight\", lr = 1e-4, decay = 0}]\n");
    for (const Inputs& settings : settings_to_try()) {
        Inputs parts = {small_run};
        parts.insert(parts.end(), settings.begin(), settings.end());
        inputs.push_back(joined(parts));
    }
    const std::string whole = config::to_toml(config::parse_run_description(small_run, "small", {}));
    for (const Line& line : lines_of(whole))
        for (const std::string_view odd : odd_values)
            inputs.push_back(joined({small_run, line.section + "." + line.key + "=" + std::string(odd)}));
    inputs.push_back(whole);
    return inputs;
}

Inputs machines() {
    Inputs inputs;
    for (const config::ShippedMachine& machine : config::shipped_machines) {
        inputs.emplace_back(machine.toml);
        inputs.emplace_back(machine.name);
    }
    inputs.emplace_back("no-such-machine");
    inputs.emplace_back(300, 'a');  // longer than names of files
    inputs.push_back(read_file(tests::source_path("tests/unit/analysis/small_cluster.toml")));
    for (const std::string& odd : with_odd_values(inputs.front())) inputs.push_back(odd);
    // All that a calibration measures, and that other programs disturbed it.
    config::Machine busy;
    for (config::Key& key : busy.keys())
        if (auto* number = std::get_if<double*>(&key.member)) **number = 1;
    inputs.push_back(config::to_toml(busy));
    return inputs;
}

Inputs plan_requests() {
    Inputs inputs = contents_of("jobs/examples", ".toml");
    const std::string two_models =
        "[plan]\nhardware = \"h100-80-8x400g\"\nprogram = \"lockstep\"\ngpus = \"1, 2, 4\"\nnodes = 1\n"
        "within = \"1d12h30m5s\"\nbudget_gpu_hours = 100\nmemory_limit_gib = 40\nby = \"time\"\n"
        "tensor = \"1, 2\"\nzero = \"1\"\nrecompute = \"full\"\n[[plan.models]]\nname = \"a\"\n"
        "preset = \"gpt2-124m\"\nfrozen = \"*norm/weight\"\n[[plan.models]]\nname = \"b\"\nwidth = 64\nlayers = 2\n"
        "heads = 4\nvocabulary = 256\nmixer = [\"attention\"]\nkv_heads = 2\nadapters = 1000\n";
    inputs.push_back(two_models);
    for (const std::string& odd : with_odd_values(two_models)) inputs.push_back(odd);
    return inputs;
}

}  // namespace lockstep::fuzz
