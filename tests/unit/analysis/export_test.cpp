// Traces exported for other tools: every number of the trace arrives, what was made again does not, and a file is
// written as a whole or not at all. Chrome's format and OTF2 have tests of their own:
// export_chrome_test.cpp and export_otf2_test.cpp.
#define BOOST_TEST_MODULE export
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "tensorboard_events.hpp"
#include "unit/analysis/export_runs.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis::test;
using trace::test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

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
                       bool untimed = false, std::int64_t batch = 8) {
    const std::vector<std::string> regions = {"initialization",     "epoch",
                                              "epoch/step",         "epoch/step/data_loading",
                                              "epoch/step/forward", "epoch/step/backward"};
    trace::Header header = trace::test::make_header(ranks, regions);
    const std::string usual = "global = 8";
    header.description.replace(header.description.find(usual), usual.size(), "global = " + std::to_string(batch));
    header.description += more;
    trace::RowBatch block = trace::test::make_block(header, 1, std::size(factors));
    for (std::size_t i = 0; i < std::size(factors); ++i) {
        const double time = seconds * factors[i];
        block.steps[i].seconds = time;
        block.steps[i].tokens = 256;
        block.steps[i].batch = batch;
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

BOOST_AUTO_TEST_SUITE(tensorboard)

BOOST_AUTO_TEST_CASE(all_launches_of_each_run_in_one_file) {
    const TemporaryFolder folder("export-tensorboard");
    trace::Header header = trace::test::make_header(2, usual_regions);
    write_launch(folder / "runs/a", header, 1, 5, {});
    header.description += "[optimizer]\nclip = 0.5\n";
    header.start_time += 1000;
    write_launch(folder / "runs/a", header, 4, 3, {});  // resumed after step 3
    header.run_name = "other";
    write_launch(folder / "runs/b", header, 1, 350, {});
    const Output output = analyze(folder, "export " + folder / "runs" + " --to tensorboard --out " + folder / "board");
    BOOST_TEST(output.code == 0, output.errors);
    BOOST_TEST(output.text + output.errors == "");
    tests::Board board;
    board.add(tests::events_of(read_text(folder / "board/synthetic/events.out.tfevents.1000000000.lockstep")));
    const auto& losses = board.scalars.at("train/loss");
    BOOST_TEST(losses.size() == 6u);
    for (const auto& [step, loss] : losses) BOOST_TEST(loss == 1.0f / static_cast<float>(step));
    BOOST_TEST(board.scalars.at("speed/tokens_per_second").at(5) == 100.0f);
    BOOST_TEST(board.scalars.count("validation/loss") == 0u);
    BOOST_TEST_REQUIRE(board.descriptions.size() == 2u);
    BOOST_TEST(board.descriptions.at(1).find("clip = 0.5") == std::string::npos);
    BOOST_TEST(board.descriptions.at(4).find("    clip = 0.5") != std::string::npos);
    tests::Board other;
    other.add(tests::events_of(read_text(folder / "board/other/events.out.tfevents.1000001000.lockstep")));
    BOOST_TEST(other.scalars.at("train/loss").size() == 350u);
}

BOOST_AUTO_TEST_CASE(what_has_no_folder_of_its_own_is_refused) {
    const TemporaryFolder folder("export-tensorboard-refused");
    trace::Header header = trace::test::make_header(1, usual_regions);
    write_launch(folder / "runs/a", header, 1, 2, {});
    const auto refused = [&](const std::string& arguments, int code, const std::string& part) {
        const Output output = analyze(folder, "export --to tensorboard " + arguments);
        BOOST_TEST(output.code == code, output.errors);
        BOOST_TEST(output.errors.find(part) != std::string::npos, output.errors);
    };
    refused(folder / "runs/a", 2, "name their parent folder with --out");
    write_launch(folder / "runs/b", header, 1, 2, {});
    refused(folder / "runs" + " --out " + folder / "board", 2, "are runs of the same name");
    header.run_name = "../../outside";
    write_launch(folder / "odd/c", header, 1, 2, {});
    refused(folder / "odd" + " --out " + folder / "board", 3, "is not a valid run name");
    std::ofstream(folder / "table.csv") << "run,ranks,total\nx,1,10\n";
    BOOST_TEST(analyze(folder, "import " + folder / "table.csv" + " --out " + folder / "imported").code == 0);
    refused(folder / "imported/x" + " --out " + folder / "board", 2, "was imported from a table");
    std::ofstream(folder / "file") << "";
    refused(folder / "runs/a" + " --out " + folder / "file", 2, "cannot be created");
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
                BOOST_TEST(cells[4] == std::to_string(static_cast<std::size_t>(step) + region + 1));
            }
    }
    BOOST_TEST(!std::getline(lines, line));
    // The same in a file.
    BOOST_TEST(analyze(folder, "export " + run + " --to csv --out " + folder / "run.csv").code == 0);
    BOOST_TEST((read_text(folder / "run.csv") == output.text));
    BOOST_TEST(folder.unfinished() == 0);
    write_text(folder / "run.csv.tmp", "of the user");
    BOOST_TEST(analyze(folder, "export " + run + " --to csv --out " + folder / "run.csv").code == 0);
    BOOST_TEST(read_text(folder / "run.csv.tmp") == "of the user");
}

