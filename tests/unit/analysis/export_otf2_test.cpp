// OTF2 archives, read back with OTF2's own library and printed by otf2-print where there is one. A build without the
// library refuses to write them.
#include <cstdlib>
#include <filesystem>

#include "unit/analysis/export_runs.hpp"
#include "unit/analysis/otf2_archive.hpp"
#include "unit/analysis/program.hpp"

using namespace lockstep;
using namespace lockstep::analysis::test;
using trace::test::TemporaryFolder;

namespace {
namespace fs = std::filesystem;
}  // namespace

BOOST_AUTO_TEST_SUITE(otf2)

#ifndef LOCKSTEP_OTF2

BOOST_AUTO_TEST_CASE(a_build_without_the_library_says_which_package_it_lacks) {
    const TemporaryFolder folder("export-otf2-missing");
    std::vector<trace::EventRow> events;
    add_step(events, 1, 0);
    write_launch(folder / "run", trace::test::make_header(1, usual_regions), 1, 2, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 2);
    BOOST_TEST(holds(output.errors, "built without OTF2; install OTF2 3 (Debian: libopen-trace-format2-dev)"));
    BOOST_TEST(!fs::exists(folder / "archive"));
    BOOST_TEST(holds(analyze(folder, "--version").text, "OTF2: no"));
}

#else

