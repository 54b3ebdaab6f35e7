// What is read of topologies, and files that are none.
#define BOOST_TEST_MODULE hardware
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "cluster/processor.hpp"
#include "places.hpp"
#include "unit/cluster/topologies.hpp"

using namespace lockstep;
using namespace lockstep::cluster;
using test::hardware_of;
using test::topology_path;

namespace {

ExitCode code_of(const std::string& path) {
    try {
        static_cast<void>(Topology::from_xml(path));
    } catch (const Error& error) {
        BOOST_TEST(std::string(error.what()).find(path) != std::string::npos, error.what());
        return error.code();
    }
    return ExitCode::done;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_gpu_for_each_pci_device_and_no_management_graphics) {
    const Hardware node = hardware_of("eight_gpus");
    BOOST_TEST(node.packages == 2);
    BOOST_TEST(node.cores.size() == 16u);
    BOOST_TEST_REQUIRE(node.gpus.size() == 8u);
    BOOST_TEST(node.gpus[0].bus == "0000:10:00.0");
    BOOST_TEST(node.gpus[0].name == "Example A1");
    BOOST_TEST(node.gpus[0].near.text() == "0-7");
    BOOST_TEST(node.gpus[7].near.text() == "8-15");
    BOOST_TEST_REQUIRE(node.network.size() == 5u);
    BOOST_TEST(node.network[0].name == "eno1");
    BOOST_TEST(!node.network[0].fabric);
    BOOST_TEST(node.network[1].name == "mlx5_0/ib0");
    BOOST_TEST(node.network[1].fabric);
}

BOOST_AUTO_TEST_CASE(vendors_by_driver_and_by_pci) {
    for (const GpuDevice& gpu : hardware_of("limited_cores").gpus) BOOST_TEST((gpu.vendor == GpuVendor::nvidia));
    const Hardware amd = hardware_of("amd_gpus"), intel = hardware_of("intel_gpus");
    BOOST_TEST(amd.gpus.size() == 4u);
    for (const GpuDevice& gpu : amd.gpus) BOOST_TEST((gpu.vendor == GpuVendor::amd));
    BOOST_TEST(intel.gpus.size() == 6u);  // without the Matrox of the management controller
    for (const GpuDevice& gpu : intel.gpus) BOOST_TEST((gpu.vendor == GpuVendor::intel));
}

BOOST_AUTO_TEST_CASE(numbers_with_gaps_and_memory_without_cores) {
    const Hardware node = hardware_of("power9");
    BOOST_TEST_REQUIRE(node.numa_nodes.size() == 6u);
    std::string with_cores;
    for (const NumaNode& numa : node.numa_nodes)
        if (!numa.units.empty()) with_cores += std::to_string(numa.number) + ":" + numa.units.text() + " ";
    BOOST_TEST(with_cores == "0:0-15 8:88-103 ");
    BOOST_TEST(node.cores[4].units.text() == "88-91");
    BOOST_TEST(node.cores[4].numa_node == 8);
    BOOST_TEST(node.cores[4].package == 1);
    const Hardware grace = hardware_of("memory_of_a_gpu");
    BOOST_TEST(grace.numa_nodes[1].units.empty());
    for (const Core& core : grace.cores) BOOST_TEST(core.numa_node == 0);
}

BOOST_AUTO_TEST_CASE(a_laptop_has_slow_cores_and_no_gpu) {
    const Hardware node = hardware_of("laptop");
    BOOST_TEST(node.gpus.empty());
    BOOST_TEST(node.network.size() == 1u);
    BOOST_TEST(node.cores[0].units.text() == "0-1");
    BOOST_TEST(node.cores[0].kind > node.cores[5].kind);
}

BOOST_AUTO_TEST_CASE(units_without_cores_count_as_cores) {
    BOOST_TEST(hardware_of("virtual_machine").cores.size() == 4u);
}

BOOST_AUTO_TEST_CASE(a_limit_of_the_job_is_read) {
    const Topology node = Topology::from_xml(topology_path("limited_cores"));
    BOOST_TEST(node.allowed().text() == "1-3,9-15");
    BOOST_TEST(!node.is_this_machine());
    BOOST_TEST(read_hardware(node).cores.size() == 16u);  // what is not allowed is still there
}

BOOST_AUTO_TEST_CASE(this_machine_survives_the_way_to_other_ranks) {
    const Topology own = Topology::live(), other = Topology::shared(own.to_xml());
    BOOST_TEST(own.is_this_machine());
    BOOST_TEST(other.is_this_machine());
    BOOST_TEST(own.process_binding().text() == other.process_binding().text());
    BOOST_TEST(read_hardware(own).cores.size() == read_hardware(other).cores.size());
}

BOOST_AUTO_TEST_CASE(files_that_are_no_topology) {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("lockstep-topology-" + std::to_string(::getpid()))).string();
    const auto code_of_text = [&](const std::string& text) {
        std::ofstream(path) << text;
        return code_of(path);
    };
    std::ifstream file(topology_path("eight_gpus"));
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    BOOST_TEST((code_of_text(whole) == ExitCode::done));
    BOOST_TEST((code_of_text("[run]\nname = \"x\"\n") == ExitCode::usage));
    BOOST_TEST((code_of_text("") == ExitCode::usage));
    for (const std::size_t part : {3u, 2u})
        BOOST_TEST((code_of_text(whole.substr(0, whole.size() / part)) == ExitCode::damaged));
    BOOST_TEST(
        (code_of_text("<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n</topology>\n") == ExitCode::damaged));
    // A unit or memory whose number hwloc does not find, or is too large, costs it 512 MiB.
    const std::string unit = "<object type=\"PU\" os_index=\"0\"";
    BOOST_TEST_REQUIRE(whole.find(unit) != std::string::npos);
    const auto with = [&](const std::string& other) {
        std::string text = whole;
        return text.replace(text.find(unit), unit.size(), other);
    };
    for (const char* const name : {"&quot;", "&lt;&gt;", "a&amp;b&#10;"})
        BOOST_TEST((code_of_text(with(unit + " name=\"" + name + "\"")) == ExitCode::done), name);
    for (const std::string& bad :
         std::vector<std::string>{"<object type=\"PU\"", "<object type=\"Nu\"", "<object type=\"no:3\"",
                                  "<object type=\"PU\" os_index=\"4000000000\"", "<object type=\"PU\" os_index=\"-1\"",
                                  "<object type=\"PU\" nodeos_index=\"0\"", "<object type=\"PU\" name=\"os_index=\"0\"",
                                  "<object type=\"PU\" name=\"a&apos;b\" os_index=\"0\"",
                                  "<info name=\">&lt;/info&gt;&lt;object type=&quot;PU&quot;/&gt;\"/>" + unit}) {
        std::ofstream(path) << with(bad);
        BOOST_CHECK_EXCEPTION(static_cast<void>(Topology::from_xml(path)), Error, [&](const Error& error) {
            const std::string said = error.what();
            BOOST_TEST_CONTEXT(bad << ": " << said)
            BOOST_TEST(said.find("hwloc") == std::string::npos);  // refused before hwloc reads it
            return error.code() == ExitCode::damaged;
        });
    }
    std::filesystem::remove(path);
    BOOST_TEST((code_of(path) == ExitCode::usage));
}

BOOST_AUTO_TEST_CASE(processors_have_names_or_numbers) {
    const auto model = [](const std::string& node) {
        return processor_model(tests::source_path("tests/unit/doctor/nodes/" + node + "/proc/cpuinfo"));
    };
    BOOST_TEST(model("infiniband") == "AMD EPYC 7763 64-Core Processor");
    BOOST_TEST(model("roce") == "implementer 0x41, part 0xd4f");
    BOOST_TEST(model("no such folder").empty());
}
