// Topologies that lstopo has written, and the map of ranks that follows. The first byte chooses the number of ranks.
#include "cluster/hardware.hpp"
#include "cluster/rank_map.hpp"
#include "cluster/rank_map_text.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string path = fuzz::write_file("node.xml", fuzz::text_of(data + 1, size - 1));
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