BOOST_AUTO_TEST_CASE(more_than_is_read_at_once) {
    const TemporaryFolder folder("export-large");
    constexpr std::int64_t steps = 350;
    constexpr std::size_t ranks = 512;
    const std::vector<std::string> regions = {"epoch", "epoch/step"};
    write_launch(folder / "run", trace::test::make_header(ranks, regions), 1, steps, {});
    BOOST_TEST(analyze(folder, "export " + folder / "run" + " --to csv --out " + folder / "run.csv").code == 0);
    std::ifstream lines(folder / "run.csv");
    std::string line;
    std::size_t wrong = 0;
    BOOST_TEST(static_cast<bool>(std::getline(lines, line)));
    for (std::int64_t step = 1; step <= steps; ++step)
        for (std::size_t rank = 0; rank < ranks; ++rank)
            for (std::size_t region = 0; region < regions.size(); ++region) {
                const std::string begin =
                    std::to_string(step) + "," + std::to_string(rank) + "," + regions[region] + ",";
                const std::string end = "," + std::to_string(static_cast<std::size_t>(step) + region + 1);
                const bool right = std::getline(lines, line) && line.size() > begin.size() + end.size() &&
                                   line.compare(0, begin.size(), begin) == 0 &&
                                   line.compare(line.size() - end.size(), end.size(), end) == 0 &&
                                   std::stod(line.substr(begin.size())) == trace::test::known_time(step, rank, region);
                if (!right) ++wrong;
            }
    BOOST_TEST(wrong == 0u);
    BOOST_TEST(!std::getline(lines, line));
}

BOOST_AUTO_TEST_CASE(quotes_and_cells_without_a_number) {
    const TemporaryFolder folder("export-quotes");
    const std::vector<std::string> regions = {"a, b", "say \"x\"", "two\nlines", "é \xff", "a\rreturn"};
    const trace::Header header = trace::test::make_header(1, regions);
    trace::RowBatch block = trace::test::make_block(header, 7, 1);
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
               "7,0,\"a\rreturn\",0,4\n");
}

