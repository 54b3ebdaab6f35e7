// lockstep train
#include "train/trainer.hpp"

#include <cstdlib>
#include <memory>

#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "cluster/session.hpp"
#include "command.hpp"
#include "config/keys.hpp"
#include "config/run_description.hpp"
#include "train/initial_model.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    std::string description;
    std::vector<std::string> settings;
    std::string device, sync, resume, init_from;
    bool quiet = false, verbose = false;
    train::TrainOptions train;
};

int run(const Options& options) {
    if (options.quiet) log::show_from(log::Level::warning);
    if (options.verbose) log::show_from(log::Level::detail);
    cluster::Session session(nullptr, nullptr);
    return session.run([&] {
        if (options.description.empty() && options.settings.empty())
            throw usage_error("train takes a run description: lockstep train RUN.toml; see jobs/examples");
        if (first_damage(options.init_from) != std::string::npos)
            throw usage_error("--init-from: the path is not UTF-8, which run descriptions are; rename a folder");
        std::vector<std::string> settings = options.settings;
        if (!options.init_from.empty()) settings.push_back("init.from=" + config::toml_text(options.init_from));
        if (!options.device.empty()) {
            config::from_word<config::DeviceChoice>(options.device, "--device");
            settings.push_back("run.device=" + options.device);
        }
        const char* sync_of_environment = std::getenv("LOCKSTEP_SYNC");
        const bool has_environment = sync_of_environment != nullptr && *sync_of_environment != '\0';
        if (const std::string sync = options.sync.empty() && has_environment ? sync_of_environment : options.sync;
            !sync.empty()) {
            config::from_word<config::SyncMode>(sync, options.sync.empty() ? "LOCKSTEP_SYNC" : "--sync");
            settings.push_back("sync.mode=" + sync);
        }
        const auto description =
            train::read_run(options.description, settings, *session.make_world_group("description"));
        config::check(description);
        train::TrainOptions train_options = options.train;
        train_options.resume_newest = options.resume == "auto";
        if (!train_options.resume_newest) train_options.resume_file = options.resume;
        train_options.witness_program = "/proc/self/exe";
        return static_cast<int>(train::train(session, description, train_options));
    });
}

}  // namespace

void add_train(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand("train", "Train a model: mpirun -np N lockstep train RUN.toml");
    const auto options = std::make_shared<Options>();
    command->add_option("RUN.toml", options->description,
                        "Run description; docs/run-description.md explains every key");
    command
        ->add_option("--set", options->settings,
                     "Override a key of the description: --set batch.global=16 (repeatable)")
        ->allow_extra_args(false);
    command->add_option("--device", options->device, "auto, cpu or cuda (default: run.device)");
    command->add_option("--sync", options->sync,
                        "async, bounded, phase, collective or launch: when the host waits for the GPU (default: "
                        "$LOCKSTEP_SYNC, then sync.mode); docs/sync-modes.md");
    command->add_option("--resume", options->resume,
                        "Resume from a checkpoint: 'auto' (the newest undamaged one) or a file");
    command->add_option("--init-from", options->init_from,
                        "Start a new run from the parameters of a checkpoint or a Hugging Face folder (init.from); "
                        "docs/fine-tuning.md");
    command->add_option("--stop-at", options->train.stop_at, "Stop with a checkpoint after this step (exit code 4)")
        ->check(above_zero());
    command
        ->add_option("--stop-after", options->train.stop_after_minutes,
                     "Stop with a checkpoint after this many minutes (exit code 4)")
        ->check(above_zero());
    auto* quiet = command->add_flag("--quiet", options->quiet, "Only warnings and errors on the terminal");
    command->add_flag("--verbose", options->verbose, "Also print details of the launch; log.txt always has them")
        ->excludes(quiet);
    command->footer(
        "SIGUSR1, SIGTERM, SIGINT or a file named 'stop' in the run folder stop the run with a checkpoint (exit code "
        "4); --resume auto continues it, on any number of ranks.");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace lockstep::commands
