// The draft of an artifact description says what the traces say, and warns where nobody could repeat the runs.
#define BOOST_TEST_MODULE artifact
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "unit/analysis/export_runs.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis::test;
using trace::test::TemporaryFolder;

BOOST_AUTO_TEST_CASE(what_the_traces_say_is_drafted) {
    const TemporaryFolder folder("artifact");
    trace::Header header = trace::test::make_header(2, usual_regions);
    header.description += "[data]\ntrain = ['tokens.h5']\n[schedule]\nsteps = 40\npeak_lr = 1e-3\n";
    header.run_name = "g2";
    trace::StepRecord counted;
    counted.joules = 3;
    write_launch(folder / "runs/g2", header, 1, 40, {}, {}, counted);
    header.run_name = "g4";
    header.ranks.resize(4, header.ranks.front());
    header.ranks[3].host = "node1";
    header.ranks[3].gpu = "NVIDIA H100 (0000:17:00.0)";
    write_launch(folder / "runs/g4", header, 1, 40, {});
    const Output output = analyze(folder, "artifact " + folder / "runs");
    BOOST_TEST(output.code == 0, output.errors);
    for (const char* words :
         {"Generated from the traces of 2 runs.", "git checkout 0123456789ab\n",
          "    OMP_NUM_THREADS=4 mpirun -np 2 lockstep train descriptions/g2.toml",
          "mpirun -np 4 lockstep train descriptions/g4.toml", "- g2: 2 ranks on 1 node, 4 threads per rank, no GPU\n",
          "- g4: 4 ranks on 2 nodes, 4 threads per rank, GPUs: NVIDIA H100\n", "- `data.train`: tokens.h5\n",
          "/runs/g2 ", "| g2  |     2 |     1 |  0.5000 |", "|  J/token |", "0.014634 |"})
        BOOST_TEST(output.text.find(words) != std::string::npos, words << " in " << output.text);
    for (const char* words : {"not committed", "different commits"})
        BOOST_TEST(output.text.find(words) == std::string::npos, words);

    header.commit = "00000000beef+";
    header.run_name = "g5";
    write_launch(folder / "runs/g5", header, 1, 40, {});
    const Output mixed = analyze(folder, "artifact " + folder / "runs" + " --out " + folder / "artifact.md");
    BOOST_TEST(mixed.code == 0, mixed.errors);
    BOOST_TEST(mixed.text == "");
    const std::string text = read_text(folder / "artifact.md");
    for (const char* words : {"had changes that were not committed", "The runs come from different commits."})
        BOOST_TEST(text.find(words) != std::string::npos, words);

    std::ofstream(folder / "table.csv") << "ranks,time\n1,10\n";
    BOOST_TEST(analyze(folder, "import " + folder / "table.csv" + " --out " + folder / "imported").code == 0);
    const Output imported = analyze(folder, "artifact " + folder / "imported");
    BOOST_TEST(imported.code == 2);
    BOOST_TEST(imported.errors.find("was imported from a table; give only runs of lockstep") != std::string::npos);
}

// Of 40 steps: 1.5 instructions a cycle at 2 GHz; a launch without counts adds nothing.
BOOST_AUTO_TEST_CASE(counted_instructions_and_cycles_are_summed_up) {
    const TemporaryFolder folder("counted");
    trace::Header header = trace::test::make_header(2, usual_regions);
    trace::StepRecord counted;
    counted.instructions = 6e9;
    counted.cycles = 4e9;
    counted.processor_seconds = 2;
    write_launch(folder / "run", header, 1, 40, {}, {}, counted);
    write_launch(folder / "run", header, 41, 10, {});
    const Output json = analyze(folder, "summary --format json " + (folder / "run"));
    BOOST_TEST_REQUIRE(json.code == 0, json.errors);
    const auto totals = nlohmann::json::parse(json.text)["totals"];
    BOOST_TEST(totals["steps"] == 50);
    BOOST_TEST(totals["instructions"] == 40 * 6e9);
    BOOST_TEST(totals["instructions_per_cycle"] == 1.5);
    BOOST_TEST(totals["cycles_per_second"] == 2e9);
    BOOST_TEST(totals["joules"].is_null());
    const Output text = analyze(folder, "summary " + (folder / "run"));
    BOOST_TEST(
        text.text.find("Processors: 2.4e+11 instructions, 1.5 per cycle; 2 GHz over CPU time.") != std::string::npos,
        text.text);
    BOOST_TEST(analyze(folder, "report --out " + (folder / "page.html") + " " + (folder / "run")).code == 0);
    const std::string page = read_text(folder / "page.html");
    for (const char* words : {"GHz over CPU time", ">1.5<", ">2<"})
        BOOST_TEST(page.find(words) != std::string::npos, words);
}
