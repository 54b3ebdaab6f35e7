// A run's description: what is trained, on what, how. Read from TOML and the command line, checked, resolved, and
// stored in every checkpoint and trace. docs/run-description.md explains each key.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/grid.hpp"
#include "config/model_description.hpp"
#include "config/weighted_paths.hpp"
#include "config/words.hpp"

namespace lockstep::config {

struct RunSection {
    std::string name, folder = "runs";
    std::uint64_t seed = 1;
    DeviceChoice device = DeviceChoice::any;
    SelfTest self_test = SelfTest::on;
    bool bind = true;  // to what `lockstep topo` shows
    bool tune_products = true;
    double peak_tflops = 0;  // of one rank's device; 0: known, or measured
};

struct InitSection {
    std::string from;  // a checkpoint, or a folder that has some, whose parameters the run begins with; "": random ones
    std::string base;  // where the model of adapters alone is; "": where their checkpoint says
};

struct DataSection {
    std::vector<std::string> train;       // files or folders …
    std::vector<WeightedPaths> mixture;   // … or several such sources with weights
    std::vector<std::string> validation;  // files or folders …
    double validation_fraction = 0;       // … or the last part of the training windows
    DataOrder order = DataOrder::random;
    DocumentMode documents = DocumentMode::joined;
    bool restart_positions = true;     // learned positions, in each document that is kept apart
    std::string tokenizer = "auto";    // of plain text and .bin files; "auto": that of init.from, else "bytes"
    std::string jsonl_field = "text";  // of JSON Lines

    bool separates_documents() const { return documents == DocumentMode::separate; }
    bool tokenizer_is_automatic() const { return tokenizer == "auto"; }
};

struct BatchRamp {
    std::int64_t start = 0, increment = 0, samples = 0;
};

struct BatchSection {
    std::int64_t global = 0;  // sequences a step
    std::int64_t micro = 0;   // sequences a forward pass on one rank; 0: chosen
    std::int64_t length = 0;  // tokens a sequence; 0: the model's context
    std::optional<BatchRamp> ramp;
};

// One of optimizer.groups: parameters with a learning rate or a decay of their own.
struct ParameterGroup {
    static constexpr double not_given = -1;
    std::string match;  // a pattern of names, as in model.frozen
    double lr = not_given, decay = not_given;
    double rate_factor = 1;  // lr / schedule.peak_lr, once resolved
};
// Each makes two kinds of weights at most, decaying and not; the updates' kernels tell 16 apart.
constexpr std::size_t most_groups = 7;

struct OptimizerSection {
    std::string kind = "adamw";  // a registered one
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
    Decay decay = Decay::all;
    std::vector<ParameterGroup> groups;  // the first that matches decides
    double ema = 0;                      // decay of an average of the parameters; 0: none
    double clip = 1.0;                   // 0: no clipping
    double z_loss = 0;                   // factor of log² Z in what is minimized; 0: none
    std::int64_t skip_limit = 10;        // steps skipped in a row for a loss that is not finite, then the run stops
    OptionSections options{Family::optimizer};  // [optimizer.NAME]

    bool averages() const { return ema > 0; }
};

struct ScheduleSection {
    ScheduleKind kind = ScheduleKind::cosine;
    std::int64_t steps = 0;
    double epochs = 0;  // instead of steps
    std::int64_t warmup = 0;
    double peak_lr = 0, final_lr = 0;
    std::int64_t decay_steps = 0;  // wsd: the last steps that fall to final_lr; 0: a fifth

