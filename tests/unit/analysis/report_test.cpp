// lockstep-analyze report: what stands on the page, names that would break out of it, plots left out and why.
#define BOOST_TEST_MODULE report
#include <sys/wait.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "analysis/report/gnuplot.hpp"
#include "analysis/report/report.hpp"
#include "analysis/report/text.hpp"
#include "base/error.hpp"
#include "unit/analysis/report_runs.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using lockstep::analysis::test::hostile_name;
using trace::test::TemporaryFolder;

namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}
std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}
std::string read_file(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Elements closed in their order, attributes quoted and no two alike, nothing bare that has a meaning. "" or what is
// wrong. A document type and the text of <style> are passed over.
std::string malformed(const std::string& text) {
    std::vector<std::string> open;
    std::size_t at = 0;
    const auto entity = [&](std::size_t i) {
        for (const char* known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"})
            if (text.compare(i, std::string(known).size(), known) == 0) return true;
        return false;
    };
    const auto where = [&](const std::string& what) { return what + " at: " + text.substr(at, 60); };
    while (at < text.size()) {
        if (text[at] == '&' && !entity(at)) return where("a bare &");
        if (text.compare(at, 3, "]]>") == 0) return where("]]>");
        if (text[at] != '<') {
            ++at;
            continue;
        }
        if (text.compare(at, 2, "<!") == 0 || text.compare(at, 2, "<?") == 0) {
            at = text.find('>', at) + 1;
            continue;
        }
        const bool closing = text[at + 1] == '/';
        std::size_t i = at + (closing ? 2 : 1);
        std::string name;
        while (std::isalnum(static_cast<unsigned char>(text[i]))) name += text[i++];
        if (name.empty()) return where("a bare <");
        if (closing) {
            if (open.empty() || open.back() != name || text[i] != '>') return where("an element closed out of order");
            open.pop_back();
            at = i + 1;
            continue;
        }
        std::set<std::string> attributes;
        while (true) {
            while (std::isspace(static_cast<unsigned char>(text[i]))) ++i;
            if (text[i] == '>' || text[i] == '/') break;
            std::string attribute;
            while (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '-') attribute += text[i++];
            while (text[i] == ' ') ++i;
            if (attribute.empty() || !attributes.insert(attribute).second || text[i] != '=')
                return where("a wrong attribute");
            do ++i;
            while (text[i] == ' ');
            const char quote = text[i];
            if (quote != '"' && quote != '\'') return where("an attribute without quotes");
            const std::size_t end = text.find(quote, i + 1);
            if (end == std::string::npos) return where("an attribute without an end");
            for (std::size_t k = i + 1; k < end; ++k)
                if (text[k] == '<' || (text[k] == '&' && !entity(k))) return where("an attribute with markup");
            i = end + 1;
        }
        if (text[i] == '/') {
            if (text[i + 1] != '>') return where("a wrong end of an element");
            at = i + 2;
            continue;
        }
        at = i + 1;
        if (name == "style")
            at = text.find("</style>", at) + 8;
        else
            open.push_back(name);
    }
    return open.empty() ? "" : "never closed: " + open.back();
}

// The values of an attribute, in their order.
std::vector<std::string> values_of(const std::string& text, const std::string& attribute) {
    std::vector<std::string> values;
    for (const char quote : {'\'', '"'}) {
        const std::string begin = " " + attribute + "=" + quote;
        for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
            const std::size_t first = at + begin.size();
            values.push_back(text.substr(first, text.find(quote, first) - first));
        }
    }
    return values;
}

// A run on so many ranks, the last of which is slower, of 40 steps.
Measurement make_run(const std::string& name, std::int64_t ranks, double seconds) {
    Measurement one;
    one.path = "runs/" + name;
    one.name = name;
    one.ranks = ranks;
    one.hosts = 1;
    one.batch = 64;
    one.accumulation = 1;
    one.started = 1.78e9;
    one.warm_up = 10;
    one.timed_steps = 40;
    one.settings = {{"batch.global", "64"}, {"threads", "4"}, {"commit", "0123456789ab"}, {"program_version", "0.1.0"}};
    for (std::int64_t step = 11; step <= 50; ++step) {
        StepSample sample;
        sample.step = step;
        sample.slowest = seconds * (1 + 0.001 * static_cast<double>(step % 7));
        sample.tokens = 1000;
        sample.compute = 0.7 * sample.slowest;
        sample.communication = 0.1 * sample.slowest;
        one.steps.push_back(sample);
    }
    for (std::int64_t step = 1; step <= 50; ++step) one.losses.emplace_back(step, 5 - 0.05 * static_cast<double>(step));
    for (std::int64_t r = 0; r < ranks; ++r) {
        RankMeasurement rank;
        rank.present = true;
        rank.seconds = seconds;
        rank.compute = seconds * (r + 1 == ranks ? 0.8 : 0.6);
        rank.communication = seconds - rank.compute;
        rank.phases.seconds[static_cast<std::size_t>(Phase::forward)] = 40 * 0.25 * seconds;
        rank.phases.seconds[static_cast<std::size_t>(Phase::backward)] = 40 * 0.5 * seconds;
        rank.phases.seconds[static_cast<std::size_t>(Phase::communication)] = 40 * 0.25 * seconds;
        rank.allocated = rank.reserved = 300u << 20;
        rank.peak = 400u << 20;
        rank.host = "node0";
        one.rank.push_back(rank);
    }
    one.heat.first_step = {11, 31};
    for (std::int64_t r = 0; r < ranks; ++r) {
        one.heat.first_rank.push_back(r);
        one.heat.seconds.insert(one.heat.seconds.end(), {seconds, r == 1 ? unknown : 1.2 * seconds});
    }
    return one;
}

ScalingPoint make_point(std::size_t run, std::int64_t ranks, double seconds, double average) {
    ScalingPoint point;
    point.runs = {run};
    point.ranks = ranks;
    point.seconds_slowest = seconds;
    point.seconds_average = average;
    point.speedup_slowest = 2 / seconds;
    point.speedup_average = 2 / average;
    point.efficiency = point.speedup_slowest / static_cast<double>(ranks);
    point.efficiency_average = point.speedup_average / static_cast<double>(ranks);
    point.load_balance = ranks > 1 ? 0.79 : 1;
    point.load_balance_by = "compute";
    point.communication_efficiency = 0.9;
    point.parallel_efficiency = 0.9 * point.load_balance;
    point.computation_scaling = 0.95;
    point.global_efficiency = 0.95 * point.parallel_efficiency;
    point.compute_seconds = 0.7 * seconds;
    point.communication_seconds = 0.1 * seconds;
    return point;
}

// Three runs in one series, with a law.
Report make_report(const std::string& first_name = "g1") {
    Report report;
    report.title = "How the runs scale";
    report.command_line = "lockstep-analyze report runs/g1";
    report.scaling.measurements = {make_run(first_name, 1, 2), make_run("g2", 2, 1.2), make_run("g4", 4, 0.8)};
    ScalingSeries series;
    series.title = "batch 64";
    series.kind_reason = "the batch is 64 in all of them";
    series.unit = "step";
    series.points = {make_point(0, 1, 2, 2), make_point(1, 2, 1.2, 0.96), make_point(2, 4, 0.8, 0.64)};
    series.points[2].remarks = {"The ranks are out of balance."};
    Fit amdahl;
    amdahl.law = "amdahl";
    amdahl.title = "Amdahl's law";
    amdahl.formula = "T(p) = T(1)·(s + (1 − s)/p)";
    amdahl.parameters = {{"serial_share", "serial share s", 0.2, {0.19, 0.21}}};
    amdahl.at = [](double ranks) { return 2 * (0.2 + 0.8 / ranks); };
    amdahl.predictions = {{8, 0.6, {0.55, 0.65}}};
    Fit refused;
    refused.law = "universal_scalability";
    refused.title = "Universal Scalability Law";
    refused.refusal = "It needs 4 numbers of ranks and there are 3.";
    series.fits = {amdahl, refused};
    report.scaling.series = {series};
    report.scaling.remarks = {"g9 belongs to no series: it differs in model.width."};
    return report;
}

struct Output {
    int code = -1;
    std::string text, errors;
};
Output analyze(const TemporaryFolder& folder, const std::string& arguments, const std::string& environment = "") {
    const std::string errors = folder / "stderr.txt";
    const std::string command = "cd " + folder.string() + " && " + environment + " " + LOCKSTEP_BINARY_DIR +
                                "/bin/lockstep-analyze " + arguments + " 2>" + errors;
    Output output;
    FILE* pipe = ::popen(command.c_str(), "r");
    BOOST_REQUIRE(pipe);
    char piece[4096];
    for (std::size_t got = 0; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) output.text.append(piece, got);
    const int status = ::pclose(pipe);
    output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output.errors = read_file(errors);
    return output;
}

void check_page(const std::string& page) {
    BOOST_TEST(malformed(page) == "");
    for (const char* never : {"http:", "https:", "<script", "javascript:", "@import", "<link", "<iframe", " src="})
        BOOST_TEST(!contains(page, never), never);
    BOOST_TEST(contains(page, "default-src &#39;none&#39;"));
    const std::vector<std::string> ids = values_of(page, "id");
    BOOST_TEST(std::set<std::string>(ids.begin(), ids.end()).size() == ids.size());
    for (const std::string& target : values_of(page, "href"))
        if (target.compare(0, 5, "data:") != 0)
            BOOST_TEST((target[0] == '#' && std::count(ids.begin(), ids.end(), target.substr(1)) == 1), target);
    // Headings leave out no level.
    int level = 0;
    for (auto at = page.find("<h"); at != std::string::npos; at = page.find("<h", at + 1)) {
        const int next = page[at + 2] - '0';
        if (next < 1 || next > 6) continue;
        BOOST_TEST(next <= level + 1);
        level = next;
    }
    BOOST_TEST(count_of(page, "<h1>") == 1u);
}

const Draw by_gnuplot = [](const Plot& plot) { return draw(plot); };

}  // namespace

