// After the ranks took their seats, the system says what the map says: of the process, of each compute thread, of a
// helper thread.
#define BOOST_TEST_NO_MAIN
#define BOOST_TEST_MODULE binding
#include <hwloc.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "cluster/binding.hpp"
#include "cluster/placement.hpp"
#include "device/parallel.hpp"
#include "places.hpp"

using namespace lockstep;
using namespace lockstep::cluster;

namespace {

Session* session = nullptr;

// Of the calling thread, by a topology of the test's own.
std::string binding_of_thread() {
    static const Topology topology = Topology::live();
    const auto units = bitmap_of({});
    if (hwloc_get_cpubind(topology.get(), units.get(), HWLOC_CPUBIND_THREAD) != 0) return "unknown";
    return cpu_set_of(units.get()).text();
}

std::string binding_of_new_thread(bool helper) {
    std::string text;
    std::thread([&] {
        if (helper) bind_helper_thread();
        text = binding_of_thread();
    }).join();
    return text;
}

std::vector<std::string> bindings_of_team() {
    std::vector<std::string> texts(static_cast<std::size_t>(threads()));
    parallel_for(threads(), 1, [&](std::int64_t, std::int64_t, int thread) {
        texts[static_cast<std::size_t>(thread)] = binding_of_thread();
    });
    return texts;
}

// Collective. A launcher may have given every rank the same cores (MPICH), or each its own (Open MPI, up to 2 ranks).
CpuSet allowed_to_any() {
    std::vector<std::int64_t> is_allowed(static_cast<std::size_t>(session->topology()->allowed().units().back()) + 1);
    for (const int unit : session->allowed().units()) is_allowed[static_cast<std::size_t>(unit)] = 1;
    session->make_world_group()->all_reduce(is_allowed, Reduce::maximum);
    std::vector<int> units;
    for (std::size_t unit = 0; unit < is_allowed.size(); ++unit)
        if (is_allowed[unit] != 0) units.push_back(static_cast<int>(unit));
    return CpuSet(units);
}

void rebind(Placement& placement, const CpuSet& cores, const CpuSet& helpers, int count, bool on_gpu) {
    RankSeat& seat = placement.seat();
    seat.cores = cores;
    seat.helpers = helpers;
    seat.threads = count;
    take_seat(placement, on_gpu, true);
}

}  // namespace

BOOST_AUTO_TEST_CASE(helpers_go_nowhere_before_a_binding) {
    const std::string before = binding_of_thread();
    BOOST_TEST(binding_of_new_thread(true) == before);
}

BOOST_AUTO_TEST_CASE(ranks_sit_where_the_map_says) {
    unsetenv("OMP_NUM_THREADS");
    Placement placement = place_ranks(*session, {});
    BOOST_TEST_REQUIRE(static_cast<int>(placement.map.seats.size()) == session->size());
    take_seat(placement, false, true);
    const RankSeat& seat = placement.seat();
    BOOST_TEST((seat.cores - session->allowed()).empty());
    BOOST_TEST(threads() == seat.threads);
    BOOST_TEST(placement.topology->process_binding().text() == seat.cores.text());
    const std::vector<std::string> team = bindings_of_team();
    BOOST_TEST(team[0] == seat.cores.text());
    for (std::size_t thread = 1; thread < team.size(); ++thread)
        BOOST_TEST(team[thread] == std::to_string(seat.cores.units()[thread]));
    BOOST_TEST(binding_of_new_thread(true) == seat.helpers.text());
    BOOST_TEST(binding_of_new_thread(false) == seat.cores.text());

    // What others compute on is not this rank's, unless it is said.
    for (std::size_t other = 0; other < placement.map.seats.size(); ++other)
        if (static_cast<int>(other) != placement.local_rank && !seat.shares_cores)
            BOOST_TEST(!placement.map.seats[other].cores.overlaps(seat.cores));
    BOOST_TEST(seat.shares_cores == (session->size() > allowed_to_any().size()));
}

BOOST_AUTO_TEST_CASE(compute_threads_keep_their_cores_and_later_ones_get_them) {
    if (session->allowed().size() < 2) return;
    Placement placement = place_ranks(*session, {});
    const CpuSet two({session->allowed().units()[0], session->allowed().units()[1]});
    placement.seat().shares_cores = false;
    rebind(placement, two, two, 2, false);
    const std::string second = std::to_string(two.units()[1]);
    BOOST_TEST(bindings_of_team()[1] == second);
    // A smaller team of a library ends the other thread; the next one is bound as well.
    set_threads(1);
    parallel_for(1, 1, [](std::int64_t, std::int64_t, int) {});
    set_threads(2);
    BOOST_TEST(bindings_of_team()[1] == second);
    // With another number of threads than cores nobody is tied to one.
    rebind(placement, two, two, 3, false);
    for (const std::string& binding : bindings_of_team()) BOOST_TEST(binding == two.text());
}

BOOST_AUTO_TEST_CASE(threads_beside_a_gpu_may_use_the_helpers_cores_too) {
    if (session->allowed().size() < 2) return;
    Placement placement = place_ranks(*session, {});
    const CpuSet first({session->allowed().units()[0]}), second({session->allowed().units()[1]});
    placement.seat().shares_cores = false;
    rebind(placement, first, second, 1, true);
    BOOST_TEST(binding_of_thread() == (first | second).text());
    BOOST_TEST(binding_of_new_thread(false) == (first | second).text());
    BOOST_TEST(binding_of_new_thread(true) == second.text());
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_can_be_given) {
    setenv("OMP_NUM_THREADS", "3,2", 1);
    Placement placement = place_ranks(*session, {});
    BOOST_TEST(placement.seat().threads == 3);
    BOOST_TEST(placement.threads_given);
    for (const char* wrong : {"", "0", "-1", "many", "2x"}) {
        setenv("OMP_NUM_THREADS", wrong, 1);
        BOOST_TEST(!place_ranks(*session, {}).threads_given);
    }
    unsetenv("OMP_NUM_THREADS");
}

BOOST_AUTO_TEST_CASE(a_topology_of_another_node_binds_nothing) {
    const std::string before = binding_of_thread();
    const std::string path = tests::source_path("tests/unit/cluster/topologies/eight_gpus.xml");
    RankSeat seat;
    seat.cores = seat.helpers = CpuSet({0});
    bind_process(std::make_shared<const Topology>(Topology::from_xml(path)), seat, false);
    BOOST_TEST(binding_of_thread() == before);
}

int main(int argc, char** argv) {
    Session own(&argc, &argv);
    session = &own;
    return own.run([&] { return boost::unit_test::unit_test_main([] { return true; }, argc, argv); });
}
