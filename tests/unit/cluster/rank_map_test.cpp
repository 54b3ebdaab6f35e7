// Where ranks sit on nodes of many kinds.
#define BOOST_TEST_MODULE rank_map
#include <boost/test/unit_test.hpp>

#include "cluster/rank_map.hpp"
#include "cluster/rank_map_text.hpp"
#include "unit/cluster/topologies.hpp"

using namespace lockstep;
using namespace lockstep::cluster;
using test::hardware_of;

namespace {

std::vector<std::string> gpus_of(const Hardware& node) {
    std::vector<std::string> buses;
    for (const GpuDevice& gpu : node.gpus) buses.push_back(gpu.bus);
    return buses;
}

RankMap map_of(const Hardware& node, int ranks, const std::string& allowed, const std::vector<std::string>& gpus) {
    return map_ranks(node, std::vector<RankRequest>(static_cast<std::size_t>(ranks), {CpuSet::parse(allowed), gpus}));
}

// "0-3 8-11": the cores of all ranks.
std::string cores_of(const RankMap& map) {
    std::string text;
    for (const RankSeat& seat : map.seats) text += (text.empty() ? "" : " ") + seat.cores.text();
    return text;
}
std::string helpers_of(const RankMap& map) {
    std::string text;
    for (const RankSeat& seat : map.seats) text += (text.empty() ? "" : " ") + seat.helpers.text();
    return text;
}
// The GPUs of all ranks, by the last but two parts of their bus ids: "c7 85".
std::string gpus_of(const RankMap& map) {
    std::string text;
    for (const RankSeat& seat : map.seats)
        text += (text.empty() ? "" : " ") + (seat.gpu.empty() ? "-" : seat.gpu.substr(5, 2));
    return text;
}
bool remarks_on(const RankMap& map, const std::string& words) {
    for (const std::string& remark : map.remarks)
        if (remark.find(words) != std::string::npos) return true;
    return false;
}
void check_remark(const RankMap& map, const std::string& words) {
    std::string all;
    for (const std::string& remark : map.remarks) all += "\n  " + remark;
    BOOST_TEST(remarks_on(map, words), "no remark has '" << words << "':" << all);
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_rank_for_each_gpu) {
    const Hardware node = hardware_of("eight_gpus");
    const RankMap map = map_of(node, 8, "", gpus_of(node));
    BOOST_TEST(cores_of(map) == "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15");
    BOOST_TEST(gpus_of(map) == "10 11 18 19 70 71 78 79");
    BOOST_TEST(map.seats[2].network.size() == 1u);
    BOOST_TEST(map.seats[2].network[0] == "mlx5_1/ib1");  // behind the same switch as the GPU
    BOOST_TEST(map.seats[0].threads == 2);
    BOOST_TEST(map.remarks.size() == 0u);
}

BOOST_AUTO_TEST_CASE(fewer_ranks_than_gpus_spread_over_the_node) {
    const Hardware node = hardware_of("eight_gpus");
    const RankMap map = map_of(node, 2, "", gpus_of(node));
    BOOST_TEST(gpus_of(map) == "10 70");
    BOOST_TEST(cores_of(map) == "0-7 8-15");
    check_remark(map, "6 GPUs are idle: 0000:11:00.0");
}

BOOST_AUTO_TEST_CASE(more_ranks_than_gpus_share_with_their_neighbours) {
    const Hardware node = hardware_of("reversed_gpus");
    const RankMap map = map_of(node, 8, "", gpus_of(node));
    BOOST_TEST(gpus_of(map) == "c7 c7 85 85 46 46 07 07");
    BOOST_TEST(cores_of(map) == "0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31");
    BOOST_TEST(map.seats[5].shares_gpu);
    BOOST_TEST(!map.seats[5].shares_cores);
    check_remark(map, "ranks 2, 3 share GPU 0000:85:00.0");
}

BOOST_AUTO_TEST_CASE(locality_decides_where_gpus_are_numbered_backwards) {
    const Hardware node = hardware_of("reversed_gpus");
    const RankMap map = map_of(node, 4, "", gpus_of(node));
    BOOST_TEST(gpus_of(map) == "c7 85 46 07");
    BOOST_TEST(cores_of(map) == "0-7 8-15 16-23 24-31");
    BOOST_TEST(helpers_of(map) == "32-39 40-47 48-55 56-63");
    BOOST_TEST(map.seats[0].network[0] == "hsn1");
    BOOST_TEST(map.seats[2].network[0] == "hsn0");
    BOOST_TEST(map.remarks.size() == 0u);
}

BOOST_AUTO_TEST_CASE(nodes_without_gpus_stay_idle_and_are_named) {
    const Hardware node = hardware_of("every_other_node");
    const RankMap map = map_of(node, 4, "", gpus_of(node));
    BOOST_TEST(gpus_of(map) == "c1 81 41 01");
    BOOST_TEST(cores_of(map) == "4-7 12-15 20-23 28-31");
    check_remark(map, "no rank computes on NUMA nodes 0, 2, 4, 6");
    // Without GPUs the same ranks take the whole node.
    BOOST_TEST(cores_of(map_of(node, 4, "", {})) == "0-7 8-15 16-23 24-31");
    BOOST_TEST(cores_of(map_of(node, 8, "", {})) == "0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31");
}

BOOST_AUTO_TEST_CASE(gpus_on_one_package) {
    const Hardware node = hardware_of("gpus_on_one_package");
    const RankMap map = map_of(node, 4, "", gpus_of(node));
    BOOST_TEST(cores_of(map) == "0-1 2-3 4-5 6-7");
    BOOST_TEST(helpers_of(map) == "16-17 18-19 20-21 22-23");
    BOOST_TEST(map.seats[3].network[0] == "mlx5_0/ib0");
    check_remark(map, "no rank computes on NUMA node 1");
    // Where the cores at the GPUs do not suffice, the others are taken before any is shared.
    const RankMap many = map_of(node, 12, "", gpus_of(node));
    for (const RankSeat& seat : many.seats) {
        BOOST_TEST(!seat.shares_cores);
        BOOST_TEST(seat.threads == 1);
    }
    check_remark(many, "has no core near its GPU");
}

BOOST_AUTO_TEST_CASE(gpus_at_caches_of_one_node) {
    const Hardware node = hardware_of("gpus_at_caches");
    const RankMap map = map_of(node, 2, "", gpus_of(node));
    BOOST_TEST(gpus_of(map) == "61 41");
    BOOST_TEST(cores_of(map) == "0-3 4-7");
}

BOOST_AUTO_TEST_CASE(four_threads_a_core_and_gaps) {
    const Hardware node = hardware_of("power9");
    const RankMap map = map_of(node, 4, "", gpus_of(node));
    BOOST_TEST(cores_of(map) == "0,4 8,12 88,92 96,100");
    BOOST_TEST(helpers_of(map) == "1-3,5-7 9-11,13-15 89-91,93-95 97-99,101-103");
    BOOST_TEST(list_text(map.seats[2].numa_nodes) == "8");
    BOOST_TEST(map.seats[2].network[0] == "mlx5_1");
    BOOST_TEST(map.remarks.size() == 0u);
}

BOOST_AUTO_TEST_CASE(other_vendors_gpus_are_seen_and_not_used) {
    const Hardware amd = hardware_of("amd_gpus");
    const RankMap map = map_of(amd, 4, "", {});
    BOOST_TEST(gpus_of(map) == "- - - -");
    check_remark(map, "4 AMD GPUs are unused");
    check_remark(map_of(hardware_of("intel_gpus"), 2, "", {}), "6 Intel GPUs are unused");
}

BOOST_AUTO_TEST_CASE(a_limit_of_the_job_is_kept_and_said) {
    const Hardware node = hardware_of("limited_cores");
    const RankMap map = map_of(node, 2, "1-3,9-15", gpus_of(node));
    BOOST_TEST(cores_of(map) == "1-3 9-15");
    check_remark(map, "rank 0 has 3 cores, rank 1 has 7 cores");
    // On CPUs the slowest rank counts: 5 cores each rather than 3 and 7.
    const RankMap on_cpu = map_of(node, 2, "1-3,9-15", {});
    BOOST_TEST(cores_of(on_cpu) == "1-3,9-10 11-15");
    check_remark(on_cpu, "rank 0 spans several NUMA nodes (0, 1)");
}

BOOST_AUTO_TEST_CASE(what_a_division_leaves_over_goes_to_helpers) {
    const Hardware node = hardware_of("limited_cores");
    const RankMap map = map_of(node, 2, "0-6,8-15", {});
    BOOST_TEST(cores_of(map) == "0-6 8-14");
    BOOST_TEST(helpers_of(map) == "0-6 15");
    check_remark(map, "1 of 15 cores allowed is left for helper threads");
}

BOOST_AUTO_TEST_CASE(fewer_ranks_than_numa_nodes) {
    const Hardware three = hardware_of("three_nodes");
    BOOST_TEST(cores_of(map_of(three, 1, "", {})) == "0-11");
    BOOST_TEST(cores_of(map_of(three, 2, "", {})) == "0-5 6-11");  // not 4 and 8
    BOOST_TEST(cores_of(map_of(three, 4, "", {})) == "0-2 3-5 6-8 9-11");
    BOOST_TEST(cores_of(map_of(hardware_of("every_other_node"), 2, "", {})) == "0-15 16-31");
}

BOOST_AUTO_TEST_CASE(a_launcher_that_bound_is_followed) {
    const Hardware node = hardware_of("eight_gpus");
    std::vector<RankRequest> requests;
    for (const char* bound : {"12-15", "8-11", "4-7", "0-3"}) requests.push_back({CpuSet::parse(bound), gpus_of(node)});
    const RankMap map = map_ranks(node, requests);
    BOOST_TEST(cores_of(map) == "12-15 8-11 4-7 0-3");
    for (const RankSeat& seat : map.seats) {
        BOOST_TEST(!seat.gpu_is_far);
        BOOST_TEST(!seat.shares_gpu);
    }
    // By package: each half is divided.
    requests.clear();
    for (const char* bound : {"0-7", "0-7", "0-7", "0-7", "8-15", "8-15", "8-15", "8-15"})
        requests.push_back({CpuSet::parse(bound), gpus_of(node)});
    const RankMap halves = map_ranks(node, requests);
    BOOST_TEST(cores_of(halves) == "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15");
    BOOST_TEST(gpus_of(halves) == "10 11 18 19 70 71 78 79");
}

BOOST_AUTO_TEST_CASE(a_launcher_that_bound_away_from_the_gpus) {
    const Hardware node = hardware_of("gpus_on_one_package");
    const RankMap map =
        map_ranks(node, {{CpuSet::parse("0-7"), gpus_of(node)}, {CpuSet::parse("8-15"), gpus_of(node)}});
    BOOST_TEST(!map.seats[0].gpu_is_far);
    BOOST_TEST(map.seats[1].gpu_is_far);
    BOOST_TEST(cores_of(map) == "0-7 8-15");
    check_remark(map, "rank 1 has no core near its GPU 0000:31:00.0 (cores 8-15, GPU on NUMA node 0)");
}

BOOST_AUTO_TEST_CASE(a_gpu_that_was_given_is_taken) {
    const Hardware node = hardware_of("eight_gpus");
    std::vector<RankRequest> requests;
    for (const char* bus : {"0000:79:00.0", "0000:10:00.0", "0000:70:00.0"}) requests.push_back({CpuSet(), {bus}});
    const RankMap map = map_ranks(node, requests);
    BOOST_TEST(gpus_of(map) == "79 10 70");
    BOOST_TEST(cores_of(map) == "8-11 0-7 12-15");  // rank 1 has its package for itself
    check_remark(map, "ranks 0, 2 have 4 cores, rank 1 has 8 cores");
}

BOOST_AUTO_TEST_CASE(a_gpu_that_the_system_does_not_show) {
    const Hardware node = hardware_of("laptop");
    const RankMap map = map_of(node, 2, "", {"0000:02:00.0", "0000:01:00.0"});
    BOOST_TEST(map.seats[0].gpu == "0000:01:00.0");
    BOOST_TEST(map.seats[1].gpu == "0000:02:00.0");
    check_remark(map, "unknown which cores are near the GPUs");
}

BOOST_AUTO_TEST_CASE(ranks_that_share_cores_have_one_thread_and_all_of_them) {
    const Hardware node = hardware_of("three_nodes");
    const RankMap map = map_of(node, 8, "0-1", {});
    for (const RankSeat& seat : map.seats) {
        BOOST_TEST(seat.cores.text() == "0-1");
        BOOST_TEST(seat.helpers.text() == "0-1");
        BOOST_TEST(seat.threads == 1);
        BOOST_TEST(seat.shares_cores);
    }
    check_remark(map, "ranks 0-7 share 2 cores");
    // On several NUMA nodes each keeps to one.
    const RankMap spread = map_of(node, 24, "", {});
    BOOST_TEST(spread.seats[0].cores.text() == "0-3");
    BOOST_TEST(spread.seats[23].cores.text() == "8-11");
}

BOOST_AUTO_TEST_CASE(one_core_a_rank_on_a_large_node_is_remarked) {
    const Hardware node = hardware_of("eight_gpus");
    const RankMap map = map_ranks(node, {{CpuSet({0}), {}}, {CpuSet({8}), {}}});
    BOOST_TEST(cores_of(map) == "0 8");
    check_remark(map, "every rank is confined to 1 core, though the node has 16 cores");
    check_remark(map, "--cpus-per-task=8");
}

BOOST_AUTO_TEST_CASE(launchers_sets_that_overlap_in_part) {
    const Hardware node = hardware_of("eight_gpus");
    const RankMap map =
        map_ranks(node, {{CpuSet::parse("0-7"), {}}, {CpuSet::parse("4-11"), {}}, {CpuSet::parse("4-7"), {}}});
    CpuSet all;
    for (const RankSeat& seat : map.seats) {
        BOOST_TEST(!seat.cores.overlaps(all));
        BOOST_TEST(seat.threads >= 4);
        all = all | seat.cores;
    }
    BOOST_TEST((map.seats[2].cores - CpuSet::parse("4-7")).empty());
}

BOOST_AUTO_TEST_CASE(hybrid_processors) {
    const Hardware node = hardware_of("laptop");
    const RankMap map = map_of(node, 1, "", {});
    BOOST_TEST(cores_of(map) == "0,2,4-7");
    BOOST_TEST(helpers_of(map) == "1,3");
    check_remark(map, "cores 4-7 are slower than cores 0,2");
    BOOST_TEST(map_of(node, 1, "0,2", {}).remarks.empty());
}

BOOST_AUTO_TEST_CASE(the_table_and_the_drawing_show_the_map) {
    const Hardware node = hardware_of("power9");
    const RankMap map = map_of(node, 4, "", gpus_of(node));
    const Table table = rank_table(map);
    BOOST_TEST(table.rows().size() == 4u);
    BOOST_TEST(std::get<std::string>(table.rows()[2][2]) == "88,92");
    const std::string drawing = draw_node(node, map);
    for (const char* part : {"2 packages, 2 NUMA nodes, 8 cores (32 hardware threads), 4 GPUs, 2 network cards",
                             "cores 88-100:4    2 2 3 3", "GPU 0035:04:00.0 NVIDIA GPU 1db5: rank 3",
                             "NUMA node 252, 16.00 GiB, without cores"})
        BOOST_TEST(drawing.find(part) != std::string::npos, part << " is not in\n" << drawing);
    BOOST_TEST(seat_text(map.seats[3]) ==
               "cores 96,100 (NUMA node 8), 2 threads, helpers on 97-99,101-103, GPU 0035:04:00.0, network mlx5_1");
}

BOOST_AUTO_TEST_CASE(nodes_that_differ_are_named_by_kind) {
    const std::string four = "4 GPUs", three = "3 GPUs";
    BOOST_TEST(hardware_differences({}) == "");
    BOOST_TEST(hardware_differences({{"a", four}, {"b", four}}) == "");
    BOOST_TEST(hardware_differences({{"a", four}, {"b", three}, {"c", four}, {"d", three}, {"e", three}}) ==
               "a and 1 more node have 4 GPUs; b and 2 more nodes have 3 GPUs");
    std::vector<NodeHardware> all_different;
    for (int i = 0; i < 1000; ++i) all_different.push_back({"n" + std::to_string(i), std::to_string(i) + " GPUs"});
    BOOST_TEST(hardware_differences(all_different) ==
               "n0 has 0 GPUs; n1 has 1 GPUs; n2 has 2 GPUs; n3 has 3 GPUs; 996 more kinds of node");
}
