// Traces exported for other tools: every number of the trace arrives, what was made again does not, names stay names
// whatever is in them, and a file is written as a whole or not at all.
#define BOOST_TEST_MODULE export
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using analysis::test::analyze;
using analysis::test::Output;
using nlohmann::json;
using trace::test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

// As json holds text that was not UTF-8: each wrong byte is the replacement character.
const std::string replaced = "\xef\xbf\xbd";

const std::vector<std::string> usual_regions = {"epoch", "epoch/step", "epoch/step/forward", "epoch/step/backward"};

// One launch of a run: its steps first … first + count - 1 with the numbers of make_block, and these events.
void write_launch(const std::string& folder, const trace::Header& header, std::int64_t first, std::size_t count,
                  const std::vector<trace::EventRow>& events, trace::WriterLimits limits = {}) {
    trace::Block block = trace::test::make_block(header, first, count);
    for (trace::StepRow& row : block.steps) row.wall_time += header.start_time - 1e9;
    block.events = events;
    trace::TraceWriter writer(folder, header, count, limits);
    writer.append(block);
    writer.finish();
}

// In nanoseconds since the launch's start.
trace::EventRow event(std::int64_t step, std::int32_t rank, std::int32_t region, std::int64_t start, std::int64_t end) {
    return {step, rank, region, static_cast<double>(start) * 1e-9, static_cast<double>(end) * 1e-9};
}

// What a rank did in a step, innermost first, as a tracer hands it over.
void add_step(std::vector<trace::EventRow>& events, std::int64_t step, std::int32_t rank) {
    const std::int64_t start = step * 1'000'000'000 + rank * 1001;
    events.push_back(event(step, rank, 2, start, start + 20'000'003));
    events.push_back(event(step, rank, 3, start + 20'000'003, start + 60'000'007));
    events.push_back(event(step, rank, 1, start, start + 70'000'000));
    events.push_back(event(step, rank, 0, start, start + 80'000'000));
}

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

// Extra-P's text format, as far as a file of one parameter and one metric goes. Anything else fails.
struct ExtraP {
    explicit ExtraP(const std::string& text) {
        std::istringstream lines(text);
        std::string region;
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            std::string word;
            if (!(words >> word)) continue;
            if (word == "PARAMETER") {
                BOOST_TEST(static_cast<bool>(words >> parameter));
            } else if (word == "POINTS") {
                for (std::int64_t point = 0; words >> point;) points.push_back(point);
                BOOST_TEST(words.eof());
            } else if (word == "REGION") {
                BOOST_TEST(static_cast<bool>(words >> region));
                BOOST_TEST(regions.count(region) == 0u);
                regions[region] = {};
            } else if (word == "METRIC") {
                BOOST_TEST(static_cast<bool>(words >> word));
                BOOST_TEST(word == "time");
            } else {
                BOOST_REQUIRE(word == "DATA");
                std::vector<double> values;
                for (double value = 0; words >> value;) values.push_back(value);
                BOOST_TEST(words.eof());
                regions[region].push_back(values);
            }
        }
        for (const auto& [name, data] : regions) BOOST_TEST(data.size() == points.size());
    }
    double median(const std::string& region, std::size_t point) const {
        std::vector<double> values = regions.at(region).at(point);
        BOOST_REQUIRE(values.size() % 2 == 1);
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
    std::string parameter;
    std::vector<std::int64_t> points;
    std::map<std::string, std::vector<std::vector<double>>> regions;
};

