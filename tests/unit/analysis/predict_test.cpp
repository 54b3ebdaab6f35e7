// lockstep-analyze predict as a user runs it, and its predictions against measurements.
#define BOOST_TEST_MODULE predict
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "places.hpp"
#include "unit/analysis/program.hpp"
#include "unit/analysis/report_runs.hpp"

using namespace lockstep::analysis::test;
using lockstep::trace::test::TemporaryFolder;
using Json = nlohmann::json;

namespace {

const std::string machine = lockstep::tests::source_path("tests/unit/analysis/small_cluster.toml");

struct Runs {
    TemporaryFolder folder{"predict"};
    Runs() {
        for (const std::size_t ranks : {1, 2, 4, 8})
            write_run(folder / ("g" + std::to_string(ranks)), "g" + std::to_string(ranks), ranks, 200);
    }
    Output run(const std::string& arguments) const { return analyze(folder, arguments); }
    std::string few() const { return (folder / "g1") + " " + (folder / "g2") + " " + (folder / "g4"); }
    std::string hardware() const { return " --hardware " + machine; }
    std::string made() const {
        const std::string file = folder / "prediction.json";
        const Output output = run("predict " + few() + hardware() + " --to 100 --out " + file);
        BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
        return file;
    }
};

const Json& curve(const Json& prediction, const std::string& kind) {
    for (const Json& one : prediction["curves"])
        if (one["kind"] == kind) return one;
    BOOST_REQUIRE_MESSAGE(false, "no " << kind << " curve");
    return prediction;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(predict, Runs)

BOOST_AUTO_TEST_CASE(the_file_holds_curves_with_ordered_intervals) {
    const Json all = Json::parse(read_text(made()));
    BOOST_TEST(all["format"] == "lockstep-scaling-prediction");
    BOOST_TEST(all["format_version"] == 1);
    BOOST_TEST(all["level"] == 0.9);
    BOOST_TEST(all["runs"].size() == 3);
    BOOST_TEST(all["ranks_per_node"] == 2);
    BOOST_TEST(all["hardware"]["network.gb_per_second"] == 1.25);
    BOOST_TEST(all["left_out"].size() == 3);
    const Json &strong = curve(all, "strong"), &weak = curve(all, "weak");
    BOOST_TEST(strong["batch"] == 8);
    BOOST_TEST(strong["most_ranks"] == 8);
    BOOST_TEST(strong["points"].back()["ranks"] == 8);
    BOOST_TEST(said(strong["remarks"], "Strong scaling with 8 sequences per step ends at 8 ranks"));
    BOOST_TEST(weak["points"].back()["ranks"] == 100);
    BOOST_TEST(weak["points"].back()["nodes"] == 50);
    BOOST_TEST(weak["points"].back()["batch"] == 800);
    for (const Json& one : all["curves"])
        for (const Json& point : one["points"]) {
            for (const char* key : {"seconds", "speedup", "efficiency", "tokens_per_second"}) {
                const double low = point[key]["low"], median = point[key]["median"], high = point[key]["high"];
                BOOST_TEST(low > 0);
                BOOST_TEST(low < median);
                BOOST_TEST(median < high);
            }
            const double share = point["communication_share"]["median"];
            BOOST_TEST(share >= 0);
            BOOST_TEST(share < 1);
            // Tokens of a step: 32 a sequence.
            const double rate = point["tokens_per_second"]["median"], seconds = point["seconds"]["median"];
            BOOST_TEST(std::abs(rate * seconds / (32 * point["batch"].get<double>()) - 1) < 1e-9);
            double parts = 0;
            for (const auto& [name, part] : point["parts"].items()) parts += part.get<double>();
            BOOST_TEST(std::abs(parts / seconds - 1) < 0.2);
        }
}

BOOST_AUTO_TEST_CASE(eight_ranks_are_predicted_from_one_two_and_four) {
    const std::string file = made();
    const Output output = run("scaling " + folder.string() + " --prediction " + file + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json rows = output.json()["prediction"]["rows"];
    int strong = 0;
    for (const Json& row : rows) {
        if (row["kind"] != "strong") continue;
        ++strong;
        BOOST_TEST(row["used"] == (row["ranks"] != 8));
        BOOST_TEST(std::abs(row["error"].get<double>()) < 0.1);
        BOOST_TEST(row["inside"] == true);
        BOOST_TEST(row["error"].get<double>() ==
                       row["predicted_seconds"].get<double>() / row["measured_seconds"].get<double>() - 1,
                   boost::test_tools::tolerance(1e-12));
    }
    BOOST_TEST(strong == 4);
    // One run alone forms no series, and is held against the prediction all the same.
    const Output one = run("scaling " + (folder / "g8") + " --prediction " + file);
    BOOST_REQUIRE_MESSAGE(one.code == 0, one.errors);
    BOOST_TEST(one.text.find("Strong scaling, batch 8: prediction of") != std::string::npos);
    BOOST_TEST(one.text.find("1 of 1 measured time lies in the 90 % interval") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_measured_time_outside_is_said_to_be_outside) {
    const std::string file = made();
    Json all = Json::parse(read_text(file));
    for (Json& one : all["curves"])
        for (Json& point : one["points"])
            for (const char* end : {"low", "median", "high"})
                point["seconds"][end] = 2 * point["seconds"][end].get<double>();
    write_text(file, all.dump());
    const Output output = run("scaling " + (folder / "g8") + " --prediction " + file + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json row = output.json()["prediction"]["rows"][0];
    BOOST_TEST(row["inside"] == false);
    BOOST_TEST(row["error"].get<double>() > 0.8);
}

BOOST_AUTO_TEST_CASE(the_report_draws_prediction_and_measurement) {
    const Output output = run("report " + folder.string() + " --prediction " + made() + " --out " +
                              (folder / "report.html") + " --plots " + (folder / "plots"));
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const std::string page = read_text(folder / "report.html");
    BOOST_TEST(page.find("Prediction and measurement") != std::string::npos);
    BOOST_TEST(page.find("Predicted and measured") != std::string::npos);
    BOOST_TEST(page.find("--prediction") != std::string::npos);
    if (std::system("command -v gnuplot >/dev/null") != 0) return;
    for (const char* plot : {"predicted-time-1", "predicted-efficiency-1", "predicted-communication-1",
                             "predicted-time-2", "predicted-efficiency-2", "predicted-communication-2"}) {
        BOOST_TEST(page.find(std::string(plot) + "-") != std::string::npos, plot << " is not in the page");
        BOOST_TEST(read_text(folder / ("plots/" + std::string(plot) + ".svg")).find("<svg") != std::string::npos);
    }
    // The band has its low and high ends, the measured points their two kinds.
    const std::string data = read_text(folder / "plots/predicted-time-1.dat");
    BOOST_TEST(data.find("# ranks milliseconds low high") != std::string::npos);
    BOOST_TEST(data.find("# measured, used") != std::string::npos);
    BOOST_TEST(data.find("# measured, not used") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(tables_and_formats) {
    const std::string arguments = "predict " + few() + hardware() + " --ranks 8,16,6";
    const Output text = run(arguments + " --strong");
    BOOST_REQUIRE_MESSAGE(text.code == 0, text.errors);
    BOOST_TEST(text.text.find("Strong scaling, batch 8, predicted") != std::string::npos);
    BOOST_TEST(text.text.find("Weak scaling") == std::string::npos);
    BOOST_TEST(text.text.find("No point at 6 ranks: 8 sequences do not divide evenly among the 6 replicas") !=
               std::string::npos);
    BOOST_TEST(text.text.find("Cross-validation: each number of ranks predicted from the others") != std::string::npos);
    const Output csv = run(arguments + " --format csv --weak");
    BOOST_REQUIRE_MESSAGE(csv.code == 0, csv.errors);
    BOOST_TEST(csv.text.rfind("kind,ranks,nodes,batch,unit,seconds_low,seconds_median,seconds_high", 0) == 0);
    BOOST_TEST(csv.text.find("weak,16,8,128,step,") != std::string::npos);
    const Output larger = run(arguments + " --strong --batch 64 --format json");
    BOOST_REQUIRE_MESSAGE(larger.code == 0, larger.errors);
    BOOST_TEST(curve(larger.json(), "strong")["points"].back()["ranks"] == 16);
}

BOOST_AUTO_TEST_CASE(imported_tables_are_predicted_from) {
    write_text(folder / "table.csv",
               "run,ranks,batch,total,tokens\na1,1,64,1000,1000000\na2,2,64,510,1000000\na4,4,64,262,1000000\n"
               "a8,8,64,139,1000000\na16,16,64,77,1000000\n");
    const std::string runs = folder / "imported";
    BOOST_REQUIRE(run("import " + (folder / "table.csv") + " --out " + runs).code == 0);
    const std::string file = folder / "imported.json";
    const Output output = run("predict " + runs + "/a1 " + runs + "/a2 " + runs + "/a4 " + runs + "/a8" + hardware() +
                              " --to 64 --out " + file);
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    BOOST_TEST(output.text.find("Imported times come without message sizes") != std::string::npos);
    const Output compared = run("scaling " + runs + " --prediction " + file + " --format json");
    BOOST_REQUIRE_MESSAGE(compared.code == 0, compared.errors);
    const Json rows = compared.json()["prediction"]["rows"];
    BOOST_REQUIRE(rows.size() == 5);
    BOOST_TEST(rows[4]["ranks"] == 16);
    BOOST_TEST(rows[4]["used"] == false);
    BOOST_TEST(rows[4]["inside"] == true);
    BOOST_TEST(std::abs(rows[4]["error"].get<double>()) < 0.2);
    // A traced run is not held against a prediction of imported ones.
    const Output traced = run("scaling " + (folder / "g8") + " --prediction " + file + " --format json");
    BOOST_REQUIRE_MESSAGE(traced.code == 0, traced.errors);
    BOOST_TEST(traced.json()["prediction"]["rows"].empty());
    BOOST_TEST(said(traced.json()["prediction"]["remarks"], "it is traced"));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_predicted_is_refused_in_a_sentence) {
    const auto refused = [&](const std::string& arguments, int code, const std::string& words) {
        const Output output = run(arguments);
        BOOST_TEST(output.code == code, arguments << " ends with " << output.code);
        BOOST_TEST(output.errors.find(words) != std::string::npos, output.errors);
        BOOST_TEST(output.text.empty());
    };
    refused("predict " + few(), 2, "--hardware is required");
    refused("predict " + (folder / "g2") + hardware(), 2, "all runs have 2 ranks: a prediction needs at least two");
    refused("predict " + few() + " --hardware " + (folder / "none.toml"), 2, "none.toml cannot be read");
    write_text(folder / "wrong.toml", read_text(machine) + "card = 3\n");
    refused("predict " + few() + " --hardware " + (folder / "wrong.toml"), 2, "unknown key network.card");
    refused("predict " + few() + hardware() + " --strong --weak", 2, "excludes");
    refused("predict " + few() + hardware() + " --ranks 2.5", 2, "2.5");
    refused("predict " + few() + hardware() + " --out " + (folder / "no/such/folder.json"), 2, "cannot be written");
    const std::string file = made(), text = read_text(file);
    refused("scaling " + few() + " --prediction " + machine, 2, "is not a prediction");
    refused("report " + few() + " --prediction " + (folder / "none.json"), 2, "cannot be read");
    write_text(file, text.substr(0, text.size() / 2));
    refused("scaling " + few() + " --prediction " + file, 3, "is not whole JSON");
    Json all = Json::parse(text);
    all["curves"][0]["points"][0]["seconds"]["low"] = "much";
    write_text(file, all.dump());
    refused("scaling " + few() + " --prediction " + file, 3, "is damaged");
    all["format_version"] = 2;
    write_text(file, all.dump());
    refused("scaling " + few() + " --prediction " + file, 2, "format version 2");
}

BOOST_AUTO_TEST_CASE(runs_of_another_program_are_not_compared) {
    const std::string file = made();
    Json all = Json::parse(read_text(file));
    all["settings"]["model.width"] = "128";
    write_text(file, all.dump());
    const Output output = run("scaling " + (folder / "g8") + " --prediction " + file + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    BOOST_TEST(output.json()["prediction"]["rows"].empty());
    BOOST_TEST(said(output.json()["prediction"]["remarks"], "model.width is 64, was 128"));
}

BOOST_AUTO_TEST_SUITE_END()