BOOST_AUTO_TEST_CASE(one_run_at_a_time) {
    const TemporaryFolder folder("export-two");
    for (const std::string name : {"runs/a", "runs/b"})
        write_launch(folder / name, trace::test::make_header(1, usual_regions), 1, 2, {});
    for (const std::string& runs : {folder / "runs", folder / "runs/a " + folder / "runs/b"})
        for (const std::string format : {"csv", "chrome"}) {
            const Output output = analyze(folder, "export " + runs + " --to " + format);
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, "--to " + format + " takes one run, not 2"));
            BOOST_TEST(output.text == "");
        }
    const Output output = analyze(folder, "export " + folder / "runs/a" + " --to xml");
    BOOST_TEST(output.code == 2);
    BOOST_TEST(holds(output.errors, "xml"));
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
    const ExtraP text(read_text(folder / "p.txt"));
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
    for (const std::size_t ranks : {std::size_t{2}, std::size_t{4}})
        write_scaling_run(folder / ("b16g" + std::to_string(ranks)), ranks, 2.0, "", false, 16);
    for (const std::string& series :
         {folder / "g1 " + folder / "g2", folder / "b16g2 " + folder / "b16g4", folder / "g1 " + folder / "b16g2"}) {
        const Output output = analyze(folder, "export --to extra-p " + series);
        BOOST_TEST(output.code == 0);
        BOOST_TEST(ExtraP(output.text).points.size() == 2u);
    }
    struct Case {
        std::string runs, words;
    };
    const std::vector<Case> cases = {
        {folder / "g1", "Extra-P needs runs on different numbers of ranks; these are all on 1"},
        {folder / "g2 " + folder / "g2-again", "Extra-P needs runs on different numbers of ranks; these are all on 2"},
        {folder / "g1 " + folder / "g2 " + folder / "g2-tensor",
         folder / "g1" + " and " + folder / "g2-tensor" +
             " are not of one scaling series: they differ in parallel.tensor (1, 2); give runs"},
        {folder / "g1 " + folder / "b16g4", folder / "g1" + " and " + folder / "b16g4" +
                                                " are not of one scaling series: they differ in batch.global (8, 16)"},
        {folder / "g1 " + folder / "b16g2 " + folder / "b16g4", "they differ in batch.global (8, 16)"},
        {folder / "g1 " + folder / "b16g2 " + folder / "g2", "they differ in batch.global (16, 8)"},
    };
    for (const Case& one : cases) {
        const Output output = analyze(folder, "export --to extra-p " + one.runs + " --out " + folder / "p.txt");
        BOOST_TEST_CONTEXT(output.errors) {
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, one.words));
            BOOST_TEST(!fs::exists(folder / "p.txt"));
            BOOST_TEST(folder.unfinished() == 0);
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
        BOOST_TEST(read_text(target) == "earlier");
        BOOST_TEST(folder.unfinished() == 0);
    };
    for (const std::string format : {"csv", "chrome"}) {
        BOOST_TEST_CONTEXT(format) {
            const std::string command = "export " + folder / "run" + " --to " + format;
            write_text(target, "earlier");
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
            BOOST_TEST(holds(output.errors, "missing/out cannot be written: No such file or directory"));
            output = analyze(folder, command + " --out " + folder.string());
            BOOST_TEST(output.code == 2);
            BOOST_TEST(holds(output.errors, folder.string() + " is a folder; give --out a file"));
            if (::geteuid() != 0) {  // nothing is forbidden to root
                fs::create_directories(folder / "closed");
                fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
                output = analyze(folder, command + " --out " + folder / "closed/out");
                BOOST_TEST(output.code == 2);
                BOOST_TEST(holds(output.errors, "closed/out cannot be written: Permission denied"));
            }
            output = analyze(folder, command + " >/dev/full");
            BOOST_TEST(output.code == 1);
            BOOST_TEST(holds(output.errors, "the output cannot be written: No space left on device"));
            // With nothing in the way it replaces what was there.
            BOOST_TEST(analyze(folder, command + " --out " + target).code == 0);
            BOOST_TEST((read_text(target) == analyze(folder, command).text));
            BOOST_TEST(folder.unfinished() == 0);
        }
    }
    // The second file is damaged, which is seen only when the first one is written.
    trace::Header again = header;
    again.start_time += 100;
    write_launch(folder / "run", again, 2001, 2, {event(2001, 5, 1, 0, 1000)});
    write_text(target, "earlier");
    const Output output = analyze(folder, "export " + folder / "run" + " --to chrome --out " + target);
    BOOST_TEST(output.code == 3);
    BOOST_TEST(holds(output.errors, "trace-002.h5 is damaged: an event refers to rank 5 and region 1"));
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
    BOOST_TEST(folder.unfinished() == 0);

    write_text(folder / "file.csv", "earlier");
    fs::create_symlink("file.csv", folder / "link.csv");
    BOOST_TEST(analyze(folder, command + " --out " + folder / "link.csv").code == 0);
    BOOST_TEST(fs::is_symlink(folder / "link.csv"));
    BOOST_TEST(read_text(folder / "file.csv") == expected);
}

BOOST_AUTO_TEST_SUITE_END()
