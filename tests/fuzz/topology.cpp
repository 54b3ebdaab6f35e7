// Topologies that lstopo has written, and the map of ranks that follows. The first byte chooses the number of ranks.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "cluster/hardware.hpp"
#include "cluster/rank_map.hpp"
#include "cluster/rank_map_text.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

namespace {

// hwloc does not survive all damaged XML: lockstep topo reads it in a process apart, and what ends that one is no
// finding here.
bool hwloc_survives(const std::string& path) {
    const pid_t child = ::fork();
    fuzz::require(child >= 0, "no process can be started");
    if (child == 0) {
        for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, SIG_DFL);
        const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
        ::alarm(10);
        try {
            cluster::Topology::from_xml(path);
        } catch (const std::exception&) {
        }
        ::_exit(0);
    }
    int status = 0;
    rusage used{}, own{};
    while (::wait4(child, &status, 0, &used) < 0) fuzz::require(errno == EINTR, "a process is lost");
    // The child begins with the pages of this process. Units are numbered below 2^20: 128 KiB for each of their sets.
    constexpr long most_kilobytes = 64 << 10;
    ::getrusage(RUSAGE_SELF, &own);
    fuzz::require(used.ru_maxrss < own.ru_maxrss + most_kilobytes, "hwloc takes more than 64 MiB");
    return status == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string path = fuzz::write_file("node.xml", fuzz::text_of(data + 1, size - 1));
    if (!hwloc_survives(path)) return 0;
    fuzz::judge(size, [&] {
        const cluster::Topology topology = cluster::Topology::from_xml(path);
        const cluster::Hardware hardware = cluster::read_hardware(topology);
        std::vector<cluster::RankRequest> requests(1 + data[0] % 9);
        for (std::size_t i = 0; i < requests.size() && i < hardware.gpus.size(); ++i)
            requests[i].gpus = {hardware.gpus[i].bus};
        for (cluster::RankRequest& request : requests) request.allowed = topology.allowed();
        const cluster::RankMap map = cluster::map_ranks(hardware, requests);
        cluster::draw_node(hardware, map);
        cluster::hardware_text(hardware);
        cluster::rank_table(map).print(TableFormat::text);
    });
    return 0;
}
