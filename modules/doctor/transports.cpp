#include "doctor/transports.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace lockstep::doctor {
namespace {

constexpr const char* of_transports[] = {"MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_CH4_OFI_PROVIDER",
                                         "FI_PROVIDER",          "UCX_TLS",
                                         "UCX_NET_DEVICES",      "OMPI_MCA_pml",
                                         "OMPI_MCA_btl",         "OMPI_MCA_mtl"};
constexpr const char* of_settings[] = {"FI_MR_CACHE_MONITOR", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};

// What follows `begin` up to a white space, a comma or the end; "" if `begin` is not in the line.
std::string word_after(const std::string& line, const std::string& begin) {
    const std::size_t at = line.find(begin);
    if (at == std::string::npos) return "";
    const std::size_t first = line.find_first_not_of(" \t", at + begin.size());
    if (first == std::string::npos) return "";
    return line.substr(first, line.find_first_of(" \t,\r", first) - first);
}

std::string rest_after(const std::string& line, const std::string& begin) {
    const std::size_t at = line.find(begin);
    if (at == std::string::npos) return "";
    const std::size_t last = line.find_last_not_of(" \t\r");
    return line.substr(at + begin.size(), last + 1 - at - begin.size());
}

std::string mpi_name(const std::string& library) {
    std::istringstream lines(library);
    std::string name, device;
    for (std::string line; std::getline(lines, line);) {
        if (const std::string cray = word_after(line, "CRAY MPICH version"); !cray.empty()) name = "Cray MPICH " + cray;
        if (const std::string mpich = word_after(line, "MPICH Version:"); !mpich.empty() && name.empty())
            name = "MPICH " + mpich;
        if (const std::string found = word_after(line, "MPICH Device:"); !found.empty()) device = found;
        if (const std::string open = word_after(line, "Open MPI v"); !open.empty() && name.empty())
            name = "Open MPI " + open;
        if (line.starts_with("Intel(R) MPI Library") && name.empty())
            name = "Intel MPI " + word_after(line, "Intel(R) MPI Library");
    }
    if (name.empty()) name = library.substr(0, std::min(library.find('\n'), std::size_t{60}));
    return device.empty() ? name : name + " (" + device + ")";
}

}  // namespace

std::string mpi_transport(const std::string& library, const Environment& environment) {
    std::string text = mpi_name(library);
    for (const char* name : of_transports)
        if (const auto found = environment.find(name); found != environment.end())
            text += fmt::format(", {}={}", name, found->second);
    return text;
}

Environment own_environment() {
    Environment environment;
    const auto add = [&](const char* name) {
        if (const char* value = std::getenv(name)) environment[name] = value;
    };
    for (const char* name : of_transports) add(name);
    for (const char* name : of_settings) add(name);
    return environment;
}

bool NcclTransports::over_sockets() const {
    return std::find(networks.begin(), networks.end(), "Socket") != networks.end();
}

NcclTransports read_nccl_log(const std::string& text) {
    NcclTransports found;
    const auto add = [&](const std::string& name) {
        if (!name.empty() && std::find(found.networks.begin(), found.networks.end(), name) == found.networks.end())
            found.networks.push_back(name);
    };
    std::vector<std::string> of_channels;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find("NCCL INFO") == std::string::npos) continue;
        add(rest_after(line, "Using network "));
        for (const char* begin : {"Selected provider is ", "Selected Provider is "})
            if (const std::string provider = word_after(line, begin); !provider.empty()) found.provider = provider;
        const std::string path = rest_after(line, " via NET/");  // "IB/0/GDRDMA"
        if (path.empty()) continue;
        ++found.over_network;
        if (path.find("/GDRDMA") != std::string::npos) ++found.with_gpu_direct;
        of_channels.push_back(path.substr(0, path.find('/')));
    }
    // The line "Using network" has a plugin's own name for the network; channels name it where that line is missing.
    if (found.networks.empty())
        for (const std::string& name : of_channels) add(name);
    return found;
}

std::string nccl_transport(const NcclTransports& transports) {
    std::string text;
    for (const std::string& network : transports.networks) text += (text.empty() ? "" : ", ") + network;
    if (!transports.provider.empty()) text += " (libfabric " + transports.provider + ")";
    if (transports.over_network == 0) return text;
    if (transports.with_gpu_direct == transports.over_network) return text + " with GPUDirect RDMA";
    return text + (transports.with_gpu_direct == 0 ? " through host memory" : ", partly through host memory");
}

NcclLog::NcclLog() {
    if (std::getenv("NCCL_DEBUG") || std::getenv("NCCL_DEBUG_FILE")) return;
    std::error_code problem;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(problem);
    if (problem) return;
    path_ = (folder / fmt::format("lockstep-nccl-{}.log", ::getpid())).string();
    // Without both there is nothing to read, which read() allows for.
    static_cast<void>(::setenv("NCCL_DEBUG", "INFO", 1));
    static_cast<void>(::setenv("NCCL_DEBUG_FILE", path_.c_str(), 1));
}

NcclLog::~NcclLog() {
    if (path_.empty()) return;
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

NcclTransports NcclLog::read() const {
    const char* given = std::getenv("NCCL_DEBUG_FILE");
    std::ifstream file(path_.empty() && given ? given : path_);
    return read_nccl_log({std::istreambuf_iterator<char>(file), {}});
}

}  // namespace lockstep::doctor
