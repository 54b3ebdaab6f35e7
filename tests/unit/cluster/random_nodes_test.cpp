// What holds on every node: nodes, GPUs, launchers' bindings and numbers of ranks drawn at random.
#define BOOST_TEST_MODULE random_nodes
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <set>

#include "cluster/rank_map.hpp"
#include "cluster/rank_map_text.hpp"

using namespace lockstep;
using namespace lockstep::cluster;

namespace {

struct Draw {
    std::mt19937 engine;
    int operator()(int first, int last) {
        return first + static_cast<int>(engine() % static_cast<unsigned>(last - first + 1));
    }
    bool chance(int percent) { return (*this)(1, 100) <= percent; }
};

Hardware draw_hardware(Draw& draw) {
    Hardware node;
    node.packages = draw(1, 2);
    const int nodes = draw(1, 4), threads = draw.chance(40) ? draw(2, 4) : 1, gap = draw.chance(20) ? 5 : 0;
    const bool unequal = draw.chance(30);
    const int usual = draw(1, 9);
    std::vector<CpuSet> of_package(static_cast<std::size_t>(node.packages));
    int unit = 0;
    for (int package = 0; package < node.packages; ++package)
        for (int n = 0; n < nodes; ++n) {
            NumaNode numa;
            numa.number = (package * nodes + n) * (gap > 0 ? 8 : 1);
            for (int c = unequal ? draw(1, 9) : usual; c > 0; --c) {
                std::vector<int> units;
                for (int t = 0; t < threads; ++t) units.push_back(unit++);
                node.cores.push_back({CpuSet(std::move(units)), package, numa.number, -1});
                numa.units = numa.units | node.cores.back().units;
            }
            unit += gap;
            of_package[static_cast<std::size_t>(package)] = of_package[static_cast<std::size_t>(package)] | numa.units;
            node.numa_nodes.push_back(std::move(numa));
        }
    for (int gpu = draw(0, 9); gpu > 0; --gpu) {
        GpuDevice device;
        device.bus = "0000:" + std::to_string(10 + gpu) + ":00.0";
        const auto last_node = static_cast<int>(node.numa_nodes.size()) - 1;
        if (draw.chance(70))
            device.near = node.numa_nodes[static_cast<std::size_t>(draw(0, last_node))].units;
        else if (draw.chance(70))
            device.near = of_package[static_cast<std::size_t>(draw(0, node.packages - 1))];
        node.gpus.push_back(std::move(device));
    }
    return node;
}

CpuSet draw_units(Draw& draw, const CpuSet& of, int percent) {
    std::vector<int> units;
    for (const int unit : of.units())
        if (draw.chance(percent)) units.push_back(unit);
    return units.empty() ? of : CpuSet(std::move(units));
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_holds_on_every_node) {
    for (unsigned seed = 0; seed < 1500; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Draw draw{std::mt19937(seed)};
            const Hardware node = draw_hardware(draw);
            CpuSet everything;
            for (const Core& core : node.cores) everything = everything | core.units;
            const int ranks = draw(1, 33);
            std::vector<std::string> gpus;
            for (const GpuDevice& gpu : node.gpus) gpus.push_back(gpu.bus);
            const bool bound = draw.chance(30), limited = draw.chance(30);
            const CpuSet of_job = limited ? draw_units(draw, everything, 60) : everything;
            std::vector<RankRequest> requests;
            for (int rank = 0; rank < ranks; ++rank)
                requests.push_back({bound ? draw_units(draw, of_job, 25) : of_job, gpus});

            const RankMap map = map_ranks(node, requests);
            BOOST_TEST_REQUIRE(map.seats.size() == requests.size());
            std::map<int, int> computing;  // ranks on each unit
            std::map<std::string, int> on_gpu;
            std::set<int> threads;
            bool sharing = false;
            for (const RankSeat& seat : map.seats) {
                for (const int unit : seat.cores.units()) ++computing[unit];
                ++on_gpu[seat.gpu];
                threads.insert(seat.threads);
                sharing = sharing || seat.shares_cores;
            }
            int fewest = ranks, most = 0;
            for (std::size_t rank = 0; rank < requests.size(); ++rank) {
                const RankSeat& seat = map.seats[rank];
                BOOST_TEST(seat.threads >= 1);
                BOOST_TEST(!seat.cores.empty());
                BOOST_TEST(!seat.helpers.empty());
                BOOST_TEST((seat.cores - requests[rank].allowed).empty());
                BOOST_TEST((seat.helpers - requests[rank].allowed).empty());
                BOOST_TEST(seat.gpu.empty() == gpus.empty());
                BOOST_TEST(seat.shares_gpu == (!seat.gpu.empty() && on_gpu[seat.gpu] > 1));
                bool shared_unit = false;
                for (const int unit : seat.cores.units()) shared_unit = shared_unit || computing[unit] > 1;
                if (shared_unit) BOOST_TEST(seat.shares_cores);
                if (!seat.shares_cores) BOOST_TEST(seat.threads == seat.cores.size());
                if (seat.helpers != seat.cores)
                    for (const int unit : seat.helpers.units()) BOOST_TEST(computing.count(unit) == 0u);
                BOOST_TEST(!seat_text(seat).empty());
            }
            for (const std::string& bus : gpus) {
                fewest = std::min(fewest, on_gpu[bus]);
                most = std::max(most, on_gpu[bus]);
            }
            if (!gpus.empty()) BOOST_TEST(most - fewest <= 1);  // shared only where ranks are more, and evenly
            // Enough cores for all: nobody shares.
            std::size_t cores = 0;
            for (const Core& core : node.cores) cores += core.units.overlaps(of_job) ? 1 : 0;
            if (!bound && static_cast<std::size_t>(ranks) <= cores) BOOST_TEST(!sharing);
            if (sharing || threads.size() > 1) BOOST_TEST(!map.remarks.empty());
            BOOST_TEST(!draw_node(node, map).empty());
        }
    }
}

BOOST_AUTO_TEST_CASE(the_map_is_the_same_every_time) {
    Draw draw{std::mt19937(7)};
    const Hardware node = draw_hardware(draw);
    const std::vector<RankRequest> requests(5, RankRequest{});
    const RankMap once = map_ranks(node, requests), again = map_ranks(node, requests);
    for (std::size_t rank = 0; rank < requests.size(); ++rank)
        BOOST_TEST(seat_text(once.seats[rank]) == seat_text(again.seats[rank]));
}