    // wsd, of a run of `all` steps.
    std::int64_t final_decay(std::int64_t all) const { return decay_steps > 0 ? decay_steps : all / 5; }
};

struct LossScale {
    double initial = 65536;
    std::int64_t growth_interval = 1000, hysteresis = 2;
    double minimum = 1;
};

struct PrecisionSection {
    Precision compute = Precision::fp32;
    LossScale loss_scale;
};

struct ParallelSection : Grid {  // data 0: "auto"
    std::int64_t interleave = 1, zero = 0;
    bool sequence = false;  // the ranks that share a layer divide the rows between layers too
    std::int64_t bucket_bytes = std::int64_t{32} << 20;
    std::int64_t lanes = 0;  // 0: none
    Recompute recompute = Recompute::none;
    Offload offload = Offload::none;
};

struct CheckpointSection {
    std::int64_t every = 0;  // steps; 0: only at the end
    double every_minutes = 0;
    std::int64_t keep = 2;
    std::string folder = "checkpoints";
    CheckpointVerify verify = CheckpointVerify::read;
    std::string local;             // on each node's own disk; "": none
    std::int64_t local_every = 0;  // steps; 0: none are written there
    bool partner = true;           // another node keeps copies of them
    bool adapters_alone = false;   // without the base model's parameters
    bool writes_local() const { return !local.empty() && local_every > 0; }
};

struct ValidationSection {
    static constexpr std::int64_t automatic = -1;
    std::int64_t every = 0;            // steps; 0: only at the end
    std::int64_t batches = automatic;  // global batches a validation; 0: all
};

struct LogSection {
    std::int64_t every = 0;    // steps between lines; 0: "auto"
    bool tensorboard = false;  // rank 0 writes event files
};

struct TraceSection {
    TraceDetail detail = TraceDetail::phase;
    std::uint64_t events_every = 100;  // steps
    bool counters = true;              // of energy and of the processors
};

struct WatchdogSection {
    double seconds = 600, first_step_seconds = 1800;  // 0: off
    double link_seconds = 60;                         // between probes of links; 0: none
};

struct SyncSection {
    SyncMode mode = SyncMode::async;
};

struct RunDescription {
    RunSection run;
    ModelDescription model;
    InitSection init;
    DataSection data;
    BatchSection batch;
    OptimizerSection optimizer;
    ScheduleSection schedule;
    PrecisionSection precision;
    ParallelSection parallel{Grid{.data = 0}};
    CheckpointSection checkpoint;
    ValidationSection validation;
    LogSection log;
    TraceSection trace;
    WatchdogSection watchdog;
    SyncSection sync;

    // Whether learned positions count from each document's first token.
    bool restarts_positions() const {
        return data.separates_documents() && data.restart_positions && model.position == Position::learned;
    }
};

// The folders that belong to the run: run.folder, checkpoint.folder and checkpoint.local, each with run.name below it.
std::string run_folder(const RunDescription& description);
std::string checkpoint_folder(const RunDescription& description);
std::string local_folder(const RunDescription& description);  // "" without checkpoint.local

// Reads `path` ("" for none), applies `settings` ("a.b=c" in TOML's syntax, bare words taken as text), checks keys and
// types, and fills in what follows from other keys. Unknown keys are errors that name the nearest known one. Does not
// check that values fit together: check() does. `model_of` is called where init.from is given and not every key of
// [model] is, with init, run and checkpoint.folder as given: what it returns is what the keys of [model] begin with.
using ModelSource = std::function<ModelDescription(const RunDescription&)>;
RunDescription read_run_description(const std::string& path, const std::vector<std::string>& settings,
                                    const ModelSource& model_of = {});
// The same from TOML text; `origin` names it in errors.
RunDescription parse_run_description(const std::string& toml, const std::string& origin,
                                     const std::vector<std::string>& settings);
// The same for a description that another program may have written: mixers and optimizers that are not registered here
// pass, their sections are skipped.
RunDescription parse_foreign_description(const std::string& toml, const std::string& origin);

// Values that fit together on their own (ranks and data are checked where they are known). Throws usage errors.
void check(const RunDescription& description);

// A run.name made of any text: without the characters that check() refuses, "model" if none are left.
std::string plain_name(const std::string& text);

// The whole description as TOML that parses back to the same description. `section`: only the keys below it ("model"),
// "" for all.
std::string to_toml(const RunDescription& description, const std::string& section = "");

// The keys that differ, one text each: "model.heads is 4, was 2". `section`: only keys below it ("model"), "" for all.
std::vector<std::string> differences(const RunDescription& now, const RunDescription& before,
                                     const std::string& section);

}  // namespace lockstep::config
