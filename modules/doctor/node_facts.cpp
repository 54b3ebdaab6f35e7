#include "doctor/node_facts.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cluster/processor.hpp"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double number_of(const std::string& path) {
    return std::strtod(line_of(path).c_str(), nullptr);
}

// What follows "NAME:" or "NAME" in the first line that begins so.
std::string value_of(const std::string& path, const std::string& name) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(name)) continue;
        const std::size_t first = line.find_first_not_of(" \t:", name.size());
        return first == std::string::npos ? "" : line.substr(first);
    }
    return "";
}

void read_processor(const std::string& root, NodeFacts& facts) {
    const std::string path = root + "/proc/cpuinfo";
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("processor")) ++facts.cores;
    facts.processor = cluster::processor_model(path);
}

void read_memory(const std::string& root, NodeFacts& facts) {
    constexpr double kib = 1024;
    const auto bytes = [&](const char* name) {
        return kib * std::strtod(value_of(root + "/proc/meminfo", name).c_str(), nullptr);
    };
    facts.memory_bytes = bytes("MemTotal");
    facts.swap_used_bytes = bytes("SwapTotal") - bytes("SwapFree");
    // "always [madvise] never"
    const std::string pages = line_of(root + "/sys/kernel/mm/transparent_hugepage/enabled");
    const std::size_t open = pages.find('['), close = pages.find(']');
    if (open != std::string::npos && close != std::string::npos && close > open)
        facts.huge_pages = pages.substr(open + 1, close - open - 1);
    // "Max locked memory  8388608  8388608  bytes": the soft limit comes first.
    const std::string locked = value_of(root + "/proc/self/limits", "Max locked memory");
    if (!locked.empty() && !locked.starts_with("unlimited"))
        facts.lockable_bytes = std::strtod(locked.c_str(), nullptr);
}

// Folders of the cores: cpu0, cpu1, …
std::vector<std::string> core_folders(const std::string& root) {
    const std::string all = root + "/sys/devices/system/cpu";
    std::vector<std::string> folders;
    for (const std::string& name : names_in(all))
        if (name.size() > 3 && name.starts_with("cpu") && std::isdigit(static_cast<unsigned char>(name[3])))
            folders.push_back(all + "/" + name);
    return folders;
}

// The drivers of processors that choose their clock themselves have two governors, of which powersave is what
// schedutil is elsewhere, unless the energy is preferred.
std::string governor_of(const std::string& folder) {
    std::string governor = line_of(folder + "scaling_governor");
    const std::string driver = line_of(folder + "scaling_driver"),
                      preference = line_of(folder + "energy_performance_preference");
    if (governor != "powersave" || (driver != "intel_pstate" && driver != "amd-pstate-epp")) return governor;
    governor += " of " + driver;
    return preference == "power" || preference == "balance_power" ? governor + " with " + preference : governor;
}

void read_clocks(const std::string& root, NodeFacts& facts) {
    for (const std::string& core : core_folders(root)) {
        const std::string governor = governor_of(core + "/cpufreq/");
        if (!governor.empty() &&
            std::find(facts.governors.begin(), facts.governors.end(), governor) == facts.governors.end())
            facts.governors.push_back(governor);
        const double highest = number_of(core + "/cpufreq/cpuinfo_max_freq");
        const double limit = number_of(core + "/cpufreq/scaling_max_freq");
        if (highest <= 0) continue;
        facts.clock_share = std::max(facts.clock_share, number_of(core + "/cpufreq/scaling_cur_freq") / highest);
        if (limit > 0) facts.limit_share = std::min(facts.limit_share, limit / highest);
    }
}

void read_devices(const std::string& root, NodeFacts& facts) {
    facts.ports = network_ports(root);
    std::error_code ignored;
    for (const std::string& number : names_in(root + "/proc/self/fd")) {
        const std::string target = fs::read_symlink(root + "/proc/self/fd/" + number, ignored).string();
        for (const char* begin : {"/dev/infiniband/uverbs", "/dev/cxi", "/dev/hfi1"})
            if (target.starts_with(begin)) facts.rdma_devices.push_back(target.substr(5));
    }
    std::sort(facts.rdma_devices.begin(), facts.rdma_devices.end());
    facts.rdma_devices.erase(std::unique(facts.rdma_devices.begin(), facts.rdma_devices.end()),
                             facts.rdma_devices.end());
    for (const char* module : {"nvidia_peermem", "nv_peer_mem"})
        facts.peer_memory = facts.peer_memory || fs::exists(root + "/sys/module/" + module, ignored);
    // Only the open kernel modules hand out DMA buffers.
    facts.dma_buffers = line_of(root + "/proc/driver/nvidia/version").find("Open Kernel Module") != std::string::npos;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NetworkPort, name, fabric, gigabits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NcclTransports, networks, provider, over_network, with_gpu_direct)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeFacts, host, kernel, mpi, program, processor, cores, memory_bytes,
                                   swap_used_bytes, huge_pages, governors, clock_share, limit_share, throttled,
                                   lockable_bytes, ports, rdma_devices, peer_memory, dma_buffers, environment, nccl)

std::int64_t read_throttled(const std::string& root) {
    double count = 0;
    for (const std::string& core : core_folders(root))
        count += number_of(core + "/thermal_throttle/core_throttle_count");
    return static_cast<std::int64_t>(count);
}

NodeFacts read_node_facts(const std::string& root, std::int64_t throttled_before) {
    NodeFacts facts;
    facts.kernel = line_of(root + "/proc/sys/kernel/osrelease");
    read_processor(root, facts);
    read_memory(root, facts);
    read_clocks(root, facts);
    facts.throttled = read_throttled(root) - throttled_before;
    read_devices(root, facts);
    return facts;
}

std::string to_json(const NodeFacts& facts) {
    return Json(facts).dump(-1, ' ', false, Json::error_handler_t::replace);
}

NodeFacts facts_from_json(const std::string& text) {
    return Json::parse(text).get<NodeFacts>();
}

}  // namespace lockstep::doctor
