// Energy by recorded counters: what counts, what is within something else, and counters that begin again.
#define BOOST_TEST_MODULE energy
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "device/energy.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using trace::test::TemporaryFolder;

namespace {

struct Machine {
    void write(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = folder / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    void zone(const std::string& name, const std::string& what, const std::string& microjoules) const {
        const std::string path = "sys/class/powercap/" + name;
        write(path + "/name", what);
        write(path + "/energy_uj", microjoules);
        write(path + "/max_energy_range_uj", "1000000000");
    }
    EnergyMeter meter() const { return EnergyMeter({}, folder.string()); }
    TemporaryFolder folder{"energy"};
};

}  // namespace

BOOST_AUTO_TEST_CASE(packages_and_memory_count_once) {
    const Machine machine;
    machine.zone("intel-rapl:0", "package-0", "5000000");
    machine.zone("intel-rapl:0:0", "core", "4000000");
    machine.zone("intel-rapl:0:1", "dram", "1000000");
    machine.zone("intel-rapl:1", "package-1", "999000000");
    machine.zone("intel-rapl:2", "psys", "7000000");
    machine.zone("dtpm", "package-9", "7000000");
    EnergyMeter meter = machine.meter();
    BOOST_TEST(meter.works());
    BOOST_TEST(meter.about() == "RAPL (package-0, dram, package-1)");
    BOOST_TEST(meter.take() == 0.0);
    machine.zone("intel-rapl:0", "package-0", "7500000");
    machine.zone("intel-rapl:0:0", "core", "6000000");
    machine.zone("intel-rapl:0:1", "dram", "1250000");
    machine.zone("intel-rapl:1", "package-1", "1000000");  // began again at 1,000 J: 1 + 1
    machine.zone("intel-rapl:2", "psys", "9000000");
    BOOST_TEST(std::abs(meter.take() - (2.5 + 0.25 + 2)) < 1e-9);
    BOOST_TEST(meter.take() == 0.0);
    // One that cannot be read for a while is caught up with.
    machine.zone("intel-rapl:0", "package-0", "");
    BOOST_TEST(meter.take() == 0.0);
    machine.zone("intel-rapl:0", "package-0", "8500000");
    BOOST_TEST(std::abs(meter.take() - 1) < 1e-9);
}

BOOST_AUTO_TEST_CASE(the_whole_node_is_taken_alone) {
    const Machine machine;
    machine.zone("intel-rapl:0", "package-0", "5000000");
    machine.write("sys/cray/pm_counters/energy", "184000 J 1700000000000000 us");
    EnergyMeter meter = machine.meter();
    BOOST_TEST(meter.about() == "Cray's pm_counters (whole nodes)");
    machine.zone("intel-rapl:0", "package-0", "9000000");
    machine.write("sys/cray/pm_counters/energy", "184250 J 1700000001000000 us");
    BOOST_TEST(meter.take() == 250.0);
    machine.write("sys/cray/pm_counters/energy", "10 J 1700000002000000 us");  // the node was started anew
    BOOST_TEST(meter.take() == 0.0);
    machine.write("sys/cray/pm_counters/energy", "15 J 1700000003000000 us");
    BOOST_TEST(meter.take() == 5.0);
}

BOOST_AUTO_TEST_CASE(no_counters_are_said) {
    const Machine machine;
    EnergyMeter none = machine.meter();
    BOOST_TEST(!none.works());
    BOOST_TEST(none.about() == "no counters found");
    BOOST_TEST(none.take() == 0.0);
    machine.zone("intel-rapl:0", "package-0", "");  // as for users where only root may read it
    BOOST_TEST(machine.meter().about().find("intel-rapl:0/energy_uj is not readable by users") != std::string::npos);
}