// A run for Extra-P: seven steps; the first two are far too long, the others take 1, 1.04, 1.01, 1.03 and 1.02 times
// `seconds`. Half of that is forward, a quarter backward on rank 0 and twice that on the last, in between in between.
// Where `untimed`, the last step's phases were not timed.
constexpr double factors[] = {100, 50, 1, 1.04, 1.01, 1.03, 1.02};
void write_scaling_run(const std::string& folder, std::size_t ranks, double seconds, const std::string& more = "",
                       bool untimed = false) {
    const std::vector<std::string> regions = {"initialization",     "epoch",
                                              "epoch/step",         "epoch/step/data_loading",
                                              "epoch/step/forward", "epoch/step/backward"};
    trace::Header header = trace::test::make_header(ranks, regions);
    header.description += more;
    trace::Block block = trace::test::make_block(header, 1, std::size(factors));
    for (std::size_t i = 0; i < std::size(factors); ++i) {
        const double time = seconds * factors[i];
        block.steps[i].seconds = time;
        block.steps[i].tokens = 256;
        for (std::size_t r = 0; r < ranks; ++r) {
            const double share = ranks > 1 ? static_cast<double>(r) / static_cast<double>(ranks - 1) : 0;
            const double times[] = {3, time, time, 0, 0.5 * time, 0.25 * time * (1 + share)};
            for (std::size_t region = 0; region < regions.size(); ++region) {
                const std::size_t cell = (i * ranks + r) * regions.size() + region;
                block.times[cell] = times[region];
                if (untimed && i + 1 == std::size(factors) && region > 2) block.calls[cell] = 0;
            }
        }
    }
    trace::TraceWriter writer(folder, header, std::size(factors));
    writer.append(block);
    writer.finish();
}

