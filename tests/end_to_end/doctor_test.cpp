// lockstep doctor as a user calls it. /proc and /sys are recorded ones, so that this machine's state does not matter.
#define BOOST_TEST_MODULE doctor
#include <sstream>

#include "end_to_end/command.hpp"

using namespace lockstep::tests;

namespace {

std::string with_node(const std::string& name) {
    return "LOCKSTEP_SYS_ROOT=" + source_path("tests/unit/doctor/nodes/" + name);
}

std::vector<std::string> ids_of(const Json& report) {
    std::vector<std::string> ids;
    for (const Json& finding : report["findings"]) ids.push_back(finding["id"].get<std::string>());
    return ids;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(doctor)

BOOST_AUTO_TEST_CASE(nodes_in_order_on_several_ranks) {
    const Workplace place;
    for (const int ranks : {1, 2, 4}) {
        BOOST_TEST_CONTEXT(ranks << " ranks") {
            const Result text = run("doctor --strict --device cpu", place.path(), ranks, with_node("ethernet"));
            check_exit(text, 0);
            BOOST_TEST(text.error == "", text);
            BOOST_TEST(contains(text.out, "\nno problems found ("), text);
            BOOST_TEST(contains(text.out, "fastest port: Ethernet eno1, 10 Gb/s"), text);
            BOOST_TEST(contains(text.out, ranks > 1 ? "GB/s" : "a single rank has no links"), text);
            std::istringstream lines(text.out);
            for (std::string line; std::getline(lines, line);) BOOST_TEST(line.size() <= 100u, line);
            const Result result = run("doctor --device cpu --format json", place.path(), ranks, with_node("ethernet"));
            check_exit(result, 0);
            const Json report = Json::parse(result.out);
            BOOST_TEST(report["ranks"] == ranks);
            BOOST_TEST(report["nodes"].size() == 1u);
            BOOST_TEST(report["findings"].empty());
            BOOST_TEST(report["links"].empty() == (ranks == 1));
            for (const Json& rate : report["rates"]) {
                BOOST_TEST(rate["latency_seconds"].get<double>() > 0);
                BOOST_TEST(rate["bytes_per_second"].get<double>() > 0);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(findings_and_their_exit_codes) {
    const Workplace place;
    const Result lenient = run("doctor --device cpu", place.path(), 2, with_node("infiniband-neglected"));
    check_exit(lenient, 0);
    for (const char* part : {"governor on ", "powersave", "locked-memory on ", "huge-pages on ", "swap on ",
                             "do: ", "see: https://", " findings\n"})
        BOOST_TEST(contains(lenient.out, part), part << " is not in " << lenient);
    const Result strict =
        run("doctor --device cpu --strict --format json", place.path(), 2, with_node("infiniband-neglected"));
    check_exit(strict, 6);
    const std::vector<std::string> wanted = {"locked-memory", "huge-pages", "governor",
                                             "clock-limit",   "low-clock",  "swap"};
    BOOST_TEST(ids_of(Json::parse(strict.out)) == wanted, boost::test_tools::per_element());
    const Result spins =
        run("doctor --device cpu --strict", place.path(), 0, with_node("ethernet") + " OMP_WAIT_POLICY=active");
    check_exit(spins, 6);
    BOOST_TEST(contains(spins.out, "OMP_WAIT_POLICY=active"), spins);
}

BOOST_AUTO_TEST_CASE(a_list_of_nodes) {
    const Workplace place;
    write_file(place.path() / "nodes", "# a job's nodes\n" + std::string("absent1 slots=2\nabsent2\n\n"));
    const Result result =
        run("doctor --device cpu --format json --nodes-file nodes", place.path(), 2, with_node("ethernet"));
    check_exit(result, 0);
    const Json report = Json::parse(result.out);
    const std::vector<std::string> wanted = {"no-rank", "not-listed"};
    BOOST_TEST(ids_of(report) == wanted, boost::test_tools::per_element());
    BOOST_TEST((report["findings"][0]["hosts"] == Json{"absent1", "absent2"}));
    write_file(place.path() / "nodes", report["nodes"][0]["host"].get<std::string>() + "\n");
    check_exit(run("doctor --device cpu --strict --nodes-file nodes", place.path(), 2, with_node("ethernet")), 0);
}

BOOST_AUTO_TEST_CASE(wrong_input) {
    const Workplace place;
    write_file(place.path() / "empty", "# nothing\n");
    for (const auto& [arguments, part] :
         std::vector<std::pair<std::string, std::string>>{{"--nodes-file empty", "names no host"},
                                                          {"--nodes-file ''", "--nodes-file: its value is empty"},
                                                          {"--nodes-file /bin/sh", "does not begin with a host"},
                                                          {"--nodes-file absent", "absent cannot be read"},
                                                          {"--format xml", "xml"},
                                                          {"--device gpu", "cuda"},
                                                          {"--nodes nodes", "doctor"}}) {
        const Result result = run("doctor " + arguments, place.path(), 2);
        check_exit(result, 2);
        BOOST_TEST(contains(result.error, part), result);
        BOOST_TEST(count_of(result.error, "\n") == 1u, result);
    }
}

BOOST_AUTO_TEST_CASE(before_the_first_step) {
    const Workplace place;
    const std::string few = " --device cpu --set schedule.steps=2 --set schedule.warmup=1";
    const Result full =
        run("train run.toml --set run.self_test=full" + few, place.path(), 2, with_node("infiniband-neglected"));
    check_exit(full, 0);
    BOOST_TEST(contains(full.error, "links "), full);
    BOOST_TEST(contains(full.error, "governor on "), full);
    BOOST_TEST(contains(full.error, "doctor: 6 findings"), full);
    BOOST_TEST(contains(full.error, "self-test in "), full);
    BOOST_TEST(contains(read_file(run_folder(place.path()) / "run.toml"), "self_test = \"full\""));
    const Result plain = run("train run.toml --set run.self_test=true --set run.name=other" + few, place.path(), 2,
                             with_node("infiniband-neglected"));
    check_exit(plain, 0);
    BOOST_TEST(!contains(plain.error, "doctor"), plain);
    BOOST_TEST(contains(read_file(run_folder(place.path(), "other") / "run.toml"), "self_test = true"));
}

BOOST_AUTO_TEST_CASE(help_and_completion_know_it) {
    const Workplace place;
    const Result help = run("help doctor", place.path());
    check_exit(help, 0);
    for (const char* part : {"--nodes-file", "--strict", "Example: mpirun", "docs/doctor.md"})
        BOOST_TEST(contains(help.out, part), help);
    BOOST_TEST(contains(run("help --completion bash", place.path()).out, "doctor) options=\""));
    BOOST_TEST(contains(run("help --man", place.path()).out, "doctor"));
}

BOOST_AUTO_TEST_SUITE_END()
