// Tables of measured times: what is read from them, what is refused, what is remarked on, and the traces they become.
#define BOOST_TEST_MODULE import
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "analysis/exchange/imported_table.hpp"
#include "analysis/exchange/imported_trace.hpp"
#include "analysis/load/settings.hpp"
#include "base/error.hpp"
#include "trace/reader.hpp"
#include "unit/analysis/text.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using analysis::test::holds;
using analysis::test::read_text;
using trace::test::TemporaryFolder;

namespace {

class Tables {
  public:
    std::string file(const std::string& text) const {
        const std::string path = folder_ / "table.csv";
        std::ofstream(path, std::ios::binary) << text;
        return path;
    }
    std::vector<ImportedRun> runs(const std::string& text) {
        return runs_of_table(read_csv_table(file(text)), warnings);
    }
    // "" where the table is taken; otherwise the sentence. Every refusal is a usage error.
    std::string refusal(const std::string& text) {
        try {
            runs(text);
        } catch (const Error& problem) {
            BOOST_TEST(static_cast<int>(problem.code()) == 2);
            return problem.what();
        }
        return "";
    }
    bool refuses(const std::string& text, const std::string& words) {
        const std::string sentence = refusal(text);
        BOOST_TEST_MESSAGE(sentence);
        return sentence.find(words) != std::string::npos && sentence.find("table.csv") != std::string::npos;
    }
    // The remarks of all runs, in one text.
    std::string remarks(const std::string& text) {
        std::string all;
        for (const ImportedRun& run : runs(text))
            for (const std::string& remark : run.remarks) all += run.name + ": " + remark + "\n";
        return all;
    }
    const TemporaryFolder& folder() const { return folder_; }

    std::vector<std::string> warnings;

