#include "doctor/known_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/format.hpp"

namespace lockstep::doctor {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr double least_lockable = gib;          // a rank's buffers for messages are a few hundred MiB
constexpr double swap_that_matters = gib / 16;  // a few idle pages are swapped out anywhere
constexpr double low_clock = 0.6, low_limit = 0.9;

std::string variable(const NodeFacts& node, const char* name) {
    const auto found = node.environment.find(name);
    std::string value = found == node.environment.end() ? "" : found->second;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char letter) { return std::tolower(letter); });
    return value;
}

bool has(const NodeFacts& node, Fabric fabric) {
    return std::any_of(node.ports.begin(), node.ports.end(),
                       [&](const NetworkPort& port) { return port.fabric == fabric; });
}

std::string cache_monitor(const NodeFacts& node, const Circumstances& circumstances) {
    if (!has(node, Fabric::slingshot) || !circumstances.on_gpu || !circumstances.several_nodes) return "";
    const std::string monitor = variable(node, "FI_MR_CACHE_MONITOR");
    if (monitor == "memhooks") return "FI_MR_CACHE_MONITOR is memhooks on Slingshot, which can hang NCCL and RCCL";
    if (monitor.empty())
        return "FI_MR_CACHE_MONITOR is not set on Slingshot: where libfabric's default is memhooks, NCCL and RCCL can hang";
    return "";
}

std::string nccl_sockets(const NodeFacts& node, const Circumstances& circumstances) {
    const bool bad = circumstances.several_nodes && has_fabric(node.ports) && node.nccl.over_sockets();
    return bad ? fmt::format("NCCL uses sockets although the node has {}", ports_text(node.ports)) : "";
}

std::string mpi_sockets(const NodeFacts& node, const Circumstances& circumstances) {
    const bool bad = circumstances.several_nodes && has_fabric(node.ports) && node.rdma_devices.empty();
    return bad ? fmt::format("MPI has opened no device of {}, so its messages go through sockets",
                             ports_text(node.ports))
               : "";
}

std::string gpu_direct(const NodeFacts& node, const Circumstances& circumstances) {
    if (!circumstances.on_gpu || !circumstances.several_nodes) return "";
    if (!has(node, Fabric::infiniband) && !has(node, Fabric::roce)) return "";
    // What NCCL does counts more than what is installed.
    const int all = node.nccl.over_network, direct = node.nccl.with_gpu_direct;
    if (all > 0)
        return node.nccl.over_sockets() || direct == all
                   ? ""
                   : fmt::format(
                         "{} of NCCL's {} channels to other nodes go through host memory, without GPUDirect RDMA",
                         all - direct, all);
    if (node.peer_memory || node.dma_buffers) return "";
    return "GPUDirect RDMA is missing: neither the module nvidia_peermem nor NVIDIA's open kernel modules are loaded";
}

std::string locked_memory(const NodeFacts& node, const Circumstances&) {
    const bool pins = has(node, Fabric::infiniband) || has(node, Fabric::roce);
    if (!pins || node.lockable_bytes < 0 || node.lockable_bytes >= least_lockable) return "";
    return fmt::format("a process may lock only {} of memory (ulimit -l), too little for {}",
                       human_bytes(node.lockable_bytes), ports_text(node.ports));
}

std::string huge_pages(const NodeFacts& node, const Circumstances&) {
    return node.huge_pages == "never" ? "transparent huge pages are switched off (never)" : "";
}

std::string governor(const NodeFacts& node, const Circumstances&) {
    std::vector<std::string> others;
    for (const std::string& name : node.governors)
        if (name != "performance" && !(name.starts_with("powersave of ") && name.find(" with ") == std::string::npos))
            others.push_back(name);
    std::sort(others.begin(), others.end());
    return others.empty() ? "" : fmt::format("the processor's frequency governor is {}", fmt::join(others, ", "));
}

std::string clock_limit(const NodeFacts& node, const Circumstances&) {
    if (node.limit_share >= low_limit) return "";
    return fmt::format("the clock is limited to {:.0f} % of the processor's maximum (scaling_max_freq)",
                       100 * node.limit_share);
}

std::string low_clock_now(const NodeFacts& node, const Circumstances&) {
    // A limit explains it.
    if (node.clock_share == 0 || node.clock_share >= low_clock * std::min(1.0, node.limit_share)) return "";
    return fmt::format("no busy core reaches {:.0f} % of the processor's maximum clock", 100 * low_clock);
}

