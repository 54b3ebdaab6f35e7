// lockstep topo: where ranks would run on a node.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/table.hpp"
#include "cluster/rank_map.hpp"
#include "cluster/rank_map_text.hpp"
#include "cluster/topology.hpp"
#include "command.hpp"
#include "config/words.hpp"
#include "device/gpu.hpp"

namespace lockstep::commands {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::string xml, device = "auto", format = "text";
    int ranks = 0;  // 0: one per GPU in use, else one per NUMA node
};

// PCI bus ids of the GPUs that ranks would use.
std::vector<std::string> usable_gpus(const Options& options, config::DeviceChoice device,
                                     const cluster::Hardware& hardware) {
    std::vector<std::string> buses;
    if (device == config::DeviceChoice::cpu) return buses;
    std::string why_none = options.xml + " has no NVIDIA GPU";
    if (options.xml.empty()) {
        const Gpus gpus = find_gpus();
        for (const Gpu& gpu : gpus.list) buses.push_back(gpu.bus);
        why_none = gpus.why_none;
    } else {
        for (const cluster::GpuDevice& gpu : hardware.gpus)
            if (gpu.vendor == cluster::GpuVendor::nvidia) buses.push_back(gpu.bus);
    }
    if (buses.empty() && device == config::DeviceChoice::cuda)
        throw usage_error("--device cuda: no GPU can be used: {}; choose cpu or auto", why_none);
    return buses;
}

int default_ranks(const cluster::Hardware& hardware, const cluster::CpuSet& allowed, std::size_t gpus) {
    if (gpus > 0) return static_cast<int>(gpus);
    return static_cast<int>(
        std::max<std::ptrdiff_t>(1, std::count_if(hardware.numa_nodes.begin(), hardware.numa_nodes.end(),
                                                  [&](const auto& node) { return node.units.overlaps(allowed); })));
}

Json json_of(const cluster::Hardware& hardware, const cluster::RankMap& map, const std::vector<std::string>& usable) {
    Json ranks = Json::array(), gpus = Json::array(), network = Json::array(), nodes = Json::array();
    for (std::size_t rank = 0; rank < map.seats.size(); ++rank) {
        const cluster::RankSeat& seat = map.seats[rank];
        ranks.push_back({{"rank", rank},
                         {"numa_nodes", seat.numa_nodes},
                         {"cores", seat.cores.units()},
                         {"threads", seat.threads},
                         {"helpers", seat.helpers.units()},
                         {"gpu", seat.gpu.empty() ? Json() : Json(seat.gpu)},
                         {"network", seat.network},
                         {"shares_cores", seat.shares_cores},
                         {"shares_gpu", seat.shares_gpu},
                         {"gpu_is_far", seat.gpu_is_far}});
    }
    for (const auto& gpu : hardware.gpus)
        gpus.push_back({{"bus", gpu.bus},
                        {"name", gpu.name},
                        {"vendor", vendor_name(gpu.vendor)},
                        {"near", gpu.near.units()},
                        {"usable", std::find(usable.begin(), usable.end(), gpu.bus) != usable.end()}});
    for (const auto& card : hardware.network)
        network.push_back({{"bus", card.bus}, {"name", card.name}, {"near", card.near.units()}});
    for (const auto& node : hardware.numa_nodes)
        nodes.push_back({{"number", node.number}, {"units", node.units.units()}, {"bytes", node.bytes}});
    return {{"ranks", ranks},
            {"remarks", map.remarks},
            {"packages", hardware.packages},
            {"cores", hardware.cores.size()},
            {"numa_nodes", nodes},
            {"gpus", gpus},
            {"network", network}};
}

std::string printed(TableFormat format, const cluster::Hardware& hardware, const cluster::RankMap& map,
                    const std::vector<std::string>& usable) {
    std::string table = cluster::rank_table(map).print(format);
    if (format == TableFormat::csv) return table;
    if (format == TableFormat::json)
        return json_of(hardware, map, usable).dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
    const bool markdown = format == TableFormat::markdown;
    const std::string drawing = cluster::draw_node(hardware, map);
    std::string out = table + '\n' + (markdown ? "```\n" + drawing + "```\n" : drawing);
    if (!map.remarks.empty()) out += markdown ? "\nRemarks:\n\n" : "\nremarks:\n";
    for (const std::string& remark : map.remarks) out += (markdown ? "- " : "  ") + remark + '\n';
    return out;
}