  private:
    TemporaryFolder folder_{"import"};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_csv_is_read_as_rfc_4180_says) {
    const Tables tables;
    const CsvTable table =
        read_csv_table(tables.file("\xef\xbb\xbf# what was measured, and where\r\n\r\nrun, \"a \"\"b\"\"\" ,c\r\n"
                                   "one,\"x, y\", 3 \r\n   \r\n  # a comment\r\ntwo,\"two\r\nlines\",\r\nlast,\"\",é"));
    BOOST_TEST((table.header.fields == std::vector<std::string>{"run", "a \"b\"", "c"}));
    BOOST_TEST(table.header.line == 3u);
    BOOST_REQUIRE(table.rows.size() == 3u);
    BOOST_TEST((table.rows[0].fields == std::vector<std::string>{"one", "x, y", "3"}));
    BOOST_TEST((table.rows[1].fields == std::vector<std::string>{"two", "two\r\nlines", ""}));
    BOOST_TEST((table.rows[2].fields == std::vector<std::string>{"last", "", "é"}));
    BOOST_TEST(table.rows[0].line == 4u);
    BOOST_TEST(table.rows[1].line == 7u);
    BOOST_TEST(table.rows[2].line == 9u);  // the row before it has two lines
}

BOOST_AUTO_TEST_CASE(what_is_no_csv_is_refused_with_its_line) {
    Tables tables;
    BOOST_TEST(tables.refuses("run;ranks\na;1\n", "line 1: the columns are separated by semicolons"));
    BOOST_TEST(tables.refuses("run\tranks\na\t1\n", "separated by tabs"));
    BOOST_TEST(tables.refuses("", "is empty"));
    BOOST_TEST(tables.refuses("# nothing\n\n", "is empty"));
    BOOST_TEST(tables.refuses("run,ranks\n", "has no rows"));
    BOOST_TEST(tables.refuses("run,ranks\na,1\n\nb,1,2\n", "line 4: 3 fields, but the header in line 1 names 2"));
    BOOST_TEST(tables.refuses("run,ranks\n\"a,1\nb,2\n", "line 2: unterminated quote"));
    BOOST_TEST(tables.refuses("run,ranks\n\"a\"b,1\n", "line 2: text after a closing quote"));
    BOOST_TEST(tables.refuses("run,ranks\na\"b,1\n", "line 2: a quote in an unquoted field"));
    BOOST_TEST(tables.refuses("run,ranks,ranks\na,1,1\n", "duplicate column 'ranks'"));
    BOOST_TEST(tables.refuses("run,ranks\na\xff,1\n", "line 2: not UTF-8"));
    BOOST_TEST(tables.refuses(std::string("run,ranks\na\0,1\n", 14), "line 2: not UTF-8"));
    BOOST_CHECK_EXCEPTION(read_csv_table(tables.folder() / "missing.csv"), Error,
                          [](const Error& error) { return holds(error.what(), "does not exist"); });
    BOOST_CHECK_EXCEPTION(read_csv_table(tables.folder().string()), Error,
                          [](const Error& error) { return holds(error.what(), "is not a file"); });
}

BOOST_AUTO_TEST_CASE(cells_that_cannot_be_are_refused_with_their_line) {
    Tables tables;
    BOOST_TEST(tables.refuses("run,total\na,2\n", "line 1: no column says how many ranks a run has"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,,2\n", "line 2: run a has no number of ranks"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,abc\n", "line 2: total 'abc' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,1.5s\n", "line 2: total '1.5s' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,\"1,234\"\n", "line 2: total '1,234' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,nan\n", "'nan' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,inf\n", "'inf' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,-1\n", "line 2: total '-1' is negative"));
    BOOST_TEST(tables.refuses("run,ranks\na,0\n", "ranks '0' is less than 1"));
    BOOST_TEST(tables.refuses("run,ranks\na,1.5\n", "ranks '1.5' is not a whole number"));
    BOOST_TEST(tables.refuses("run,ranks\na,1e9\n", "line 2: ranks '1e9' is more than 131072"));
    BOOST_TEST(tables.refuses("run,rank\na,1e9\n", "line 2: rank '1e9' is more than 131071"));
    BOOST_TEST(tables.refuses("run,ranks,rank\na,2,0\na,2,2\n", "line 3: rank 2 of run a, which has 2 ranks"));
    BOOST_TEST(tables.refuses("run,ranks,rank\na,2,0\n\na,2,0\n", "line 4: rank 0 of run a is already in line 2"));
    BOOST_TEST(tables.refuses("run,ranks\na,2\nb,1\na,2\n", "line 4: run a is already in line 2"));
    BOOST_TEST(tables.refuses("run,ranks,rank\na,2,0\na,2,\n", "line 3: run a has a row for all of its ranks and"));
    BOOST_TEST(
        tables.refuses("run,ranks,rank\na,2,0\na,4,1\n", "line 3: ranks is 4, but 2 in an earlier row of run a"));
    BOOST_TEST(tables.refuses("run,ranks,rank,batch\na,2,0,8\na,2,1,16\n", "line 3: batch is 16, but 8"));
    for (const char* name : {"..", "a/b", "a b", ".hidden", "é"})
        BOOST_TEST(tables.refuses(fmt::format("run,ranks\n{},1\n", name), "cannot name a folder"));
    BOOST_TEST(tables.refuses("run,ranks\n,1\n", "line 2: the run has no name"));
}

BOOST_AUTO_TEST_CASE(numbers_beyond_what_is_measured_are_refused_with_their_line) {
    Tables tables;
    for (const char* name : {"total", "forward", "initialization", "tokens_per_second"}) {
        const auto table = [&](const char* value) { return fmt::format("run,ranks,{}\na,1,1\nb,1,{}\n", name, value); };
        BOOST_TEST(tables.refuses(table("1.01e12"), fmt::format("line 3: {} '1.01e12' is more than 1e12", name)));
        BOOST_TEST(
            tables.refuses(table("9e-13"), fmt::format("line 3: {} '9e-13' is less than 1e-12, but not 0", name)));
        BOOST_TEST(tables.refuses(table("1e-400"), "'1e-400' is too large or too small"));
        BOOST_TEST(tables.refuses(table("1e400"), "'1e400' is too large or too small"));
        for (const char* value : {"1e12", "1e-12", "0"}) BOOST_TEST(tables.refusal(table(value)) == "");
    }
    struct Limit {
        const char *column, *most, *beyond;
    };
    for (const Limit& limit : {Limit{"tokens", "1000000000000000000", "1000000000000000001"},
                               {"peak_memory_bytes", "1152921504606846976", "1.2e18"},
                               {"batch", "1099511627776", "1099511627777"},
                               {"accumulation", "1099511627776", "1e30"},
                               {"length", "1099511627776", "1099511627777"},
                               {"data", "1048576", "1048577"},
                               {"tensor", "1048576", "1e15"},
                               {"pipeline", "1048576", "1048577"},
                               {"context", "1048576", "1048577"}}) {
        const auto table = [&](const char* value) {
            return fmt::format("run,ranks,total,{}\na,1,2,{}\n", limit.column, value);
        };
        BOOST_TEST(tables.refusal(table(limit.most)) == "");
        BOOST_TEST(tables.refuses(table(limit.beyond), fmt::format("line 2: {} '{}' is more than {}", limit.column,
                                                                   limit.beyond, limit.most)));
    }
    BOOST_TEST(tables.runs("run,ranks,total,tokens\na,1,2,9007199254740993\n")[0].setting("tokens") ==
               9007199254740993);
}

BOOST_AUTO_TEST_CASE(a_cell_is_shown_on_one_line) {
    Tables tables;
    BOOST_TEST(tables.refuses("run,ranks,total\na,1,\"x\ry\nz\"\n", "total 'x y z' is not a number"));
    BOOST_TEST(tables.refuses("run,ranks,total\na,1," + std::string(1000, 'x') + "\n",
                              "total '" + std::string(60, 'x') + "…' is not a number"));
}

BOOST_AUTO_TEST_CASE(rows_become_runs) {
    Tables tables;
    const auto runs = tables.runs(
        "run,ranks,rank,batch,total,forward,tokens_per_second,peak_memory_bytes,forwards\n"
        "b,4,,64,10,6,100,,x\n"
        "a,2,1,64,8.5,,51,2048,\n"
        "a,,0,,9,,50,1024,\n");
    BOOST_REQUIRE(tables.warnings.size() == 1u);
    BOOST_TEST(tables.warnings[0] == "unknown column 'forwards' is ignored (did you mean forward?)");
    BOOST_REQUIRE(runs.size() == 2u);
    BOOST_TEST(runs[0].name == "b");
    BOOST_TEST(runs[0].whole);
    BOOST_TEST(runs[0].ranks == 4);
    BOOST_TEST(runs[0].rank[3].at(TimeColumn::forward) == 6.0);
    BOOST_TEST(runs[0].tokens_per_second() == 100.0);
    BOOST_TEST(!runs[1].whole);
    BOOST_TEST(runs[1].setting("batch") == 64);
    BOOST_TEST(runs[1].rank[0].at(TimeColumn::total) == 9.0);
    BOOST_TEST(runs[1].rank[1].peak_memory == 2048);
    BOOST_TEST(std::isnan(runs[1].rank[0].at(TimeColumn::forward)));
    BOOST_TEST(runs[1].slowest_total() == 9.0);
    BOOST_TEST(runs[1].tokens_per_second() == 101.0);
    BOOST_TEST((runs[1].lines == std::vector<std::size_t>{3, 4}));
}

BOOST_AUTO_TEST_CASE(usual_names_are_understood_and_said) {
    Tables tables;
    const auto runs = tables.runs("nprocs,Wall Time [s],nodes,Comm\n1,10,1,\n4,2.9,2,0.4\n4,3.1,2,0.5\n");
    BOOST_REQUIRE(runs.size() == 3u);
    BOOST_TEST(runs[0].name == "ranks-1");
    BOOST_TEST(runs[1].name == "ranks-4");
    BOOST_TEST(runs[2].name == "ranks-4-2");
    BOOST_TEST(runs[2].slowest_total() == 3.1);
    BOOST_TEST(runs[1].rank[3].at(TimeColumn::communication) == 0.4);
    BOOST_TEST((tables.warnings == std::vector<std::string>{
                                       "column 'nprocs' is read as ranks", "column 'Wall Time [s]' is read as total",
                                       "unknown column 'nodes' is ignored", "column 'Comm' is read as communication"}));
    // Rows of single ranks are of one run.
    BOOST_TEST(tables.runs("gpus,rank,time\n2,0,5\n2,1,6\n").size() == 1u);
    BOOST_TEST(tables.runs("ranks,throughput\n2,500\n")[0].tokens_per_second() == 500.0);
    // The exact name is meant, wherever it stands.
    for (const char* text : {"run,ranks,cores,total\na,4,64,2\n", "run,cores,total,ranks\na,64,2,4\n"}) {
        BOOST_TEST(tables.runs(text)[0].ranks == 4);
        BOOST_TEST(tables.warnings.back() == "column 'cores' is ignored: there is a column ranks");
    }
    BOOST_TEST(tables.refuses("np,gpus,time\n4,4,2\n", "the columns 'np' and 'gpus' both mean ranks"));
    BOOST_TEST(tables.runs("config,ranks,time\nttt,1,9\nttt,2,5\n").size() == 2u);
    BOOST_TEST(tables.refuses("rank,time\n0,9\n", "no column says how many ranks a run has"));
    BOOST_TEST(tables.refuses("ranks,Time (ms)\n4,2\n", ". Columns not recognized: Time (ms)"));
    BOOST_TEST(tables.refuses("np,time\n4,soon\n", "line 2: time 'soon' is not a number"));
    BOOST_TEST(tables.refuses("np,time\n,2\n", "line 2: the run has neither a name nor a number of ranks"));
    for (const char* text : {"ranks,time_ms\n4,2\n", "run,ranks,nodes\na,4,2\n", "ranks,time\n4,\n"})
        BOOST_TEST(tables.refuses(text, "line 2: run "));
}

BOOST_AUTO_TEST_CASE(communication_is_not_lost_with_one_empty_cell) {
    Tables tables;
    const auto runs = tables.runs("ranks,total,communication\n1,10,\n2,5,0.5\n4,3,\n");
    BOOST_TEST(runs[0].rank[0].at(TimeColumn::communication) == 0.0);
    BOOST_TEST(holds(runs[0].remarks.at(0), "A single rank communicates with no one"));
    BOOST_TEST(runs[1].remarks.empty());
    BOOST_TEST(std::isnan(runs[2].rank[0].at(TimeColumn::communication)));
    BOOST_TEST(holds(runs[2].remarks.at(0), "figures that need it are left out"));
    BOOST_TEST(tables.remarks("ranks,total\n1,10\n2,5\n") == "");
}

BOOST_AUTO_TEST_CASE(numbers_that_contradict_each_other_are_remarked_on) {
    Tables tables;
    BOOST_TEST(tables.remarks("run,ranks,rank,total\na,4,0,5\na,4,2,6\n") ==
               "a: The table has 2 of 4 ranks; missing: 1, 3. The slowest may be among them.\n");
    BOOST_TEST(holds(tables.remarks("run,rank,total\na,0,5\na,1,6\n"), "the number of rows is assumed"));
    BOOST_TEST(tables.remarks("run,ranks,total,compute,communication\na,1,10,7,3.05\n") == "");
    BOOST_TEST(holds(tables.remarks("run,ranks,total,compute,communication\na,1,10,7,3.2\n"),
                     "a: Line 2: the parts of the total sum to 10.2 s, but 10 s are given; do they overlap?"));
    BOOST_TEST(holds(tables.remarks("run,ranks,total,compute,forward,backward\na,1,10,7,3,4.5\n"),
                     "forward, loss, backward and optimizer sum to 7.5 s, but 7 s are given"));
    // Without a column compute its parts are parts of the total; validation stands beside them.
    BOOST_TEST(holds(tables.remarks("run,ranks,total,forward,backward,validation\na,1,10,3,4,4\n"), "sum to 11 s"));
    BOOST_TEST(holds(tables.remarks("run,ranks,compute,communication\na,1,7,3\n"), "The table gives no total"));
    BOOST_TEST(tables.runs("run,ranks,compute,communication\na,1,7,3\n")[0].slowest_total() == 10.0);
    BOOST_TEST(tables.remarks("run,ranks,total,data,tensor,pipeline\na,8,2,2,2,2\n") == "");
    BOOST_TEST(holds(tables.remarks("run,ranks,total,data,tensor,pipeline\na,8,2,2,2,1\n"),
                     "data 2 × tensor 2 × pipeline 1 do not multiply to 8 ranks"));
    BOOST_TEST(tables.remarks("run,ranks,total,tensor\na,8,2,4\n") == "");
    BOOST_TEST(holds(tables.remarks("run,ranks,total,tensor\na,8,2,3\n"), "tensor 3 do not multiply to 8 ranks"));
    BOOST_TEST(tables.remarks("run,ranks,total,tokens_per_second,tokens\na,2,10,100,1010\n") == "");
    BOOST_TEST(holds(tables.remarks("run,ranks,total,tokens_per_second,tokens\na,2,10,100,1100\n"),
                     "Time × tokens/s is 1000 tokens, but 1100 are given (-9.1 %)"));
    // Rates of ranks add up.
    BOOST_TEST(tables.remarks("run,ranks,rank,total,tokens_per_second,tokens\na,2,0,10,50,1000\na,2,1,10,50,\n") == "");
    BOOST_TEST(tables.remarks("run,ranks,total,tokens_per_second\na,1,10,100\nb,2,5,205\n") == "");
    const std::string work = tables.remarks("run,ranks,total,tokens_per_second\na,1,10,100\nb,2,5,205\nc,4,2,700\n");
    BOOST_TEST(holds(work, "from 1000 tokens (a) to 1400 (c): they did not do the same work"));
    BOOST_TEST(std::count(work.begin(), work.end(), '\n') == 2);  // of the two that differ most
    // Work that grows with the batch is no contradiction.
    BOOST_TEST(tables.remarks("run,ranks,batch,total,tokens_per_second\na,1,8,10,100\nb,2,16,10,200\n") == "");
}

BOOST_AUTO_TEST_CASE(a_run_becomes_a_trace_of_one_row) {
    Tables tables;
    const auto runs = tables.runs(
        "run,ranks,rank,batch,accumulation,length,data,tokens,total,data_loading,compute,communication,forward,"
        "backward,validation,tokens_per_second,peak_memory_bytes\n"
        "a,3,0,64,2,128,3,900,10,0.5,6,1,2,4,2,30,1000\n"
        "a,3,2,64,2,128,3,900,9,0.5,6,,2,4,,31,\n");
    const std::string folder = tables.folder() / "runs/a";
    const std::string path = write_imported_run(runs[0], "ta\"ble.csv", folder);
    BOOST_TEST(path == folder + "/trace-001.h5");
    const std::string description = read_text(folder + "/run.toml");
    BOOST_TEST(description ==
               "[run]\nname = \"a\"\n\n[batch]\nglobal = 64\nlength = 128\naccumulation = 2\n\n[parallel]\ndata = 3\n\n"
               "[imported]\ntable = \"ta\\\"ble.csv\"\nlines = [2, 3]\nwhole = false\ntotal = [10.0, nan, 9.0]\n"
               "tokens_per_second = [30.0, nan, 31.0]\n"
               "remarks = [\"The table has 2 of 3 ranks; missing: 1. The slowest may be among them.\"]\n");
    const trace::Run run = trace::open_run(folder);
    BOOST_TEST(run.closed());
    const trace::TraceFile& file = run.parts[0].file;
    BOOST_TEST(file.header().description == description);
    BOOST_TEST(file.header().detail == "imported");
    BOOST_REQUIRE(file.steps().size() == 1u);
    BOOST_TEST(file.steps()[0].step == 1);
    BOOST_TEST(file.steps()[0].seconds == 10.0);
    BOOST_TEST(file.steps()[0].tokens == 900);
    BOOST_TEST(std::isnan(file.steps()[0].loss));
    std::vector<double> times;
    std::vector<std::uint32_t> calls;
    std::vector<std::uint64_t> memory;
    file.read_times(0, 1, times);
    file.read_calls(0, 1, calls);
    file.read_memory(0, 1, memory);
    const auto cell = [&](std::size_t rank, const std::string& name) {
        for (std::size_t i = 0; i < file.regions(); ++i)
            if (file.header().regions[i].path == name) return rank * file.regions() + i;
        BOOST_FAIL("no region " + name);
        return std::size_t{0};
    };
    BOOST_TEST(file.regions() == 8u);
    BOOST_TEST(times[cell(0, "epoch")] == 8.0);  // the roots sum to the total
    BOOST_TEST(times[cell(0, "epoch/step")] == 8.0);
    BOOST_TEST(times[cell(0, "validation")] == 2.0);
    BOOST_TEST(times[cell(0, "epoch/step/compute/forward")] == 2.0);
    BOOST_TEST(times[cell(2, "epoch/step")] == 9.0);
    BOOST_TEST(std::isnan(times[cell(1, "epoch/step")]));
    BOOST_TEST(std::isnan(times[cell(2, "epoch/step/communication")]));
    BOOST_TEST(calls[cell(0, "epoch/step/communication")] == 1u);
    BOOST_TEST(calls[cell(2, "epoch/step/communication")] == 0u);
    BOOST_TEST((memory == std::vector<std::uint64_t>{1000, 1000, 1000, 0, 0, 0, 0, 0, 0}));
}

BOOST_AUTO_TEST_CASE(a_row_without_rank_speaks_for_all_and_parts_lie_in_the_step_where_compute_is_not_given) {
    Tables tables;
    const auto runs = tables.runs("run,ranks,total,forward,backward,tokens_per_second\nw,2,10,3,6,200.5\nr,2,,,,100\n");
    write_imported_run(runs[0], "t.csv", tables.folder() / "w");
    write_imported_run(runs[1], "t.csv", tables.folder() / "r");
    BOOST_TEST(
        holds(read_text(tables.folder() / "w/run.toml"), "whole = true\ntotal = 10.0\ntokens_per_second = 200.5\n"));
    const trace::Run run = trace::open_run(tables.folder() / "w");
    const trace::TraceFile& file = run.parts[0].file;
    BOOST_TEST(file.header().regions[2].path == "epoch/step/forward");
    std::vector<double> times;
    file.read_times(0, 1, times);
    BOOST_TEST((times == std::vector<double>{10, 10, 3, 6, 10, 10, 3, 6}));
    const Imported whole = imported_of(file.header());
    BOOST_TEST(whole.whole);
    BOOST_TEST((whole.total == std::vector<double>{10}));
    // Only a rate: the times are unknown, not 0.
    const trace::Run rate = trace::open_run(tables.folder() / "r");
    rate.parts[0].file.read_times(0, 1, times);
    BOOST_TEST(std::all_of(times.begin(), times.end(), [](double seconds) { return std::isnan(seconds); }));
    BOOST_TEST(rate.parts[0].file.steps()[0].seconds == 0.0);
    BOOST_TEST(imported_of(rate.header()).total.empty());
}

BOOST_AUTO_TEST_CASE(the_total_of_the_table_is_kept_where_its_parts_exceed_it) {
    Tables tables;
    const auto runs = tables.runs(
        "run,ranks,rank,total,validation,checkpoint,initialization\n"
        "a,3,0,10,4,5,6\n"
        "a,3,1,,4,5,6\n");
    BOOST_TEST_REQUIRE(runs[0].remarks.size() == 2u);
    BOOST_TEST(runs[0].remarks[1] ==
               "Line 2: the parts of the total sum to 15 s, but 10 s are given; do they overlap?");
    write_imported_run(runs[0], "t.csv", tables.folder() / "a");
    const trace::Run run = trace::open_run(tables.folder() / "a");
    const Imported imported = imported_of(run.header());
    BOOST_TEST_REQUIRE(imported.total.size() == 3u);
    BOOST_TEST(imported.total[0] == 10.0);
    BOOST_TEST(std::isnan(imported.total[1]));
    BOOST_TEST(std::isnan(imported.total[2]));
}

BOOST_AUTO_TEST_CASE(a_run_that_is_there_is_replaced_only_when_asked_and_only_an_imported_one) {
    Tables tables;
    const auto runs = tables.runs("run,ranks,total\na,1,10\n");
    const std::string folder = tables.folder() / "a";
    check_folder(folder, false);
    write_imported_run(runs[0], "t.csv", folder);
    BOOST_CHECK_EXCEPTION(check_folder(folder, false), Error,
                          [](const Error& error) { return holds(error.what(), "replace it with --replace"); });
    check_folder(folder, true);
    BOOST_TEST(write_imported_run(runs[0], "t.csv", folder) == folder + "/trace-001.h5");
    std::ofstream(folder + "/run.toml") << "[run]\nname = 'a'\n";
    BOOST_CHECK_EXCEPTION(check_folder(folder, true), Error,
                          [](const Error& error) { return holds(error.what(), "was not imported"); });
    std::filesystem::remove(folder + "/run.toml");
    BOOST_CHECK_THROW(check_folder(folder, true), Error);
    std::filesystem::remove(folder + "/trace-001.h5");
    check_folder(folder, false);
}
