// Traces for Chrome's viewer and Perfetto: every event is where it was, and names stay names whatever is in them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <ostream>

#include "unit/analysis/export_runs.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis::test;
using nlohmann::json;
using trace::test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

// As json holds text that was not UTF-8: each wrong byte is the replacement character.
const std::string replaced = "\xef\xbf\xbd";

// One event as the file shows it, in nanoseconds.
struct Shown {
    std::string region;
    std::int64_t step, start, end;
    bool operator==(const Shown&) const = default;
};
std::ostream& operator<<(std::ostream& stream, const Shown& one) {
    return stream << one.region << " of step " << one.step << ": " << one.start << " to " << one.end;
}

std::int64_t nanoseconds(const json& microseconds) {
    const double exact = microseconds.get<double>() * 1000;
    BOOST_TEST(std::abs(exact - std::round(exact)) < 0.1);
    return std::llround(exact);
}

// Everything in the file, by process. Fails where events are not nested.
struct Shows {
    explicit Shows(const std::string& text) : whole(json::parse(text)) {
        std::map<std::int64_t, std::vector<std::int64_t>> open;
        for (const json& entry : whole.at("traceEvents")) {
            const std::int64_t process = entry.at("pid");
            const std::string kind = entry.at("ph");
            if (kind == "M") {
                const json& what = entry.at("args");
                if (entry.at("name") == "process_name") names[process] = what.at("name");
                if (entry.at("name") == "process_sort_index") order[process] = what.at("sort_index");
                continue;
            }
            BOOST_TEST(names.count(process) == 1u);
            const std::int64_t start = nanoseconds(entry.at("ts"));
            if (kind == "C") {
                const json& bytes = entry.at("args");
                memory[process].push_back({start, bytes.at("allocated"), bytes.at("reserved"), bytes.at("peak")});
                continue;
            }
            BOOST_TEST(kind == "X");
            const std::int64_t end = start + nanoseconds(entry.at("dur"));
            std::vector<std::int64_t>& around = open[process];
            while (!around.empty() && around.back() <= start) around.pop_back();
            BOOST_TEST((around.empty() || end <= around.back()));
            around.push_back(end);
            BOOST_TEST(entry.at("tid") == process);
            events[process].push_back({entry.at("cat"), entry.at("args").at("step"), start, end});
        }
    }
    json whole;
    std::map<std::int64_t, std::string> names;
    std::map<std::int64_t, std::int64_t> order;
    std::map<std::int64_t, std::vector<Shown>> events;
    std::map<std::int64_t, std::vector<std::vector<std::int64_t>>> memory;  // time, allocated, reserved, peak
};