namespace {

// What otf2-print says of the archive; it has to say that all is well.
void print(const TemporaryFolder& folder, const std::string& archive) {
    if (std::system("command -v otf2-print >/dev/null") != 0) {
        BOOST_TEST_MESSAGE("skipped: there is no otf2-print here");
        return;
    }
    const std::string command =
        "otf2-print -Werror --show-all " + archive + "/traces.otf2 >/dev/null 2>" + folder / "printed";
    const bool printed = std::system(command.c_str()) == 0;
    BOOST_TEST(printed, (printed ? "" : read_text(folder / "printed")));
}

// What add_step becomes, outermost first, `shift` later.
void expect_step(std::vector<Otf2Stretch>& stretches, std::int64_t step, std::int64_t rank, std::int64_t shift) {
    const std::int64_t start = shift + step * 1'000'000'000 + rank * 1001;
    stretches.push_back({"epoch", step, start, start + 80'000'000});
    stretches.push_back({"epoch/step", step, start, start + 70'000'000});
    stretches.push_back({"epoch/step/forward", step, start, start + 20'000'003});
    stretches.push_back({"epoch/step/backward", step, start + 20'000'003, start + 60'000'007});
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_event_is_where_it_was_on_its_rank) {
    const TemporaryFolder folder("export-otf2");
    trace::Header header = trace::test::make_header(
        3, {"epoch", "epoch/step", "epoch/step/forward", "epoch/step/backward", "epoch/step/communication",
            "epoch/step/communication/data", "epoch/step/communication/pipeline", "epoch/step/data_movement"});
    header.ranks[1].gpu = "NVIDIA H100 0000:1b:00.0";
    std::vector<trace::EventRow> events;
    for (const std::int64_t step : {1, 10})
        for (const std::int32_t rank : {2, 0, 1}) add_step(events, step, rank);
    // Of no length, at the start and at the end of what is around it.
    events.push_back(event(1, 0, 2, 1'000'000'000, 1'000'000'000));
    events.push_back(event(1, 0, 2, 1'080'000'000, 1'080'000'000));
    write_launch(folder / "run", header, 1, 12, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive/");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    BOOST_TEST(!fs::exists(folder / "archive.tmp"));
    print(folder, folder / "archive");
    const Otf2Shows shows(folder / "archive");
    BOOST_TEST(shows.ticks_per_second == 1'000'000'000u);
    // The first event begins one second after the run.
    constexpr std::int64_t begin = 1'000'000'000;
    BOOST_TEST(shows.since_1970 == 1'000'000'001'000'000'000u);
    BOOST_TEST((shows.groups ==
                std::map<std::string, std::string>{{"rank 0", "node0"}, {"rank 1", "node0"}, {"rank 2", "node1"}}));
    for (const std::int64_t rank : {0, 1, 2}) {
        std::vector<Otf2Stretch> expected;
        expect_step(expected, 1, rank, -begin);
        if (rank == 0) {
            expected.insert(expected.begin() + 3, {"epoch/step/forward", 1, 0, 0});
            expected.push_back({"epoch/step/forward", 1, 80'000'000, 80'000'000});
        }
        expect_step(expected, 10, rank, -begin);
        BOOST_TEST(shows.stretches.at("rank " + std::to_string(rank)) == expected, boost::test_tools::per_element());
        const auto& memory = shows.memory.at("rank " + std::to_string(rank));
        BOOST_REQUIRE(memory.size() == 12u);
        for (std::int64_t step = 1; step <= 12; ++step) {
            const std::int64_t bytes = step * 1000 + rank * 10;
            BOOST_TEST((memory[static_cast<std::size_t>(step - 1)] ==
                        std::vector<std::int64_t>{step * 1'000'000'000 - begin, bytes, bytes + 1, bytes + 2}));
        }
    }
    BOOST_TEST(shows.enters == 26u);
    BOOST_TEST(shows.leaves == 26u);
    BOOST_TEST(shows.roles.at("epoch/step/communication/pipeline") == OTF2_REGION_ROLE_POINT2POINT);
    BOOST_TEST(shows.roles.at("epoch/step/communication/data") == OTF2_REGION_ROLE_COLL_OTHER);
    BOOST_TEST(shows.roles.at("epoch/step/data_movement") == OTF2_REGION_ROLE_DATA_TRANSFER);
    BOOST_TEST(shows.roles.at("epoch/step/forward") == OTF2_REGION_ROLE_CODE);
    BOOST_TEST(shows.properties.at("LOCKSTEP::MODEL::MIXER") == "ttt-linear");
    BOOST_TEST(shows.properties.at("LOCKSTEP::RANKS") == "3");
    BOOST_TEST(holds(analyze(folder, "--version").text, "OTF2: yes"));
}

BOOST_AUTO_TEST_CASE(what_can_not_be_shown_as_it_is_is_said) {
    const TemporaryFolder folder("export-otf2-odd");
    std::vector<trace::EventRow> events;
    add_step(events, 1, 0);
    events.push_back({2, 0, 1, std::numeric_limits<double>::quiet_NaN(), 2.0});
    events.push_back({2, 0, 1, 2.0, 1.0});
    events.push_back(event(3, 0, 1, 3'000'000'000, 3'000'002'000));
    events.push_back(event(3, 0, 2, 3'000'001'000, 3'000'009'000));  // ends after the step around it
    events.push_back(event(3, 0, 3, -1500, -500));                   // before rank 0's clock zero
    write_launch(folder / "run", trace::test::make_header(1, usual_regions), 1, 3, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(holds(output.errors, "left out 2 events with an impossible time"));
    BOOST_TEST(holds(output.errors, "shortened 1 event that extended beyond the end of the enclosing event"));
    print(folder, folder / "archive");
    std::vector<Otf2Stretch> expected = {{"epoch/step/backward", 3, 0, 1000}};
    expect_step(expected, 1, 0, 1500);
    expected.push_back({"epoch/step", 3, 3'000'001'500, 3'000'003'500});
    expected.push_back({"epoch/step/forward", 3, 3'000'002'500, 3'000'003'500});
    BOOST_TEST(Otf2Shows(folder / "archive").stretches.at("rank 0") == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(launches_follow_one_another_without_what_was_made_again) {
    const TemporaryFolder folder("export-otf2-launches");
    write_launch_in_two_files(folder / "run");
    // From step 3 on again, an hour later, with a region more.
    std::vector<std::string> regions = {"initialization"};
    regions.insert(regions.end(), usual_regions.begin(), usual_regions.end());
    trace::Header again = trace::test::make_header(1, regions);
    again.start_time += 3600.5;
    std::vector<trace::EventRow> events;
    add_step(events, 3, 0);
    for (trace::EventRow& row : events) ++row.region;
    write_launch(folder / "run", again, 3, 2, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 0);
    print(folder, folder / "archive");
    const Otf2Shows shows(folder / "archive");
    BOOST_TEST((shows.groups == std::map<std::string, std::string>{{"launch 1, rank 0", "node0"},
                                                                   {"launch 1, rank 1", "node0"},
                                                                   {"launch 2, rank 0", "node0"}}));
    std::map<std::string, std::vector<Otf2Stretch> > expected;
    constexpr std::int64_t begin = 1'000'000'000, hour = 3'600'500'000'000;
    expect_step(expected["launch 1, rank 0"], 1, 0, -begin);
    expect_step(expected["launch 1, rank 1"], 1, 1, -begin);
    expect_step(expected["launch 2, rank 0"], 3, 0, hour - begin);
    BOOST_TEST(shows.stretches.size() == expected.size());
    for (const auto& [name, wanted] : expected)
        BOOST_TEST(shows.stretches.at(name) == wanted, boost::test_tools::per_element());
    BOOST_TEST(shows.memory.at("launch 1, rank 1").size() == 2u);
    BOOST_TEST(shows.memory.at("launch 2, rank 0").size() == 2u);
}

BOOST_AUTO_TEST_CASE(nothing_goes_back_in_time) {
    const TemporaryFolder folder("export-otf2-back");
    const trace::Header header = trace::test::make_header(1, usual_regions);
    trace::WriterLimits limits;
    limits.file_bytes = 1;
    limits.fewest_rows = 4;
    trace::TraceWriter writer(folder / "run", header, 8, limits);
    trace::RowBatch block = trace::test::make_block(header, 1, 4);
    block.steps[2].wall_time -= 1.5;  // before that of the row before it: somebody set the clock
    add_step(block.events, 2, 0);
    writer.append(block);
    block = trace::test::make_block(header, 5, 4);
    block.events.push_back(event(5, 0, 1, 2'079'999'999, 2'100'000'000));
    add_step(block.events, 5, 0);
    writer.append(block);
    writer.finish();
    BOOST_REQUIRE(fs::exists(folder / "run/trace-002.h5"));
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(holds(output.errors, "left out 2 events from before the end of an earlier trace file or step"));
    print(folder, folder / "archive");
    const Otf2Shows shows(folder / "archive");
    std::vector<Otf2Stretch> expected;
    expect_step(expected, 2, 0, -1'000'000'000);  // the first row ends one second after the run's beginning
    expect_step(expected, 5, 0, -1'000'000'000);
    BOOST_TEST(shows.stretches.at("rank 0") == expected, boost::test_tools::per_element());
    BOOST_TEST(shows.memory.at("rank 0").size() == 7u);
}

BOOST_AUTO_TEST_CASE(more_events_and_ranks_than_are_held_at_once) {
    const TemporaryFolder folder("export-otf2-many");
    constexpr std::int32_t ranks = 300;
    constexpr std::int64_t stretches = 40'000;  // of rank 299, about 1 MiB
    std::vector<trace::EventRow> events;
    for (std::int32_t rank = 0; rank < ranks; ++rank) events.push_back(event(1, rank, 0, 0, 1000));
    for (std::int64_t i = 1; i < stretches; ++i) events.push_back(event(1, 299, 1, i * 1000, i * 1000 + 500));
    write_launch(folder / "run", trace::test::make_header(ranks, {"epoch", "validation"}), 1, 1, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    print(folder, folder / "archive");
    const Otf2Shows shows(folder / "archive");
    BOOST_TEST(shows.groups.size() == 300u);
    BOOST_TEST(shows.stretches.size() == 300u);
    for (const std::string name : {"rank 0", "rank 255", "rank 256"}) BOOST_TEST(shows.stretches.at(name).size() == 1u);
    const auto& last = shows.stretches.at("rank 299");
    BOOST_REQUIRE(last.size() == static_cast<std::size_t>(stretches));
    BOOST_TEST(last.back() == (Otf2Stretch{"validation", 1, (stretches - 1) * 1000, (stretches - 1) * 1000 + 500}));
}

BOOST_AUTO_TEST_CASE(names_stay_names) {
    const TemporaryFolder folder("export-otf2-names");
    const std::string replaced = "\xef\xbf\xbd", broken = "x\xff\xc3(y", mended = "x" + replaced + replaced + "(y";
    trace::Header header = trace::test::make_header(1, {"epoch", "a\"b\n\a", "é世🚀", broken});
    header.ranks[0].host = broken;
    header.description += "[notes]\n'é' = 'say \"x\"'\n'a.b' = 'two\\nlines = 2'\n'' = 'nothing'\n";
    header.description += "a-b = 1\na_b = 2\nempty = ''\nlong = '" + std::string(100'000, 'l') + "'\n";
    std::vector<trace::EventRow> events;
    for (const std::int32_t region : {0, 1, 2, 3}) events.push_back(event(1, 0, region, region * 1000, region * 1000));
    write_launch(folder / "run", header, 1, 1, events);
    const Output output = analyze(folder, "export " + folder / "run" + " --to otf2 --out " + folder / "archive");
    BOOST_TEST(output.code == 0);
    BOOST_TEST(output.errors == "");
    print(folder, folder / "archive");
    const Otf2Shows shows(folder / "archive");
    BOOST_TEST(shows.groups.at("rank 0") == mended);
    std::vector<std::string> names;
    for (const Otf2Stretch& one : shows.stretches.at("rank 0")) names.push_back(one.region);
    BOOST_TEST((names == std::vector<std::string>{"epoch", "a\"b\n\a", "é世🚀", mended}));
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::__") == "say \"x\"");
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::A::B") == "two\\nlines = 2");
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::_") == "nothing");
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::A_B") == "1");
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::A_B_2") == "2");
    BOOST_TEST(shows.properties.at("LOCKSTEP::NOTES::LONG").size() == 100'000u);
    BOOST_TEST(shows.properties.count("LOCKSTEP::NOTES::EMPTY") == 0u);
}

BOOST_AUTO_TEST_CASE(an_archive_is_written_as_a_whole_or_not_at_all) {
    const TemporaryFolder folder("export-otf2-whole");
    const trace::Header header = trace::test::make_header(2, usual_regions);
    std::vector<trace::EventRow> events;
    add_step(events, 1, 0);
    write_launch(folder / "none", header, 1, 5, {});
    write_launch(folder / "run", header, 1, 2000, events);
    fs::create_directories(folder / "there");
    write_text(folder / "file", "earlier");
    fs::create_directories(folder / "other.tmp");
    fs::create_symlink("nowhere", folder / "link");
    struct Case {
        std::string words;
        int code;
        std::string says;
    };
    const std::vector<Case> cases = {
        {"run", 2, "--to otf2 writes a folder; name it with --out"},
        {"run --out " + folder / "there", 2, folder / "there exists; give --out a new name"},
        {"run --out " + folder / "file", 2, folder / "file exists; give --out a new name"},
        {"run --out " + folder / "link", 2, folder / "link exists; give --out a new name"},
        {"run --out " + folder / "other", 2,
         folder / "other.tmp exists: another export is writing it, or one was killed"},
        {"run --out " + folder / "missing/out", 2, "missing/out.tmp cannot be created: No such file or directory"},
        {"none --out " + folder / "out", 2, folder / "none has no events; lockstep train records those of"},
        {"run " + folder / "none --out " + folder / "out", 2, "--to otf2 takes one run, not 2"},
    };
    for (const Case& one : cases) {
        const Output output = analyze(folder, "export --to otf2 " + folder / one.words);
        BOOST_TEST_CONTEXT(one.words << ": " << output.errors) {
            BOOST_TEST(output.code == one.code);
            BOOST_TEST(holds(output.errors, one.says));
            BOOST_TEST(output.text == "");
            for (const std::string name : {"out", "out.tmp", "there.tmp", "missing"})
                BOOST_TEST(!fs::exists(folder / name));
        }
    }
    BOOST_TEST(fs::is_empty(folder / "there"));
    BOOST_TEST(read_text(folder / "file") == "earlier");
    // The disk is full: in the midst of the events (in units of 512 bytes), and only when files are closed.
    for (const std::string blocks : {"60", "2", "1"}) {
        const Output output =
            analyze(folder, "export --to otf2 " + folder / "run --out " + folder / "out", "ulimit -f " + blocks + ";");
        BOOST_TEST_CONTEXT(blocks << " blocks: " << output.errors) {
            BOOST_TEST(output.code == 1);
            BOOST_TEST(holds(output.errors, folder / "out cannot be written: OTF2 reports: "));
            BOOST_TEST(!fs::exists(folder / "out"));
            BOOST_TEST(!fs::exists(folder / "out.tmp"));
        }
    }
    // The second file is damaged.
    trace::Header again = header;
    again.start_time += 100;
    write_launch(folder / "run", again, 2001, 2, {event(2001, 5, 1, 0, 1000)});
    const Output output = analyze(folder, "export --to otf2 " + folder / "run --out " + folder / "out");
    BOOST_TEST(output.code == 3);
    BOOST_TEST(holds(output.errors, "trace-002.h5 is damaged: an event refers to rank 5 and region 1"));
    BOOST_TEST(!fs::exists(folder / "out"));
    BOOST_TEST(!fs::exists(folder / "out.tmp"));
}

#endif

BOOST_AUTO_TEST_SUITE_END()