// Files of this process's children end at so many bytes, as on a full disk.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
        BOOST_REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
        const rlimit limit = {bytes, before_.rlim_max};
        BOOST_REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, signal_);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    void (*signal_)(int);
    rlimit before_{};
};

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
    BOOST_TEST(holds(output.errors, "3 events have no possible time and were left out"));
    BOOST_TEST(holds(output.errors, "1 events reached beyond the end of the event around them and were shortened"));
    std::vector<Shown> expected = {{"epoch/step/backward", 3, -1500, -500}};
    expect_step(expected, 1, 0, 0);
    expected.push_back({"epoch/step", 3, 3'000'000'000, 3'000'002'000});
    expected.push_back({"epoch/step/forward", 3, 3'000'001'000, 3'000'002'000});
    BOOST_TEST(Shows(output.text).events.at(1) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(launches_follow_one_another_without_what_was_made_again) {
    const TemporaryFolder folder("export-launches");
    std::vector<trace::EventRow> events;
    for (const std::int64_t step : {1, 3, 7}) {
        add_step(events, step, 0);
        add_step(events, step, 1);
    }
    // Two files of four rows. All events are in the second, those of the first one's rows too.
    trace::WriterLimits limits;
    limits.file_bytes = 1;
    limits.fewest_rows = 4;
    write_launch(folder / "run", trace::test::make_header(2, usual_regions), 1, 8, events, limits);
    // From step 3 on again, an hour later, on one rank.
    trace::Header again = trace::test::make_header(1, usual_regions);
    again.start_time += 3600.5;
    events.clear();
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
    write(folder / "table.csv", "run,ranks,total\nimported,2,10\n");
    BOOST_TEST(analyze(folder, "import " + folder / "table.csv" + " --out " + folder.string()).code == 0);
    write(folder / "kept.json", "earlier");
    for (const std::string run : {"none", "superseded", "imported"})
        for (const std::string& to : {std::string(), " --out " + folder / "kept.json"}) {
            BOOST_TEST_CONTEXT(run << to) {
                const Output output = analyze(folder, "export " + folder / run + " --to chrome" + to);
                BOOST_TEST(output.code == 2);
                BOOST_TEST(holds(output.errors, folder / run + " holds no events; lockstep train records those of"));
                BOOST_TEST(output.text == "");
                BOOST_TEST(read(folder / "kept.json") == "earlier");
                BOOST_TEST(!fs::exists(folder / "kept.json.tmp"));
            }
        }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(csv)

BOOST_AUTO_TEST_CASE(a_line_for_each_step_rank_and_region) {
    const TemporaryFolder folder("export-csv");
    const std::string run = folder / "run";
    write_launch(run, trace::test::make_header(2, usual_regions), 1, 5, {});
    // Resumed after step 3 on three ranks, with regions in another order.
    const std::vector<std::string> regions = {"validation", "epoch", "epoch/step"};
    write_launch(run, trace::test::make_header(3, regions), 4, 3, {});
    const Output output = analyze(folder, "export " + run + " --to csv");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    std::istringstream lines(output.text);
    std::string line;
    BOOST_TEST(static_cast<bool>(std::getline(lines, line)));
    BOOST_TEST(line == "step,rank,region,seconds,calls");
    for (std::int64_t step = 1; step <= 6; ++step) {
        const std::vector<std::string>& names = step <= 3 ? usual_regions : regions;
        for (std::size_t rank = 0; rank < (step <= 3 ? 2u : 3u); ++rank)
            for (std::size_t region = 0; region < names.size(); ++region) {
                BOOST_REQUIRE(static_cast<bool>(std::getline(lines, line)));
                std::vector<std::string> cells;
                std::istringstream stream(line);
                for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
                BOOST_REQUIRE(cells.size() == 5u);
                BOOST_TEST(cells[0] == std::to_string(step));
                BOOST_TEST(cells[1] == std::to_string(rank));
                BOOST_TEST(cells[2] == names[region]);
                BOOST_TEST(std::stod(cells[3]) == trace::test::known_time(step, rank, region));  // to the last bit
                BOOST_TEST(cells[4] == std::to_string(region + 1));
            }
    }
    BOOST_TEST(!std::getline(lines, line));
    // The same in a file.
    BOOST_TEST(analyze(folder, "export " + run + " --to csv --out " + folder / "run.csv").code == 0);
    BOOST_TEST((read(folder / "run.csv") == output.text));
    BOOST_TEST(!fs::exists(folder / "run.csv.tmp"));
}

BOOST_AUTO_TEST_CASE(quotes_and_cells_without_a_number) {
    const TemporaryFolder folder("export-quotes");
    const std::vector<std::string> regions = {"a, b", "say \"x\"", "two\nlines", "é \xff", "plain"};
    const trace::Header header = trace::test::make_header(1, regions);
    trace::Block block = trace::test::make_block(header, 7, 1);
    block.times = {0.1 + 0.2, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 5e-324,
                   0};
    block.calls = {4294967295u, 0, 2, 3, 4};
    trace::TraceWriter writer(folder / "run", header, 1);
    writer.append(block);
    writer.finish();
    const Output output = analyze(folder, "export " + folder / "run" + " --to csv");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.text ==
               "step,rank,region,seconds,calls\n"
               "7,0,\"a, b\",0.30000000000000004,4294967295\n"
               "7,0,\"say \"\"x\"\"\",,0\n"
               "7,0,\"two\nlines\",,2\n"
               "7,0,é \xff,5e-324,3\n"
               "7,0,plain,0,4\n");
}

BOOST_AUTO_TEST_CASE(one_run_at_a_time) {
    const TemporaryFolder folder("export-two");
    for (const std::string name : {"runs/a", "runs/b"})
        write_launch(folder / name, trace::test::make_header(1, usual_regions), 1, 2, {});
    for (const std::string& runs : {folder / "runs", folder / "runs/a " + folder / "runs/b"})
        for (const std::string format : {"csv", "chrome"}) {
            const Output output = analyze(folder, "export " + runs + " --to " + format);
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, "--to " + format + " takes one run, and these are 2"));
            BOOST_TEST(output.text == "");
        }
    const Output output = analyze(folder, "export " + folder / "runs/a" + " --to otf2");
    BOOST_TEST(output.code == 2);
    BOOST_TEST(holds(output.errors, "otf2"));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(extra_p)

