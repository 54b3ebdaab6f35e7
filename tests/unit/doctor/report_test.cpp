// How an examination is printed.
#define BOOST_TEST_MODULE report
#include "doctor/report.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

using namespace lockstep;
using namespace lockstep::doctor;

namespace {

Examination example(bool finds) {
    Examination of;
    of.ranks = 4;
    for (int node = 0; node < 4; ++node) {
        of.sites.push_back({node, 0});
        of.nodes.emplace_back();
        of.nodes.back().host = "frontier0000" + std::to_string(node) + ".frontier.olcf.ornl.gov";
        of.nodes.back().ports = {{"cxi0", Fabric::slingshot, 200}};
        of.clocks.push_back({});
    }
    for (int a = 0; a < 4; ++a)
        for (int b = a + 1; b < 4; ++b)
            of.rates.push_back({{a, b, LinkKind::between_nodes}, 2.1e-6, a == 1 ? 3e9 : 21e9, a == 1 ? 5e9 : 23e9});
    of.links = judge_links(of.rates, of.sites, {"", "", "", ""});
    of.remarks = {"a remark"};
    of.seconds = 1.25;
    if (finds)
        of.findings = {{"governor",
                        "the governor is powersave and this goes on for longer than one line of the output "
                        "has letters, so that it must be broken somewhere",
                        {of.nodes[1].host, of.nodes[2].host, of.nodes[3].host},
                        "ask the site",
                        "https://example.org"},
                       {"slow-link", "all is slow", {}, "wait", ""}};
    return of;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(text_fits_100_columns) {
    for (const bool finds : {false, true}) {
        std::istringstream lines(report(example(finds), TableFormat::text));
        for (std::string line; std::getline(lines, line);) BOOST_TEST(line.size() <= 100u, line);
    }
}

BOOST_AUTO_TEST_CASE(text_has_the_table_the_findings_and_one_line_at_the_end) {
    const std::string found = report(example(true), TableFormat::text);
    for (const char* part : {"between nodes", "2.1", "21.00", "3.00", "frontier000..", "a remark", "\nfindings:\n",
                             "governor on frontier[00001-00003].frontier.olcf.ornl.gov: the governor",
                             "do: ask the site", "see: https://example.org", "slow-link: all is slow"})
        BOOST_TEST(contains(found, part), part << " is not in " << found);
    BOOST_TEST(found.ends_with("\n2 findings\n"));
    const std::string fine = report(example(false), TableFormat::text);
    BOOST_TEST(!contains(fine, "findings"));
    BOOST_TEST(fine.ends_with("\nno problems found (1.2 s)\n"));
    BOOST_TEST(contains(report(example(true), TableFormat::markdown), "| links "));
    BOOST_TEST(log_line(example(true).findings[1]) == "slow-link: all is slow; wait");
}

BOOST_AUTO_TEST_CASE(json_has_everything) {
    const auto json = nlohmann::json::parse(report(example(true), TableFormat::json));
    BOOST_TEST(json["ranks"] == 4);
    BOOST_TEST(json["links"][0]["kind"] == "between nodes");
    BOOST_TEST(json["links"][0]["links"] == 6);
    BOOST_TEST(json["links"][0]["lowest_bytes_per_second"] == 3e9);
    BOOST_TEST(json["links"][0]["lowest_gpu_bytes_per_second"] == 5e9);
    BOOST_TEST(json["rates"].size() == 6u);
    BOOST_TEST(json["nodes"].size() == 4u);
    BOOST_TEST(json["nodes"][0]["ports"][0]["fabric"] == "Slingshot");
    BOOST_TEST(json["findings"].size() == 2u);
    BOOST_TEST(json["findings"][0]["hosts"].size() == 3u);
    BOOST_TEST(json["findings"][1]["source"].is_null());
    const auto rows = report(example(true), TableFormat::csv);
    BOOST_TEST(rows.starts_with("kind,links,latency_us,longest_latency_us,gb_per_second,lowest_gb_per_second,"));
}