std::string heat(const NodeFacts& node, const Circumstances&) {
    return node.throttled > 0 ? "cores were thermally throttled during the measurement" : "";
}

std::string swap(const NodeFacts& node, const Circumstances&) {
    return node.swap_used_bytes > swap_that_matters ? "memory is swapped out" : "";
}

std::string spinning(const NodeFacts& node, const Circumstances&) {
    constexpr std::pair<const char*, const char*> without_end[] = {{"OMP_WAIT_POLICY", "active"},
                                                                   {"GOMP_SPINCOUNT", "infinite"},
                                                                   {"GOMP_SPINCOUNT", "infinity"},
                                                                   {"KMP_BLOCKTIME", "infinite"}};
    for (const auto& [name, value] : without_end)
        if (variable(node, name) == value)
            return fmt::format("{}={}: threads that wait keep their cores busy", name, value);
    return "";
}

void add(std::vector<Finding>& findings, const char* id, const std::string& what, const std::string& host,
         const char* advice, const char* source) {
    const auto same = std::find_if(findings.begin(), findings.end(),
                                   [&](const Finding& other) { return other.id == id && other.what == what; });
    if (same == findings.end())
        findings.push_back({id, what, {host}, advice, source});
    else
        same->hosts.push_back(host);
}

}  // namespace

const std::vector<KnownSetting>& known_settings() {
    static const std::vector<KnownSetting> table = {
        {"cache-monitor", "export FI_MR_CACHE_MONITOR=userfaultfd, or kdreg2 where the site has it",
         "https://github.com/olcf/olcf-user-docs/issues/947", cache_monitor},
        {"nccl-sockets",
         "install or load the site's NCCL network plugin (aws-ofi-nccl for Slingshot), and unset NCCL_NET and "
         "NCCL_IB_DISABLE",
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html", nccl_sockets},
        {"mpi-sockets", "use the site's MPI, and unset UCX_TLS, UCX_NET_DEVICES, FI_PROVIDER or set them to the fabric",
         "https://openucx.readthedocs.io/en/master/faq.html", mpi_sockets},
        {"gpu-direct",
         "ask the site to load nvidia_peermem or the open kernel modules, and check NCCL_NET_GDR_LEVEL and "
         "NCCL_NET_GDR_READ",
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html", gpu_direct},
        {"locked-memory",
         "ask the site for unlimited memlock where jobs start (Slurm: LimitMEMLOCK=infinity of slurmd; ssh: limits.d)",
         "Red Hat Enterprise Linux 7 Networking Guide, 13.5.3: relaxing memlock restrictions", locked_memory},
        {"huge-pages", "ask the site for madvise or always in /sys/kernel/mm/transparent_hugepage/enabled",
         "https://docs.kernel.org/admin-guide/mm/transhuge.html", huge_pages},
        {"governor", "request performance (Slurm: --cpu-freq=Performance)",
         "https://docs.kernel.org/admin-guide/pm/intel_pstate.html", governor},
        {"clock-limit", "request the highest clock (Slurm: --cpu-freq=high), or ask the site whether power is capped",
         "https://docs.kernel.org/admin-guide/pm/cpufreq.html", clock_limit},
        {"low-clock", "leave these nodes out and tell the site: power caps, cooling, firmware",
         "https://docs.kernel.org/admin-guide/pm/cpufreq.html", low_clock_now},
        {"heat", "leave these nodes out and tell the site: cooling, dust, a fan",
         "https://docs.kernel.org/admin-guide/thermal/intel_thermal_throttle.html", heat},
        {"swap", "use fewer ranks per node or a smaller batch.micro; if another job left it behind, leave the node out",
         "https://docs.kernel.org/admin-guide/sysctl/vm.html", swap},
        {"spinning",
         "unset it, or set KMP_BLOCKTIME=0: lockstep lets threads spin for a few microseconds (docs/running.md)",
         "https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html", spinning},
    };
    return table;
}

std::vector<Finding> bad_settings(const std::vector<NodeFacts>& nodes, const Circumstances& circumstances) {
    std::vector<Finding> findings;
    for (const KnownSetting& setting : known_settings())
        for (const NodeFacts& node : nodes)
            if (const std::string what = setting.trouble(node, circumstances); !what.empty())
                add(findings, setting.id, what, node.host, setting.advice, setting.source);
    return findings;
}

}  // namespace lockstep::doctor