BOOST_AUTO_TEST_CASE(the_known_times_at_the_known_ranks) {
    const TemporaryFolder folder("export-extra-p");
    std::string runs;
    const std::vector<std::int64_t> points = {1, 2, 4, 8, 16};
    for (const std::int64_t ranks : {8, 1, 16, 2, 4}) {  // the order in which they are given does not matter
        const std::string name = folder / ("g" + std::to_string(ranks));
        write_scaling_run(name, static_cast<std::size_t>(ranks), 8.0 / static_cast<double>(ranks));
        runs += " " + name;
    }
    write_scaling_run(folder / "again", 4, 3.0);
    const Output output = analyze(folder, "export --to extra-p --warm-up 2" + runs + " " + folder / "again");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    const ExtraP text(output.text);
    BOOST_TEST(text.parameter == "p");
    BOOST_TEST(text.points == points, boost::test_tools::per_element());
    std::vector<std::string> names;
    for (const auto& [name, data] : text.regions) names.push_back(name);
    // Nothing took time in data_loading, and initialization is not part of a step.
    BOOST_TEST((names == std::vector<std::string>{"backward", "forward", "other", "step"}));
    for (std::size_t i = 0; i < points.size(); ++i) {
        const double seconds = 8.0 / static_cast<double>(points[i]), mean = points[i] > 1 ? 1.5 : 1;
        std::vector<double> steps;
        for (std::size_t step = 2; step < std::size(factors); ++step) steps.push_back(seconds * factors[step]);
        if (points[i] == 4) {
            for (std::size_t step = 2; step < std::size(factors); ++step) steps.push_back(3.0 * factors[step]);
            BOOST_TEST(text.regions.at("step")[i] == steps, boost::test_tools::per_element());
            BOOST_TEST(text.regions.at("forward")[i].size() == 10u);
            continue;
        }
        BOOST_TEST(text.regions.at("step")[i] == steps, boost::test_tools::per_element());
        BOOST_TEST(text.median("step", i) == seconds * 1.02);
        const auto close = boost::test_tools::tolerance(1e-12);
        BOOST_TEST(text.median("forward", i) == 0.5 * 1.02 * seconds, close);
        BOOST_TEST(text.median("backward", i) == 0.25 * 1.02 * seconds * mean, close);
        BOOST_TEST(text.median("other", i) == 1.02 * seconds * (0.5 - 0.25 * mean), close);
    }
    // Without --warm-up one of these seven steps is left out.
    const ExtraP usual(analyze(folder, "export --to extra-p" + runs).text);
    BOOST_TEST(usual.regions.at("step")[0].size() == 6u);
    BOOST_TEST(usual.regions.at("step")[0][0] == 8.0 * 50);
}

BOOST_AUTO_TEST_CASE(steps_that_were_not_timed_by_phase_are_repetitions_of_the_step_alone) {
    const TemporaryFolder folder("export-untimed");
    write_scaling_run(folder / "g1", 1, 2.0);
    write_scaling_run(folder / "g3", 3, 1.0, "", true);
    const Output output =
        analyze(folder, "export --to extra-p --warm-up 2 " + folder / "g1 " + folder / "g3 --out " + folder / "p.txt");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.text == "");
    BOOST_TEST(holds(output.errors, "2 different numbers of ranks; Extra-P asks for 5 to find a model"));
    const ExtraP text(read(folder / "p.txt"));
    BOOST_TEST((text.points == std::vector<std::int64_t>{1, 3}));
    BOOST_TEST(text.regions.at("step")[1].size() == 5u);
    BOOST_TEST(text.regions.at("forward")[0].size() == 5u);
    BOOST_TEST(text.regions.at("forward")[1].size() == 4u);
}