BOOST_AUTO_TEST_CASE(words_of_others_are_made_safe) {
    BOOST_TEST(escape_markup("<a b=\"c\" d='e'>&") == "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
    BOOST_TEST(gnuplot_string("it's `id` \"$x\" @y") == "'it''s `id` \"$x\" @y'");
    BOOST_TEST(gnuplot_string("a\nset output 'x'\n") == "'a set output ''x'' '");
    BOOST_TEST(gnuplot_string("x]]>") == "'x]] >'");
    BOOST_TEST(gnuplot_tic("5 %") == "'5 %%'");
    BOOST_TEST(clean_text("a\x01\x7f\tb") == "a   b");
    BOOST_TEST(clean_text("\xc3\xa9\xe4\xb8\x96\xf0\x9f\x9a\x80") == "\xc3\xa9\xe4\xb8\x96\xf0\x9f\x9a\x80");
    const std::string no_character = "\xEF\xBF\xBD";
    BOOST_TEST(clean_text("\xff") == no_character);
    BOOST_TEST(clean_text("\xc3") == no_character);                                        // cut off
    BOOST_TEST(clean_text("\xc0\x80") == no_character + no_character);                     // overlong
    BOOST_TEST(clean_text("\xed\xa0\x80") == no_character + no_character + no_character);  // a surrogate
    BOOST_TEST(clean_text("\xf5\x80\x80\x80").find('\xf5') == std::string::npos);          // beyond U+10FFFF
    BOOST_TEST(clean_text("\xef\xbf\xbe") == no_character + no_character + no_character);  // no character in XML
    BOOST_TEST(clean_text("a\xe2\x80\xae"
                          "b\xe2\x81\xa6"
                          "c\xc2\x85") == "a b c ");  // directions, C1
    BOOST_TEST(shorten("abcdefghij", 5) ==
               "ab\xE2\x80\xA6"
               "ij");
    BOOST_TEST(shorten("\xe4\xb8\x96\xe4\xb8\x96\xe4\xb8\x96", 5) == "\xe4\xb8\x96\xE2\x80\xA6\xe4\xb8\x96");
    BOOST_TEST(shorten("\xc3\xa9\xc3\xa9\xc3\xa9", 3) == "\xc3\xa9\xc3\xa9\xc3\xa9");
}

BOOST_AUTO_TEST_CASE(numbers_have_few_digits) {
    BOOST_TEST(short_number(15570) == "15,570");
    BOOST_TEST(short_number(2.684) == "2.68");
    BOOST_TEST(short_number(0.00123) == "0.0012");
    BOOST_TEST(short_number(unknown) == "\xE2\x80\x93");
    BOOST_TEST(percent(0.905) == "90 %");
    BOOST_TEST(percent(0.0123) == "1.2 %");
    BOOST_TEST(short_seconds(2233.5) == "2,234 s");
    BOOST_TEST(short_seconds(0.13705) == "137 ms");
    BOOST_TEST(short_seconds(0) == "0 s");
    BOOST_TEST(seconds_interval(0.1368, 0.1372) == "136.8 to 137.2 ms");
}

BOOST_AUTO_TEST_CASE(thinned_curves_keep_their_extremes) {
    Curve curve;
    for (int i = 0; i < 10000; ++i) curve.emplace_back(i, i == 4321 ? 9 : i == 7777 ? -9 : std::sin(0.01 * i));
    const Curve thinned = thin(curve, 600);
    BOOST_TEST(thinned.size() <= 600u);
    BOOST_TEST(thinned.size() >= 500u);
    BOOST_TEST((thinned.front() == curve.front() && thinned.back() == curve.back()));
    const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
    BOOST_TEST(std::max_element(thinned.begin(), thinned.end(), by_value)->first == 4321);
    BOOST_TEST(std::min_element(thinned.begin(), thinned.end(), by_value)->first == 7777);
    BOOST_TEST(std::is_sorted(thinned.begin(), thinned.end()));
    const Curve few(curve.begin(), curve.begin() + 600);
    BOOST_TEST((thin(few, 600) == few));
}

BOOST_AUTO_TEST_CASE(a_law_is_drawn_over_the_measured_base) {
    const ScalingSeries series = make_report().scaling.series.front();
    Fit fit = series.fits.front();
    BOOST_TEST(std::abs(law_speedup(fit, series, 8, 0.5) - 4) < 1e-12);  // seconds: 2 s ÷ 0.5 s
    fit.law = "universal_scalability";
    BOOST_TEST(std::abs(law_speedup(fit, series, 8, 3) - 6) < 1e-12);  // steps a second, of which the base made 1/2
    fit.law = "gustafson";
    fit.at = [](double ranks) { return ranks; };
    BOOST_TEST(std::abs(law_speedup(fit, series, 8, 7) - 7) < 1e-12);
}

BOOST_AUTO_TEST_CASE(the_page_says_what_a_reader_asks) {
    const std::string page = report_page(make_report(), nullptr);
    check_page(page);
    for (const char* words :
         {"On 4 ranks a step takes 800 ms instead of 2.00 s on 1 rank: a speedup of 2.50 where 4.00 would be ideal, an "
          "efficiency of 62 %.",
          "Averaging over the ranks would claim a speedup of 3.12", "What limits it most is load balance, 0.79",
          "<li class=\"warning\"><strong>Warning.</strong> 4 ranks: The ranks are out of balance.</li>",
          "<strong>Note.</strong> g9 belongs to no series", "Base case: 1 rank, ",
          "Universal Scalability Law is not fitted. It needs 4 numbers of ranks and there are 3.",
          "The plots are left out: gnuplot was not found", "How every figure was computed",
          "T(p) = T(1)·(s + (1 − s)/p)", "lockstep-analyze report runs/g1", "made on 2026-05-28", "0123456"})
        BOOST_TEST(contains(page, words), words);
    BOOST_TEST(count_of(page, "<figure>") == 0u);
    BOOST_TEST(count_of(page, "<th scope=\"row\"") > 10u);
    BOOST_TEST(!contains(page, "nan"));
}

BOOST_AUTO_TEST_CASE(what_was_not_measured_limits_nothing) {
    ScalingSeries series = make_report().scaling.series.front();
    ScalingPoint& last = series.points.back();
    last.load_balance = 0.99;
    last.communication_efficiency = last.parallel_efficiency = last.computation_scaling = unknown;
    BOOST_TEST(
        series_in_short(series).back() ==
        "It is not load balance (0.99) that limits it; communication and computation scaling could not be measured.");
    last.load_balance = unknown;
    BOOST_TEST(contains(series_in_short(series).back(), "What limits it is unknown"));
    last.load_balance = 0.7;
    BOOST_TEST(contains(series_in_short(series).back(), "Not measured: communication and computation scaling."));
    last.parallel_efficiency = 0.56;
    BOOST_TEST(contains(series_in_short(series).back(), "communication and imbalance together"));
    last.communication_efficiency = 0.8;
    last.computation_scaling = 0.6;
    BOOST_TEST(contains(series_in_short(series).back(), "What limits it most is computation scaling, 0.60"));
    BOOST_TEST(contains(series_in_short(series).back(),
                        "Load balance (0.70) limits it as well. Communication (0.80) limits it as well."));
    last.load_balance = last.communication_efficiency = last.computation_scaling = 0.98;
    last.efficiency = 0.99;
    BOOST_TEST(series_in_short(series).back() == "Hardly anything limits it.");
}

BOOST_AUTO_TEST_CASE(remarks_are_said_once) {
    Scaling scaling = make_report().scaling;
    for (ScalingPoint& point : scaling.series[0].points) point.remarks = {"The same."};
    const auto items = remarks_of(scaling);
    BOOST_REQUIRE(items.size() == 2u);
    BOOST_TEST(items[0].words == "1, 2, 4 ranks: The same.");
    BOOST_TEST(items[0].mark == "Warning");
    BOOST_TEST(items[1].mark == "Note");
}

BOOST_AUTO_TEST_CASE(what_has_no_data_is_left_out_with_a_reason) {
    Report report = make_report();
    report.scaling.series.clear();
    report.scaling.measurements.resize(1);
    Measurement& one = report.scaling.measurements[0];
    one.steps.resize(3);
    one.losses.clear();
    for (RankMeasurement& rank : one.rank) {
        rank.phases = {};
        rank.allocated = rank.reserved = rank.peak = 0;
    }
    const Draw never = [](const Plot& plot) -> std::string {
        BOOST_ERROR("drawn without data: " + plot.name);
        return "<svg></svg>";
    };
    const std::string page = report_page(report, never);
    check_page(page);
    for (const char* words :
         {"No two of these runs form a scaling series",
          "Shares of a step by phase: not drawn, since in none of the runs were the phases of steps timed one by one.",
          "Distribution of step times: not drawn, since no run has 6 steps or more after its warm-up.",
          "Training loss: not drawn, since no run has the losses of at least two steps.",
          "Computation by rank over time, g1: not drawn, since the run has one rank only.",
          "Memory by rank, g1: not drawn, since its memory was not recorded."})
        BOOST_TEST(contains(page, words), words);
}

BOOST_AUTO_TEST_CASE(only_rates_are_drawn_as_rates) {
    Report report = make_report();
    ScalingSeries& series = report.scaling.series[0];
    series.fits.clear();
    for (ScalingPoint& point : series.points) {
        point.seconds_slowest = point.seconds_average = point.speedup_slowest = unknown;
        point.tokens_per_second = 1000.0 * static_cast<double>(point.ranks);
        point.efficiency_slowest_rate = 0.5;
        point.speedup_average = static_cast<double>(point.ranks);
        point.efficiency = 1;
    }
    const Plot plot = speedup_plot(series, "");
    BOOST_TEST(plot.missing == "");
    BOOST_TEST(contains(plot.script, "measured: the rates of all ranks"));
    BOOST_TEST(!contains(plot.script, "slowest rank''s time"));
    BOOST_TEST(contains(series_in_short(series)[0],
                        "On 4 ranks the rate is 4,000 tokens/s instead of 1,000 on 1 rank: a speedup of 4.00"));
}

BOOST_AUTO_TEST_CASE(many_ranks_and_many_runs_stay_small) {
    std::vector<Measurement> runs;
    for (int i = 0; i < 15; ++i) runs.push_back(make_run("run" + std::to_string(i), 1, 1));
    const Plot loss = loss_plot(runs, run_labels(runs));
    BOOST_TEST(loss.blocks.size() == most_curves);
    BOOST_TEST(
        contains(loss.caption, "Not drawn, because more than 12 curves are indistinguishable: run12, run13, run14."));
    runs[0].losses.clear();
    for (std::int64_t step = 0; step < 10000; ++step)
        runs[0].losses.emplace_back(step, 1.0 / static_cast<double>(step + 1));
    const Plot thinned = loss_plot(runs, run_labels(runs));
    BOOST_TEST(thinned.blocks[0].rows.size() <= 600u);
    BOOST_TEST(contains(thinned.caption, "thinned"));
    const Measurement wide = make_run("wide", 2000, 1);
    for (const Block& block : memory_plot(wide, "wide", "").blocks) BOOST_TEST(block.rows.size() <= 520u);
    runs.push_back(runs[3]);
    BOOST_TEST(run_labels(runs).back() == "run3 (runs/run3)");
}

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
        std::string svg = draw(plot);
        write_plot(folder.string(), plot, svg);
        return svg;
    });
    check_page(page);
    BOOST_TEST(count_of(page, "<figure>") == names.size());
    BOOST_TEST(count_of(page, "role=\"img\"") == names.size());
    for (const char* name : {"speedup", "efficiency", "factors", "phases", "loss", "step-times", "ranks-over-time-1",
                             "ranks-over-time-2", "memory-1", "memory-2"})
        BOOST_TEST(std::count(names.begin(), names.end(), name) == 1, name);
    BOOST_TEST(!contains(page, "uid="));  // what a shell would have made of `id`
    BOOST_TEST(contains(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
    // The files make the same drawing again.
    for (const std::string& name : names) {
        const std::string svg = read_file(folder / (name + ".svg"));
        std::filesystem::remove(folder / (name + ".svg"));
        BOOST_REQUIRE(std::system(("cd " + folder.string() + " && gnuplot -d " + name + ".gp 2>/dev/null").c_str()) ==
                      0);
        BOOST_TEST((read_file(folder / (name + ".svg")) == svg), name);
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
        BOOST_TEST(contains(problem.what(), "at the plot broken"), problem.what());
        BOOST_TEST(contains(problem.what(), "undefined variable"), problem.what());
    }
}

BOOST_AUTO_TEST_CASE(the_command_reports_runs) {
    const TemporaryFolder folder("report-command");
    for (const std::size_t ranks : {1, 2, 4})
        test::write_run(folder / ("g" + std::to_string(ranks)), "g" + std::to_string(ranks), ranks, 60);
    const Output made = analyze(folder, "report g1 g2 g4 --out out.html --plots plots --predict 8");
    BOOST_TEST(made.code == 0, made.errors);
    const std::string page = read_file(folder / "out.html");
    check_page(page);
    BOOST_TEST(contains(page, "Strong scaling, batch 8"));
    BOOST_TEST(contains(page, "lockstep-analyze report g1 g2 g4 --out out.html --plots plots --predict 8"));
    BOOST_TEST(contains(made.text, "out.html: "));
    if (gnuplot_found()) {
        BOOST_TEST(std::filesystem::exists(folder / "plots/speedup.gp"));
        BOOST_TEST(count_of(page, "<figure>") == 10u);
    }
    // One run alone.
    const Output alone = analyze(folder, "report g4");
    BOOST_TEST(alone.code == 0, alone.errors);
    BOOST_TEST(contains(read_file(folder / "report.html"), "No two of these runs form a scaling series"));
    // No gnuplot.
    const Output bare = analyze(folder, "report g1 g2 --out bare.html", "PATH=/nowhere");
    BOOST_TEST(bare.code == 0, bare.errors);
    BOOST_TEST(contains(bare.errors, "gnuplot was not found"), bare.errors);
    BOOST_TEST(contains(bare.text, "bare.html: 0 plots"), bare.text);
    check_page(read_file(folder / "bare.html"));
    // A gnuplot that fails.
    std::ofstream(folder / "gnuplot") << "#!/bin/sh\necho out of ink >&2\nexit 5\n";
    std::filesystem::permissions(folder / "gnuplot", std::filesystem::perms::owner_all);
    const Output failed = analyze(folder, "report g1 g2 --out failed.html", "PATH=" + folder.string());
    BOOST_TEST(failed.code == 1);
    BOOST_TEST(contains(failed.errors, "out of ink"), failed.errors);
    BOOST_TEST(!std::filesystem::exists(folder / "failed.html"));
    // What cannot be written.
    BOOST_TEST(analyze(folder, "report g1 g2 --out no/such/folder.html").code == 2);
    BOOST_TEST(analyze(folder, "report missing").code == 2);
}