int run(const Options& options) {
    const TableFormat format = table_format(options.format);
    const auto device = config::from_word<config::DeviceChoice>(options.device, "--device");
    const cluster::Topology topology =
        options.xml.empty() ? cluster::Topology::live() : cluster::Topology::from_xml(options.xml);
    const cluster::Hardware hardware = cluster::read_hardware(topology);
    const std::vector<std::string> gpus = usable_gpus(options, device, hardware);
    const cluster::CpuSet allowed = topology.process_binding();
    const int ranks = options.ranks > 0 ? options.ranks : default_ranks(hardware, allowed, gpus.size());
    const std::vector<cluster::RankRequest> requests(static_cast<std::size_t>(ranks), {allowed, gpus});
    const std::string text = printed(format, hardware, map_ranks(hardware, requests), gpus);
    print_result(text);
    return 0;
}

// hwloc takes gigabytes for some damaged files.
void limit_memory() {
    constexpr rlim_t more = rlim_t{512} << 20;
    rlim_t size = 0, resident = 0, shared = 0, code = 0, libraries = 0, data = 0;  // pages
    std::ifstream statm("/proc/self/statm");
    if (!(statm >> size >> resident >> shared >> code >> libraries >> data)) return;
    const rlim_t bytes = data * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more;
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_DATA, &limit);
}

// hwloc does not survive every damaged file, so a separate process reads it.
int run_apart(const Options& options) {
    constexpr rlim_t processor_seconds = 60;
    const pid_t reader = ::fork();
    if (reader < 0) throw fault_error("cannot start a process to read {}: {}", options.xml, system_error_text());
    if (reader == 0) {
        const rlimit limit{processor_seconds, processor_seconds};
        ::setrlimit(RLIMIT_CPU, &limit);
        limit_memory();
        // MPI's transports print a stack where a signal ends a process.
        for (const int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) ::signal(fatal, SIG_DFL);
        int code = 0;
        try {
            code = run(options);
        } catch (const Error& error) {
            log::error("{}", error.what());
            code = static_cast<int>(error.code());
        }
        std::fflush(stdout);
        ::_exit(code);
    }
    int status = 0;
    while (::waitpid(reader, &status, 0) < 0)
        if (errno != EINTR) throw fault_error("{} cannot be read: {}", options.xml, system_error_text());
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    throw damaged_error("{} is damaged: reading it ended with signal {} ({})", options.xml, WTERMSIG(status),
                        ::strsignal(WTERMSIG(status)));
}

}  // namespace

void add_topo(CLI::App& program, Action& action) {
    const auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("topo", "Show each rank's cores, NUMA nodes, GPU and network cards");
    auto* xml = command->add_option("--xml", options->xml,
                                    "Topology of another node, written by lstopo (default: this machine)");
    xml->type_name("FILE");
    command
        ->add_option("--ranks-per-node", options->ranks,
                     "Ranks per node (default: one per GPU in use, else one per NUMA node)")
        ->check(CLI::Range(1, 4096));
    command->add_option("--device", options->device,
                        "auto, cpu or cuda; with --xml, auto and cuda use all NVIDIA GPUs in the file");
    command->add_option("--format", options->format, "text, markdown, csv or json");
    command->footer(
        "Shows what lockstep train would bind to (run.bind), before a job is submitted.\n"
        "To save a node's topology, run on it: lstopo --force node.xml\n"
        "Example: lockstep topo --xml node.xml --ranks-per-node 4\n"
        "Columns and remarks: docs/topology.md");
    command->callback([options, &action] {
        action = [options] { return options->xml.empty() ? run(*options) : run_apart(*options); };
    });
}

}  // namespace lockstep::commands
