// lockstep doctor: what is wrong with the links, transports, settings and clocks of a job's nodes.
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/table.hpp"
#include "cluster/agree.hpp"
#include "cluster/session.hpp"
#include "command.hpp"
#include "config/words.hpp"
#include "doctor/host_list.hpp"
#include "doctor/report.hpp"
#include "layout/devices.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    std::optional<std::string> nodes_file;
    std::string device = "auto", format = "text";
    bool strict = false;
};

int examine(const Options& options, cluster::Session& session) {
    const TableFormat format = table_format(options.format);
    const auto control = session.make_world_group("doctor");
    const auto device = config::from_word<config::DeviceChoice>(options.device, "--device");
    std::vector<std::string> expected;
    cluster::on_root(*control, [&] {
        if (options.nodes_file) expected = doctor::read_host_list(*options.nodes_file);
    });
    const doctor::NcclLog nccl_log;
    layout::Devices devices = layout::open_devices(device, session, true);
    const doctor::Examination found = doctor::examine({session, *control, devices, &nccl_log, std::move(expected)});
    int code = 0;
    if (session.rank() == 0) {
        const std::string text = doctor::report(found, format);
        print_result(text);
        if (options.strict && !found.findings.empty()) code = static_cast<int>(ExitCode::slower);
    }
    return code;
}

int run(const Options& options) {
    cluster::Session session(nullptr, nullptr);
    return session.run([&] { return examine(options, session); });
}

}  // namespace

void add_doctor(CLI::App& program, Action& action) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand(
        "doctor", "Check a job's nodes for slow links, bad settings and wrong clocks: mpirun -np N lockstep doctor");
    command
        ->add_option("--nodes-file", options->nodes_file,
                     "File of the hosts that should have ranks, one per line; listed hosts without ranks and unlisted "
                     "hosts with ranks are reported")
        ->type_name("FILE");
    command->add_option("--device", options->device,
                        "auto, cpu or cuda: links between GPUs are measured where GPUs are in use");
    command->add_option("--format", options->format, "text, markdown, csv (links only) or json");
    command->add_flag("--strict", options->strict, "Exit code 6 if anything is found (otherwise 0)");
    command->footer(
        "Start it like training, in the same job, before it; it takes seconds.\n"
        "Example: mpirun -np 8 lockstep doctor --strict && mpirun -np 8 lockstep train run.toml\n"
        "What is measured and what each finding means: docs/doctor.md");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace lockstep::commands
