// lockstep witness: what a run starts on each node to say which rank died; not a command for users
#include "watch/witness.hpp"

#include <memory>

#include "command.hpp"

namespace lockstep::commands {

void add_witness(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand("witness", "Says which rank of a node died; started by train");
    command->group("");  // not in the help
    struct Options {
        std::string node_folder, run_path, key;
    };
    const auto options = std::make_shared<Options>();
    command->add_option("NODE", options->node_folder, "The folder of the node's flight recorders")->required();
    command->add_option("RUN", options->run_path, "The run's folder")->required();
    command->add_option("KEY", options->key, "The launch's key")->required();
    command->callback([options, &action] {
        action = [options] {
            watch::be_witness(options->node_folder, options->run_path, options->key);
            return 0;
        };
    });
}

}  // namespace lockstep::commands
