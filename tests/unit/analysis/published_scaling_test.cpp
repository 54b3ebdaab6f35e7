// Published measurements, imported and analysed: what averaging over ranks claims, and what the slowest rank says.
#define BOOST_TEST_MODULE published_scaling
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "places.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep::analysis::test;
using lockstep::trace::test::TemporaryFolder;
using Json = nlohmann::json;

namespace {

const std::string tables = lockstep::tests::source_path("tests/unit/analysis/published/");

void import(const TemporaryFolder& folder, const std::string& table) {
    const Output output = analyze(folder, "import " + tables + table + " --out " + (folder / "runs"));
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
}

const Json& row_of(const Json& rows, int batch, int ranks) {
    for (const Json& row : rows)
        if (row["batch"] == batch && row["ranks"] == ranks) return row;
    BOOST_REQUIRE_MESSAGE(false, "no row of batch " << batch << " and " << ranks << " ranks");
    return rows;
}

}  // namespace

BOOST_AUTO_TEST_CASE(strong_scaling_by_the_slowest_rank_and_by_the_average) {
    const TemporaryFolder folder("published-scaling");
    import(folder, "gpt-strong-scaling.csv");
    const Output output = analyze(folder, "scaling " + (folder / "runs") + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json all = output.json();
    BOOST_TEST(all["series"].size() == 2);
    for (const Json& series : all["series"]) {
        BOOST_TEST(series["kind"] == "strong");
        BOOST_TEST(series["unit"] == "run");
    }
    struct Known {
        int batch, ranks;
        double seconds, by_average, by_slowest;
    };
    for (const Known& known :
         {Known{64, 1, 2233.50, 1.00, 1.00}, Known{64, 2, 1384.64, 2.04, 1.61}, Known{64, 4, 833.37, 2.71, 2.68},
          Known{128, 1, 2082.29, 1.00, 1.00}, Known{128, 2, 1188.86, 2.21, 1.75}, Known{128, 4, 706.41, 4.25, 2.95}}) {
        const Json& row = row_of(all["rows"], known.batch, known.ranks);
        BOOST_TEST_CONTEXT("batch " << known.batch << ", ranks " << known.ranks) {
            BOOST_TEST(row["seconds_slowest"].get<double>() == known.seconds, boost::test_tools::tolerance(1e-12));
            BOOST_TEST(std::abs(row["speedup_average"].get<double>() - known.by_average) < 0.005);
            BOOST_TEST(std::abs(row["speedup_slowest"].get<double>() - known.by_slowest) < 0.0051);
            BOOST_TEST(row["efficiency"].get<double>() == row["speedup_slowest"].get<double>() / known.ranks,
                       boost::test_tools::tolerance(1e-12));
        }
    }
    const Json& two = row_of(all["rows"], 64, 2);
    BOOST_TEST(std::abs(two["load_balance"].get<double>() - 0.79) < 0.005);
    BOOST_TEST(two["load_balance_by"] == "time");
    // (1/S − 1/p)/(1 − 1/p) with S = 2233.50/833.37
    BOOST_TEST(row_of(all["rows"], 64, 4)["karp_flatt"].get<double>() == (833.37 / 2233.50 - 0.25) / 0.75,
               boost::test_tools::tolerance(1e-9));
    const Json& four = row_of(all["rows"], 128, 4)["remarks"];
    BOOST_TEST(said(four, "4.25"));
    BOOST_TEST(said(four, "It is not real: rank 0 took 706.41 s, the others 415.71 s to 418.27 s"));
    BOOST_TEST(said(four, "Ranks 1, 2, 3 took less than an equal share"));
    BOOST_TEST(!said(row_of(all["rows"], 64, 4)["remarks"], "not real"));
}

BOOST_AUTO_TEST_CASE(the_report_says_why_the_published_speedup_is_not_real) {
    const TemporaryFolder folder("published-report");
    import(folder, "gpt-strong-scaling.csv");
    const Output output = analyze(folder, "report " + (folder / "runs") + " --out " + (folder / "report.html"));
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const std::string page = read_text(folder / "report.html");
    BOOST_TEST(page.find("would give a speedup of 4.25") != std::string::npos);
    BOOST_TEST(page.find("It is not real: rank 0 took 706.41 s") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(batch_and_accumulation_best_by_time_and_by_throughput) {
    const TemporaryFolder folder("published-sweep");
    import(folder, "batch-accumulation.csv");
    const Output output = analyze(folder, "sweep " + (folder / "runs") + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json all = output.json();
    BOOST_TEST(all["rows"].size() == 7);
    BOOST_TEST(all["best_by_time"]["batch"] == 512);
    BOOST_TEST(all["best_by_time"]["accumulation"] == 2);
    BOOST_TEST(all["best_by_throughput"]["batch"] == 1024);
    BOOST_TEST(all["best_by_throughput"]["accumulation"] == 1);
    // 314.00 s × 2,090/s and 102.82 s × 16,150/s are not the same work, so the two readings do not contradict.
    BOOST_TEST(said(all["remarks"], "656,260"));
    BOOST_TEST(said(all["remarks"], "1,660,543"));
}

BOOST_AUTO_TEST_CASE(rates_of_eight_ranks_against_two) {
    const TemporaryFolder folder("published-rates");
    import(folder, "rates-of-8-ranks.csv");
    const Output output = analyze(folder, "scaling " + (folder / "runs") + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json all = output.json();
    BOOST_REQUIRE(all["rows"].size() == 2);
    const Json& eight = all["rows"][1];
    BOOST_TEST(eight["ranks"] == 8);
    BOOST_TEST(eight["tokens_per_second"].get<double>() == 15570, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(std::abs(eight["efficiency"].get<double>() - 0.905) < 0.0005);
    // The slowest rank's rate over the harmonic mean; eight times it is what comes if all wait for it.
    BOOST_TEST(std::abs(eight["load_balance"].get<double>() - 0.9619) < 0.00005);
    BOOST_TEST(eight["load_balance_by"] == "rate");
    BOOST_TEST(eight["tokens_per_second_slowest"].get<double>() == 8 * 1871, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(eight["efficiency_slowest_rate"].get<double>() == 8 * 1871 / 4300.0 / 4,
               boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(a_table_with_compute_and_communication_gives_the_factors) {
    const TemporaryFolder folder("published-factors");
    {
        std::ofstream table(folder / "table.csv");
        table << "run,ranks,rank,batch,total,compute,communication,forward,validation\n"
                 "one,1,0,8,17,16,0,6,1\n"
                 "two,2,0,8,10,9,1,3,\n"
                 "two,2,1,8,10,7,3,20,\n";  // a part that exceeds its whole does not make the run longer
    }
    const Output imported = analyze(folder, "import " + (folder / "table.csv") + " --out " + (folder / "runs"));
    BOOST_REQUIRE_MESSAGE(imported.code == 0, imported.errors);
    const Output output = analyze(folder, "scaling " + (folder / "runs") + " --format json");
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    const Json two = output.json()["rows"][1];
    const auto check = [&](const char* key, double expected) {
        BOOST_TEST(std::abs(two[key].get<double>() - expected) < 1e-12, key << " is " << two[key]);
    };
    check("seconds_slowest", 10);
    check("speedup_slowest", 1.7);
    check("load_balance", 8.0 / 9);
    BOOST_TEST(two["load_balance_by"] == "compute");
    check("communication_efficiency", 0.9);
    check("parallel_efficiency", 0.8);
    check("computation_scaling", 1.0);
    check("global_efficiency", 0.8);
    check("communication_share", 0.2);
    check("communication_ratio", 0.25);
}

namespace {

Json scaling_of_table(const TemporaryFolder& folder, const std::string& text, const std::string& options = "") {
    {
        std::ofstream table(folder / "table.csv");
        table << text;
    }
    const Output imported =
        analyze(folder, "import " + (folder / "table.csv") + " --replace --out " + (folder / "runs"));
    BOOST_REQUIRE_MESSAGE(imported.code == 0, imported.errors);
    const Output output = analyze(folder, "scaling " + (folder / "runs") + " --format json " + options);
    BOOST_REQUIRE_MESSAGE(output.code == 0, output.errors);
    return output.json();
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_work_of_imported_runs_is_their_tokens) {
    const TemporaryFolder folder("published-work");
    // An epoch of the same data with a batch that grows: the same work.
    const std::string head = "run,ranks,batch,total,tokens\n";
    const Json same = scaling_of_table(folder, head + "a1,1,64,1000,1000000\na2,2,128,520,1000000\n");
    BOOST_TEST(same["rows"][1]["kind"] == "weak");
    BOOST_TEST(std::abs(same["rows"][1]["speedup_slowest"].get<double>() - 1000.0 / 520) < 1e-12);
    // Without tokens the batch is taken for the work, and that is said.
    const Json unknown = scaling_of_table(folder, "run,ranks,batch,total\na1,1,64,1000\na2,2,128,1100\n");
    BOOST_TEST(std::abs(unknown["rows"][1]["speedup_slowest"].get<double>() - 2 * 1000.0 / 1100) < 1e-12);
    BOOST_TEST(said(unknown["series"][0]["remarks"], "The table gives no tokens"));
    const Json told = scaling_of_table(folder, "run,ranks,batch,total\na1,1,64,1000\na2,2,128,520\n",
                                       "--ignore batch.global --kind strong");
    BOOST_TEST(told["rows"][1]["kind"] == "strong");
}

BOOST_AUTO_TEST_CASE(another_base_and_rates_alone) {
    const TemporaryFolder folder("published-base");
    const std::string head = "run,ranks,rank,tokens_per_second\n";
    const Json rates = scaling_of_table(folder, head + "a1,1,0,100\na2,2,0,90\na2,2,1,60\n");
    const Json& two = rates["rows"][1];
    BOOST_TEST(two["efficiency"] == 0.75);
    BOOST_TEST(std::abs(two["karp_flatt"].get<double>() - 1.0 / 3) < 1e-12);  // of the speedup shown, 1.5
    BOOST_TEST(two["speedup_slowest"] == 1.2);
    const TemporaryFolder other("published-base-2");
    const Json based = scaling_of_table(other, "run,ranks,total\na1,1,100\na2,2,60\na4,4,40\n", "--base 2");
    BOOST_TEST(based["rows"][0]["speedup_slowest"] == 0.6);
    BOOST_TEST(std::abs(based["rows"][0]["efficiency"].get<double>() - 1.2) < 1e-12);
    BOOST_TEST(based["rows"][0]["remarks"].empty());  // fewer ranks than the base are not more than linear
    BOOST_TEST(std::abs(based["rows"][2]["efficiency"].get<double>() - 0.75) < 1e-12);
    BOOST_TEST(said(based["series"][0]["remarks"], "The base case already has 2 ranks"));
    const Output wrong = analyze(other, "scaling " + (other / "runs") + " --ignore batch.glbal");
    BOOST_TEST(wrong.code == 2);
    BOOST_TEST(wrong.errors.find("no run has this setting") != std::string::npos);
}
