// lockstep witness: started by a run on each node to report which rank died; not for users
#include "watch/witness.hpp"

#include <memory>

#include "command.hpp"

namespace lockstep::commands {

void add_witness(CLI::App& program, Action& action) {
    auto* command = program.add_subcommand("witness", "Report which rank of a node died; started by train");
    command->group("");  // not in the help
    struct Options {
        std::string node_folder, run_path, key;
    };
    const auto options = std::make_shared<Options>();
    command->add_option("NODE", options->node_folder, "Folder of the node's flight recorders")->required();
    command->add_option("RUN", options->run_path, "Run folder")->required();
    command->add_option("KEY", options->key, "Key of the launch")->required();
    command->callback([options, &action] {
        action = [options] {
            watch::run_witness(options->node_folder, options->run_path, options->key);
            return 0;
        };
    });
}

}  // namespace lockstep::commands
