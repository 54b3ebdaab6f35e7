// The report as gnuplot draws it and as a user makes it, with names that would break out of it.
#include <cstdlib>
#include <filesystem>

#include "analysis/report/gnuplot.hpp"
#include "base/error.hpp"
#include "unit/analysis/program.hpp"
#include "unit/analysis/report_page.hpp"
#include "unit/analysis/report_runs.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using namespace lockstep::analysis::test;
using trace::test::TemporaryFolder;

BOOST_AUTO_TEST_CASE(gnuplot_draws_every_plot_of_a_hostile_name) {
    if (!gnuplot_found()) {
        BOOST_TEST_MESSAGE("skipped: there is no gnuplot here");
        return;
    }
    const TemporaryFolder folder("report-hostile");
    Report report = make_report(hostile_name);
    report.title = report.command_line = hostile_name;
    std::vector<std::string> names;
    const std::string page = report_page(report, [&](const Plot& plot) {
        names.push_back(plot.name);
        write_plot(folder.string(), plot);
        return draw(plot);
    });
    check_page(page);
    BOOST_TEST(count_of(page, "<figure ") == names.size());
    BOOST_TEST(count_of(page, "role=\"img\"") == names.size());
    for (const char* name : {"speedup", "efficiency", "factors", "phases", "loss", "step-times", "ranks-over-time-1",
                             "ranks-over-time-2", "memory-1", "memory-2"})
        BOOST_TEST(std::count(names.begin(), names.end(), name) == 1, name);
    BOOST_TEST(!holds(page, "uid="));  // what a shell would have made of `id`
    BOOST_TEST(holds(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
    // The files make the same drawing again.
    for (const std::string& name : names) {
        const std::string svg = read_text(folder / (name + ".svg"));
        std::filesystem::remove(folder / (name + ".svg"));
        BOOST_REQUIRE(std::system(("cd " + folder.string() + " && gnuplot -d " + name + ".gp 2>/dev/null").c_str()) ==
                      0);
        BOOST_TEST((read_text(folder / (name + ".svg")) == svg), name);
    }
}

BOOST_AUTO_TEST_CASE(gnuplots_failure_is_a_fault_with_its_words) {
    if (!gnuplot_found()) {
        BOOST_TEST_MESSAGE("skipped: there is no gnuplot here");
        return;
    }
    Plot plot;
    plot.name = "broken";
    plot.script = "plot nonsense of words\n";
    try {
        draw(plot);
        BOOST_ERROR("no error was thrown");
    } catch (const Error& problem) {
        BOOST_TEST((problem.code() == ExitCode::fault));
        BOOST_TEST(holds(problem.what(), "on the plot broken"), problem.what());
        BOOST_TEST(holds(problem.what(), "undefined variable"), problem.what());
    }
}

BOOST_AUTO_TEST_CASE(the_command_reports_runs) {
    const TemporaryFolder folder("report-command");
    for (const std::size_t ranks : {1, 2, 4})
        write_run(folder / ("g" + std::to_string(ranks)), "g" + std::to_string(ranks), ranks, 60);
    const auto report = [&](const std::string& arguments, const std::string& environment = "") {
        return analyze(folder, "report " + arguments, "cd " + folder.string() + " && " + environment);
    };
    const Output made = report("g1 g2 g4 --out out.html --plots plots --predict 8");
    BOOST_TEST(made.code == 0, made.errors);
    const std::string page = read_text(folder / "out.html");
    check_page(page);
    BOOST_TEST(holds(page, "Strong scaling, batch 8"));
    BOOST_TEST(holds(page, "lockstep-analyze report g1 g2 g4 --out out.html --plots plots --predict 8"));
    BOOST_TEST(holds(made.text, "out.html: "));
    if (gnuplot_found()) {
        BOOST_TEST(std::filesystem::exists(folder / "plots/speedup.gp"));
        BOOST_TEST(count_of(page, "<figure ") == 10u);
    }
    // One run alone.
    const Output alone = report("g4");
    BOOST_TEST(alone.code == 0, alone.errors);
    const std::string alone_page = read_text(folder / "report.html");
    BOOST_TEST(holds(alone_page, "A single run is not a scaling series"));
    BOOST_TEST(holds(alone_page, "<title>g4</title>"));
    // No gnuplot.
    const Output bare = report("g1 g2 --out bare.html", "PATH=/nowhere");
    BOOST_TEST(bare.code == 0, bare.errors);
    BOOST_TEST(holds(bare.errors, "gnuplot was not found"), bare.errors);
    BOOST_TEST(holds(bare.text, "bare.html: 0 plots"), bare.text);
    check_page(read_text(folder / "bare.html"));
    // A gnuplot that fails.
    std::ofstream(folder / "gnuplot") << "#!/bin/sh\necho out of ink >&2\nexit 5\n";
    std::filesystem::permissions(folder / "gnuplot", std::filesystem::perms::owner_all);
    const Output failed = report("g1 g2 --out failed.html", "PATH=" + folder.string());
    BOOST_TEST(failed.code == 1);
    BOOST_TEST(holds(failed.errors, "out of ink"), failed.errors);
    BOOST_TEST(!std::filesystem::exists(folder / "failed.html"));
    // What cannot be written.
    BOOST_TEST(report("g1 g2 --out no/such/folder.html").code == 2);
    BOOST_TEST(report("missing").code == 2);
}
