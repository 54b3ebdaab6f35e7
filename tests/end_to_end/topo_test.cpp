// lockstep topo as a user calls it, and training on the cores that a launcher left.
#define BOOST_TEST_MODULE topo
#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

std::string xml(const std::string& name) {
    return source_path("tests/unit/cluster/topologies/" + name + ".xml");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(topo)

BOOST_AUTO_TEST_CASE(every_node_is_shown_in_every_format) {
    const Workplace place;
    for (const std::string& name : names_in(source_path("tests/unit/cluster/topologies"))) {
        BOOST_TEST_CONTEXT(name) {
            const std::string file = source_path("tests/unit/cluster/topologies/" + name);
            const Result text = run("topo --xml " + file, place.path());
            BOOST_TEST(text.exit_code == 0, text);
            BOOST_TEST(text.error == "");
            for (const char* part : {"rank  NUMA nodes", "package 0", "|  NUMA node 0"})
                BOOST_TEST(contains(text.out, part));
            const Result json = run("topo --format json --ranks-per-node 3 --xml " + file, place.path());
            BOOST_TEST(json.exit_code == 0, json);
            const Json parsed = Json::parse(json.out);
            BOOST_TEST(parsed["ranks"].size() == 3u);
            BOOST_TEST(parsed["ranks"][2]["threads"].get<int>() >= 1);
            const Result csv = run("topo --format csv --xml " + file, place.path());
            BOOST_TEST(csv.out.rfind("rank,numa_nodes,cores,threads,helpers,gpu,network\n", 0) == 0u);
            const Result markdown = run("topo --format markdown --xml " + file, place.path());
            BOOST_TEST(contains(markdown.out, "| rank | NUMA nodes |"));
        }
    }
}

BOOST_AUTO_TEST_CASE(the_table_and_the_remarks) {
    const Workplace place;
    const Result result = run("topo --ranks-per-node 2 --xml " + xml("eight_gpus"), place.path());
    BOOST_TEST(contains(result.out, "8-15         8  8-15     0000:70:00.0  mlx5_2/ib2"), result);
    BOOST_TEST(contains(result.out, "remarks:\n  6 GPUs are idle"), result);
    const Json json = Json::parse(run("topo --format json --xml " + xml("reversed_gpus"), place.path()).out);
    BOOST_TEST(json["ranks"].size() == 4u);  // one for each GPU
    BOOST_TEST(json["ranks"][0]["gpu"] == "0000:c7:00.0");
    BOOST_TEST(json["gpus"][0]["usable"] == true);
    const Json on_cpu =
        Json::parse(run("topo --device cpu --format json --xml " + xml("every_other_node"), place.path()).out);
    BOOST_TEST(on_cpu["ranks"].size() == 8u);  // one for each NUMA node
    BOOST_TEST(on_cpu["ranks"][0]["gpu"].is_null());
}

// hwloc 2.9 ends with a segmentation fault here; other versions read it or refuse it.
BOOST_AUTO_TEST_CASE(a_file_that_hwloc_does_not_survive) {
    const Workplace place;
    write_file(place.path() / "node.xml", R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2"/>
 <object type="Machine" os_index="0" cpuset="0x1" complete_cpuset="0x1" allowed_cpuset="0x1" nodeset="0x1"
         complete_nodeset="0x1" allowed_nodeset="0x1" gp_index="1">
  <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="3"/>
 </object>
</topology>
)");
    const Result result = run("topo --xml node.xml", place.path());
    BOOST_TEST((result.exit_code == 0 || result.exit_code == 2 || result.exit_code == 3), result);
    BOOST_TEST(count_of(result.error, "error: ") == (result.exit_code == 0 ? 0u : 1u), result);
    BOOST_TEST(!contains(result.error, "backtrace"), result);
}

BOOST_AUTO_TEST_CASE(this_machine_and_one_answer_for_all_ranks) {
    const Workplace place;
    const Result alone = run("topo --format csv --device cpu --ranks-per-node 1", place.path());
    BOOST_TEST(alone.exit_code == 0, alone);
    const Result ranks = run("topo --format csv --device cpu --ranks-per-node 1", place.path(), 3);
    BOOST_TEST(ranks.exit_code == 0, ranks);
    BOOST_TEST(ranks.out == alone.out);
    const Json one = Json::parse(
        Process("taskset -c 1 " + command_line("topo --device cpu --format json --ranks-per-node 1"), place.path())
            .wait()
            .out);
    BOOST_TEST(one["ranks"][0]["cores"].dump() == "[1]");
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_said_in_one_sentence) {
    const Workplace place;
    write_file(place.path() / "other.xml", "<html></html>\n");
    const std::string whole = read_file(xml("eight_gpus"));
    write_file(place.path() / "half.xml", whole.substr(0, whole.size() / 2));
    const std::vector<std::pair<std::string, int>> cases = {{"topo --xml none.xml", 2},
                                                            {"topo --xml other.xml", 2},
                                                            {"topo --xml half.xml", 3},
                                                            {"topo --ranks-per-node 0", 2},
                                                            {"topo --device gpu", 2},
                                                            {"topo --format html", 2},
                                                            {"topo --device cuda --xml " + xml("laptop"), 2}};
    for (const auto& [arguments, code] : cases) {
        const Result result = run(arguments, place.path());
        BOOST_TEST(result.exit_code == code, arguments << ": " << result);
        BOOST_TEST(result.out == "");
        BOOST_TEST(count_of(result.error, "\n") == 1u, result);
    }
    const Result help = run("topo --help", place.path());
    BOOST_TEST(contains(help.out, "lstopo --force node.xml"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(live_binding)

BOOST_AUTO_TEST_CASE(training_stays_on_the_cores_that_a_launcher_left) {
    const Workplace place;
    const Result result =
        Process(mpi_launcher() + " -np 2 taskset -c 1 " + lockstep_program + " train run.toml --device cpu --verbose",
                place.path())
            .wait();
    BOOST_TEST(result.exit_code == 0, result);
    BOOST_TEST(contains(result.error, "rank 1 on "));
    BOOST_TEST(contains(result.error, ": core 1 shared with other ranks"), result);
    BOOST_TEST(contains(result.error, "ranks 0, 1 share 1 core"), result);
    const lockstep::hdf5::File trace = lockstep::hdf5::File::open((run_folder(place.path()) / "trace-001.h5").string());
    BOOST_TEST(trace.exists("ranks"));
}

BOOST_AUTO_TEST_CASE(the_binding_can_be_switched_off) {
    const Workplace place;
    const Result result = run("train run.toml --device cpu --set run.bind=false", place.path(), 2);
    BOOST_TEST(result.exit_code == 0, result);
    BOOST_TEST(contains(result.error, "binding: none (run.bind = false)"), result);
    BOOST_TEST(contains(read_file(run_folder(place.path()) / "run.toml"), "bind = false"));
}

BOOST_AUTO_TEST_CASE(the_number_of_threads_can_be_given) {
    const Workplace place;
    const Result result = run("train run.toml --device cpu --verbose", place.path(), 1, "OMP_NUM_THREADS=3");
    BOOST_TEST(result.exit_code == 0, result);
    BOOST_TEST(contains(result.error, "3 threads"), result);
    BOOST_TEST(contains(result.error, "(OMP_NUM_THREADS)"), result);
}

BOOST_AUTO_TEST_SUITE_END()