// What add_step becomes, outermost first, `shift` later.
void expect_step(std::vector<Shown>& events, std::int64_t step, std::int64_t rank, std::int64_t shift) {
    const std::int64_t start = shift + step * 1'000'000'000 + rank * 1001;
    events.push_back({"epoch", step, start, start + 80'000'000});
    events.push_back({"epoch/step", step, start, start + 70'000'000});
    events.push_back({"epoch/step/forward", step, start, start + 20'000'003});
    events.push_back({"epoch/step/backward", step, start + 20'000'003, start + 60'000'007});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(chrome)

BOOST_AUTO_TEST_CASE(every_event_is_where_it_was_on_its_rank) {
    const TemporaryFolder folder("export-events");
    trace::Header header = trace::test::make_header(3, usual_regions);
    header.ranks[1].gpu = "NVIDIA H100 0000:1b:00.0";
    std::vector<trace::EventRow> events;
    for (const std::int64_t step : {1, 10})
        for (const std::int32_t rank : {2, 0, 1}) add_step(events, step, rank);
    // Of no length, at the start and at the end of what is around it.
    events.push_back(event(1, 0, 2, 1'000'000'000, 1'000'000'000));
    events.push_back(event(1, 0, 2, 1'080'000'000, 1'080'000'000));
    write_launch(folder / "run", header, 1, 12, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    const Shows shows(output.text);
    BOOST_TEST((shows.names == std::map<std::int64_t, std::string>{{1, "rank 0, node0"},
                                                                   {2, "rank 1, node0, NVIDIA H100 0000:1b:00.0"},
                                                                   {3, "rank 2, node1"}}));
    BOOST_TEST((shows.order == std::map<std::int64_t, std::int64_t>{{1, 1}, {2, 2}, {3, 3}}));
    BOOST_TEST(shows.events.size() == 3u);
    for (const std::int64_t rank : {0, 1, 2}) {
        std::vector<Shown> expected;
        expect_step(expected, 1, rank, 0);
        if (rank == 0) {
            expected.insert(expected.begin() + 3, {"epoch/step/forward", 1, 1'000'000'000, 1'000'000'000});
            expected.push_back({"epoch/step/forward", 1, 1'080'000'000, 1'080'000'000});
        }
        expect_step(expected, 10, rank, 0);
        BOOST_TEST(shows.events.at(rank + 1) == expected, boost::test_tools::per_element());
    }
    for (const std::int64_t rank : {0, 1, 2}) {
        const auto& memory = shows.memory.at(rank + 1);
        BOOST_REQUIRE(memory.size() == 12u);
        for (std::int64_t step = 1; step <= 12; ++step) {
            const std::int64_t bytes = step * 1000 + rank * 10;
            BOOST_TEST((memory[static_cast<std::size_t>(step - 1)] ==
                        std::vector<std::int64_t>{step * 1'000'000'000, bytes, bytes + 1, bytes + 2}));
        }
    }
    const json& about = shows.whole.at("otherData");
    BOOST_TEST(about.at("run") == "synthetic");
    BOOST_TEST(about.at("ranks") == "3");
    BOOST_TEST(about.at("model.mixer") == "ttt-linear");
}

BOOST_AUTO_TEST_CASE(bytes_and_their_rate_stand_with_what_communicated) {
    const TemporaryFolder folder("export-bytes");
    trace::Header header = trace::test::make_header(
        1, {"epoch", "epoch/step", "epoch/step/communication", "epoch/step/communication/data"});
    std::vector<trace::EventRow> events = {event(1, 0, 3, 1000, 3000), event(1, 0, 3, 4000, 4000),
                                           event(1, 0, 3, 5000, 6000), event(1, 0, 1, 0, 9000)};
    events[0].bytes = events[1].bytes = 500;
    events[3].bytes = 1000;
    write_launch(folder / "run", header, 1, 2, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome");
    BOOST_TEST(output.code == 0, output.errors);
    std::vector<json> shown;
    const json whole = json::parse(output.text);
    for (const json& entry : whole.at("traceEvents"))
        if (entry.at("ph") == "X") shown.push_back(entry.at("args"));
    BOOST_REQUIRE(shown.size() == 4u);
    BOOST_TEST(shown[0] == (json{{"step", 1}, {"bytes", 1000}}));                 // the step computes, too
    BOOST_TEST(shown[1] == (json{{"step", 1}, {"bytes", 500}, {"GB/s", 0.25}}));  // in 2 microseconds
    BOOST_TEST(shown[2] == (json{{"step", 1}, {"bytes", 500}}));                  // of no length
    BOOST_TEST(shown[3] == (json{{"step", 1}}));
}

BOOST_AUTO_TEST_CASE(what_can_not_be_shown_as_it_is_is_said) {
    const TemporaryFolder folder("export-odd-events");
    constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
    std::vector<trace::EventRow> events;
    add_step(events, 1, 0);
    events.push_back({2, 0, 1, nothing, 2.0});
    events.push_back({2, 0, 1, 2.0, 1.0});
    events.push_back({2, 0, 1, 2.0, 1e300});
    events.push_back(event(3, 0, 1, 3'000'000'000, 3'000'002'000));
    events.push_back(event(3, 0, 2, 3'000'001'000, 3'000'009'000));  // ends after the step around it
    events.push_back(event(3, 0, 3, -1500, -500));                   // before rank 0's clock zero
    trace::Header header = trace::test::make_header(1, usual_regions);
    write_launch(folder / "run", header, 1, 3, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(holds(output.errors, "left out 3 events with an impossible time"));
    BOOST_TEST(holds(output.errors, "shortened 1 event that extended beyond the end of the enclosing event"));
    std::vector<Shown> expected = {{"epoch/step/backward", 3, -1500, -500}};
    expect_step(expected, 1, 0, 0);
    expected.push_back({"epoch/step", 3, 3'000'000'000, 3'000'002'000});
    expected.push_back({"epoch/step/forward", 3, 3'000'001'000, 3'000'002'000});
    BOOST_TEST(Shows(output.text).events.at(1) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(launches_follow_one_another_without_what_was_made_again) {
    const TemporaryFolder folder("export-launches");
    write_launch_in_two_files(folder / "run");
    // From step 3 on again, an hour later, on one rank.
    trace::Header again = trace::test::make_header(1, usual_regions);
    again.start_time += 3600.5;
    std::vector<trace::EventRow> events;
    add_step(events, 3, 0);
    write_launch(folder / "run", again, 3, 2, events);
    again.start_time += 3600.5;
    again.ranks[0].host = "node7";
    events.clear();
    add_step(events, 5, 0);
    write_launch(folder / "run", again, 5, 1, events);

    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome");
    BOOST_TEST(output.code == 0);
    const Shows shows(output.text);
    BOOST_TEST((shows.names == std::map<std::int64_t, std::string>{{1, "launch 1, rank 0, node0"},
                                                                   {2, "launch 1, rank 1, node0"},
                                                                   {3, "launch 2, rank 0, node0"},
                                                                   {4, "launch 3, rank 0, node7"}}));
    constexpr std::int64_t hour = 3'600'500'000'000;
    std::map<std::int64_t, std::vector<Shown>> expected;
    expect_step(expected[1], 1, 0, 0);
    expect_step(expected[2], 1, 1, 0);
    expect_step(expected[3], 3, 0, hour);
    expect_step(expected[4], 5, 0, 2 * hour);
    for (const auto& [process, wanted] : expected)
        BOOST_TEST(shows.events.at(process) == wanted, boost::test_tools::per_element());
    std::map<std::int64_t, std::vector<std::int64_t>> times;
    for (const auto& [process, rows] : shows.memory)
        for (const auto& row : rows) times[process].push_back(row[0]);
    constexpr std::int64_t second = 1'000'000'000;
    BOOST_TEST((times == std::map<std::int64_t, std::vector<std::int64_t>>{{1, {second, 2 * second}},
                                                                           {2, {second, 2 * second}},
                                                                           {3, {hour + 3 * second, hour + 4 * second}},
                                                                           {4, {2 * hour + 5 * second}}}));
}

BOOST_AUTO_TEST_CASE(more_memory_than_is_read_at_once) {
    const TemporaryFolder folder("export-memory");
    constexpr std::int64_t steps = 350, ranks = 512;
    const trace::Header header = trace::test::make_header(ranks, {"epoch"});
    write_launch(folder / "run", header, 1, steps, {event(1, 0, 0, 0, 1000)});
    const Shows shows(analyze(folder, "export " + folder / "run" + " --to chrome").text);
    BOOST_TEST(shows.memory.size() == static_cast<std::size_t>(ranks));
    std::int64_t wrong = 0;
    for (const auto& [process, rows] : shows.memory) {
        BOOST_REQUIRE(rows.size() == static_cast<std::size_t>(steps));
        for (std::int64_t step = 1; step <= steps; ++step) {
            const std::vector<std::int64_t>& row = rows[static_cast<std::size_t>(step - 1)];
            if (row[0] != step * 1'000'000'000 || row[1] != step * 1000 + (process - 1) * 10) ++wrong;
        }
    }
    BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(names_stay_names) {
    const TemporaryFolder folder("export-names");
    const std::string quotes = "a\"b\\c'</script>", controls = "tab\tline\nbell\a\x7f", words = "é世🚀";
    const std::string broken = "x\xff\xc3(y\xe4\xb8";
    const std::string mended = "x" + replaced + replaced + "(y" + replaced;
    std::vector<std::string> regions = usual_regions;
    for (const std::string& name : {quotes, controls, words, broken}) regions.push_back("epoch/{}" + name);
    regions.push_back("epoch/d/" + broken);
    trace::Header header = trace::test::make_header(4, regions);
    header.run_name = quotes + controls + broken;
    header.description += "[notes]\n\"" + words + "\" = '''" + quotes + "'''\n";
    header.ranks[0].host = quotes;
    header.ranks[1].host = controls;
    header.ranks[2].gpu = words;
    header.ranks[3].gpu = broken;
    std::vector<trace::EventRow> events;
    for (std::int32_t region = 0; region < static_cast<std::int32_t>(regions.size()); ++region)
        events.push_back(event(1, 0, region, region * 1000, region * 1000 + 1000));
    write_launch(folder / "run", header, 1, 1, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome");
    BOOST_TEST(output.code == 0);
    const Shows shows(output.text);
    BOOST_TEST(shows.whole.at("otherData").at("run") == quotes + controls + mended);
    BOOST_TEST(shows.whole.at("otherData").at("notes." + words) == quotes);
    BOOST_TEST(shows.names.at(1) == "rank 0, " + quotes);
    BOOST_TEST(shows.names.at(2) == "rank 1, " + controls);
    BOOST_TEST(shows.names.at(3) == "rank 2, node1, " + words);
    BOOST_TEST(shows.names.at(4) == "rank 3, node1, " + mended);
    std::vector<std::string> shown;
    for (const Shown& one : shows.events.at(1)) shown.push_back(one.region);
    std::vector<std::string> expected = usual_regions;
    for (const std::string& name : {quotes, controls, words, mended}) expected.push_back("epoch/{}" + name);
    expected.push_back("epoch/d/" + mended);
    BOOST_TEST(shown == expected, boost::test_tools::per_element());
    BOOST_TEST(holds(output.text, "\"name\":\"" + mended + "\""));  // of the last: its path is another
}

BOOST_AUTO_TEST_CASE(a_run_without_events_is_refused) {
    const TemporaryFolder folder("export-none");
    const trace::Header header = trace::test::make_header(2, usual_regions);
    write_launch(folder / "none", header, 1, 5, {});
    // The only event is of a step that was made again.
    write_launch(folder / "superseded", header, 1, 4, {event(3, 0, 1, 0, 1000)});
    write_launch(folder / "superseded", header, 3, 2, {});
    write_text(folder / "table.csv", "run,ranks,total\nimported,2,10\n");
    BOOST_TEST(analyze(folder, "import " + folder / "table.csv" + " --out " + folder.string()).code == 0);
    write_text(folder / "kept.json", "earlier");
    for (const std::string run : {"none", "superseded", "imported"})
        for (const std::string& to : {std::string(), " --out " + folder / "kept.json"}) {
            BOOST_TEST_CONTEXT(run << to) {
                const Output output = analyze(folder, "export " + folder / run + " --to chrome" + to);
                BOOST_TEST(output.code == 2);
                BOOST_TEST(holds(output.errors, folder / run + " has no events; lockstep train records those of"));
                BOOST_TEST(output.text == "");
                BOOST_TEST(read_text(folder / "kept.json") == "earlier");
                BOOST_TEST(folder.unfinished() == 0);
            }
        }
}

BOOST_AUTO_TEST_SUITE_END()