BOOST_AUTO_TEST_CASE(what_is_no_series_is_refused) {
    const TemporaryFolder folder("export-series");
    write_scaling_run(folder / "g1", 1, 2.0);
    write_scaling_run(folder / "g2", 2, 1.0);
    write_scaling_run(folder / "g2-again", 2, 1.1);
    write_scaling_run(folder / "g2-tensor", 2, 1.0, "[parallel]\ntensor = 2\n");
    struct Case {
        std::string runs, words;
    };
    const std::vector<Case> cases = {
        {folder / "g1", "Extra-P needs runs on different numbers of ranks; these are all on 1"},
        {folder / "g2 " + folder / "g2-again", "Extra-P needs runs on different numbers of ranks; these are all on 2"},
        {folder / "g1 " + folder / "g2 " + folder / "g2-tensor",
         "two runs on 2 ranks are not repetitions of each other: parallel.tensor is not given in " + folder / "g2" +
             " and 2 in " + folder / "g2-tensor"},
    };
    for (const Case& one : cases) {
        const Output output = analyze(folder, "export --to extra-p " + one.runs + " --out " + folder / "p.txt");
        BOOST_TEST_CONTEXT(output.errors) {
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, one.words));
            BOOST_TEST(!fs::exists(folder / "p.txt"));
            BOOST_TEST(!fs::exists(folder / "p.txt.tmp"));
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(out)

BOOST_AUTO_TEST_CASE(a_file_is_written_as_a_whole_or_not_at_all) {
    const TemporaryFolder folder("export-whole");
    const trace::Header header = trace::test::make_header(2, usual_regions);
    std::vector<trace::EventRow> events;
    add_step(events, 1, 0);
    write_launch(folder / "run", header, 1, 2000, events);
    const std::string target = folder / "out";
    const auto remains = [&] {
        BOOST_TEST(read(target) == "earlier");
        BOOST_TEST(!fs::exists(target + ".tmp"));
    };
    for (const std::string format : {"csv", "chrome"}) {
        BOOST_TEST_CONTEXT(format) {
            const std::string command = "export " + folder / "run" + " --to " + format;
            write(target, "earlier");
            Output output;
            {
                const FileSizeLimit limit(1 << 16);
                output = analyze(folder, command + " --out " + target);
            }
            BOOST_TEST(output.code == 1);
            BOOST_TEST(holds(output.errors, target + " cannot be written: File too large"));
            remains();
            output = analyze(folder, command + " --out " + folder / "missing/out");
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, "missing/out.tmp cannot be written: No such file or directory"));
            output = analyze(folder, command + " --out " + folder.string());
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, folder.string() + " is a folder; give --out a file"));
            if (::geteuid() != 0) {  // nothing is forbidden to root
                fs::create_directories(folder / "closed");
                fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
                output = analyze(folder, command + " --out " + folder / "closed/out");
                BOOST_TEST(output.code == 2);
                BOOST_TEST(holds(output.errors, "closed/out.tmp cannot be written: Permission denied"));
            }
            output = analyze(folder, command + " >/dev/full");
            BOOST_TEST(output.code == 1);
            BOOST_TEST(holds(output.errors, "the output cannot be written: No space left on device"));
            // With nothing in the way it replaces what was there.
            BOOST_TEST(analyze(folder, command + " --out " + target).code == 0);
            BOOST_TEST((read(target) == analyze(folder, command).text));
            BOOST_TEST(!fs::exists(target + ".tmp"));
        }
    }
    // The second file is damaged, which is seen only when the first one is written.
    trace::Header again = header;
    again.start_time += 100;
    write_launch(folder / "run", again, 2001, 2, {event(2001, 5, 1, 0, 1000)});
    write(target, "earlier");
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome --out " + target);
    BOOST_TEST(output.code == 3);
    BOOST_TEST(holds(output.errors, "trace-002.h5 is damaged: an event names rank 5 and region 1"));
    remains();
}

BOOST_AUTO_TEST_CASE(pipes_and_links_stay_what_they_are) {
    const TemporaryFolder folder("export-pipes");
    write_launch(folder / "run", trace::test::make_header(1, usual_regions), 1, 3, {});
    const std::string command = "export " + folder / "run" + " --to csv";
    const std::string expected = analyze(folder, command).text;
    const std::string pipe = folder / "pipe";
    BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    const int end = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);  // both ends, so that nobody waits
    BOOST_REQUIRE(end >= 0);
    BOOST_TEST(analyze(folder, command + " --out " + pipe).code == 0);
    std::string text(1 << 16, '\0');
    const ssize_t count = ::read(end, text.data(), text.size());
    ::close(end);
    BOOST_REQUIRE(count > 0);
    text.resize(static_cast<std::size_t>(count));
    BOOST_TEST(text == expected);
    BOOST_TEST(fs::is_fifo(pipe));
    BOOST_TEST(!fs::exists(pipe + ".tmp"));

    write(folder / "file.csv", "earlier");
    fs::create_symlink("file.csv", folder / "link.csv");
    BOOST_TEST(analyze(folder, command + " --out " + folder / "link.csv").code == 0);
    BOOST_TEST(fs::is_symlink(folder / "link.csv"));
    BOOST_TEST(read(folder / "file.csv") == expected);
}

BOOST_AUTO_TEST_SUITE_END()
