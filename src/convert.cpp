// lockstep convert: between a checkpoint and a folder in the Hugging Face layout; a checkpoint with adapters merged
#include "exchange/convert.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/progress_line.hpp"
#include "cluster/agree.hpp"
#include "cluster/session.hpp"
#include "command.hpp"
#include "config/run_description.hpp"
#include "exchange/folder.hpp"
#include "exchange/peft.hpp"
#include "train/initial_model.hpp"
#include "watch/stop_request.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    std::string in, out, base, type = "fp32";
    std::uint64_t shard_bytes = exchange::WayOut().shard_bytes;
    bool type_given = false, shard_given = false, ema = false, adapters = false;
};

// Rank 0's share stands for all: they are of equal size.
class Progress {
  public:
    explicit Progress(const Options& options) : shown_(fmt::format("{} to {}", options.in, options.out)) {}
    checkpoint::StreamProgress show() {
        return [this](std::uint64_t done, std::uint64_t total) {
            // Thrown on all ranks; what is unfinished is removed.
            if (const int signal = watch::requested_signal(); signal != 0)
                throw fault_error("the conversion was interrupted by {}; nothing was written",
                                  watch::signal_word(signal));
            shown_.show(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
        };
    }

  private:
    ProgressLine shown_;
};

Type type_of(const std::string& word) {
    switch (config::from_word<config::Precision>(word, "--dtype")) {
        case config::Precision::fp32:
            return Type::fp32;
        case config::Precision::bf16:
            return Type::bf16;
        case config::Precision::fp16:
            return Type::fp16;
    }
    throw fault_error("--dtype {} has no type", word);
}

void convert_checkpoint(const Options& options, const std::string& checkpoint, cluster::HostGroup& group) {
    exchange::WayOut way;
    cluster::together(group, [&] { way.type = type_of(options.type); });
    way.shard_bytes = options.shard_bytes;
    way.averages = options.ema;
    way.adapters = options.adapters;
    way.base = train::newest_checkpoint(options.base, group);
    const bool to_checkpoint = options.out.ends_with(".h5");
    cluster::together(group, [&] {
        if (options.adapters && options.shard_given)
            throw usage_error("--shard-size does not apply to --adapters, which are always in one file");
        if (to_checkpoint && (options.type_given || options.shard_given || options.adapters))
            throw usage_error(
                "{} applies only when the output is a folder; {} becomes a checkpoint, a single fp32 file of the whole "
                "model",
                options.type_given    ? "--dtype"
                : options.shard_given ? "--shard-size"
                                      : "--adapters",
                options.out);
    });
    const auto make = to_checkpoint ? exchange::checkpoint_to_checkpoint : exchange::checkpoint_to_folder;
    const exchange::Converted converted = make(checkpoint, options.out, way, group, Progress(options).show());
    if (group.rank() != 0) return;
    if (to_checkpoint) {
        print_result("{}: the model in {}{}{}, as a checkpoint to start from: step 0, no optimizer state\n",
                     options.out, checkpoint, converted.with_adapters ? ", its adapters merged" : "",
                     options.ema ? ", averaged parameters" : "");
        return;
    }
    print_result("{}: {}{} as {}{}; it does not include optimizer state\n", options.out,
                 options.adapters ? "adapters of a " : "", converted.architecture, options.type,
                 options.ema ? ", averaged parameters" : "");
    if (!options.adapters && converted.tokenizer_kind.empty())
        log::warning("{} names no tokenizer, so {} has none", checkpoint, options.out);
}

void convert_folder(const Options& options, cluster::HostGroup& group) {
    cluster::together(group, [&] {
        if (options.type_given || options.shard_given || options.ema || options.adapters)
            throw usage_error(
                "{} applies only when a checkpoint is converted; a new checkpoint is always a single fp32 file",
                options.type_given    ? "--dtype"
                : options.shard_given ? "--shard-size"
                : options.ema         ? "--ema"
                                      : "--adapters");
        if (!options.base.empty() && !exchange::is_adapter_folder(options.in))
            throw usage_error("--base applies only when converting adapters alone; {} has no {}", options.in,
                              exchange::adapter_config_name);
    });
    const exchange::Converted converted =
        exchange::folder_to_checkpoint(options.in, options.out, group, Progress(options).show(), options.base);
    if (group.rank() != 0) return;
    print_result("{}: a {}{}, as a checkpoint to start from: step 0, no optimizer state\n", options.out,
                 converted.architecture, converted.with_adapters ? " and adapters" : "");
    if (converted.tokenizer_kind.empty())
        log::warning("{} has neither tokenizer.json nor tokenizer.model, so {} has no tokenizer", options.in,
                     options.out);
}

int run(const Options& options) {
    watch::watch_signals();
    cluster::Session session(nullptr, nullptr);
    return session.run([&] {
        const auto group = session.make_world_group();
        std::string checkpoint;  // "": IN is a folder of the other kind
        cluster::on_root(*group, [&] {
            if (!exchange::is_folder(options.in) && !exchange::is_adapter_folder(options.in))
                checkpoint = train::newest_checkpoint(options.in);
        });
        checkpoint = group->broadcast_text(std::move(checkpoint), 0);
        if (checkpoint.empty())
            convert_folder(options, *group);
        else
            convert_checkpoint(options, checkpoint, *group);
        return 0;
    });
}

}  // namespace

void add_convert(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand(
        "convert",
        "Convert a checkpoint to a Hugging Face folder or back, or merge adapters into their model (also under "
        "mpirun)");
    const auto options = std::make_shared<Options>();
    command
        ->add_option("IN", options->in,
                     "A checkpoint, a run's folder for its newest, a Hugging Face folder (config.json and "
                     "safetensors), or a PEFT folder of adapters")
        ->required();
    command
        ->add_option("OUT", options->out,
                     "Output, which must not exist: from a folder, a checkpoint; from a checkpoint, a folder, or if "
                     "OUT ends with .h5, a checkpoint of the model alone, adapters merged")
        ->required();
    CLI::Option* type =
        command->add_option("--dtype", options->type, "Type of the folder's tensors: fp32, bf16 or fp16")
            ->capture_default_str();
    CLI::Option* shard =
        command
            ->add_option("--shard-size", options->shard_bytes,
                         "Maximum tensor data per file of the folder: bytes, or 500MB, 5GB, 2GiB (default: 5GB)")
            ->transform(CLI::AsSizeValue(true))
            ->check(above_zero());
    command->add_flag("--adapters", options->adapters,
                      "Write only the adapters, in PEFT's format, instead of merging them into the weights");
    command->add_option("--base", options->base,
                        "Base model of the adapters: for PEFT's, a Hugging Face folder; for a checkpoint's, a "
                        "checkpoint or folder (default: the one they name)");
    command->add_flag("--ema", options->ema, "Write the averages of optimizer.ema instead of the parameters");
    command->footer(
        "Examples: lockstep convert runs/demo demo-hf --dtype bf16\n"
        "          lockstep convert SmolLM2-135M smollm2.h5\n"
        "          lockstep convert runs/fine merged.h5\n"
        "Supported models and how they are mapped: docs/hugging-face.md");
    command->callback([options, type, shard, &action] {
        options->type_given = type->count() > 0;
        options->shard_given = shard->count() > 0;
        action = [options] { return run(*options); };
    });
}

}  // namespace lockstep::commands
