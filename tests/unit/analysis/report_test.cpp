// What stands on the report's page: sentences, tables, plots left out and why. Pages drawn by gnuplot are tested in
// report_gnuplot_test.cpp.
#define BOOST_TEST_MODULE report
#include <cmath>
#include <fstream>

#include "analysis/report/gnuplot.hpp"
#include "analysis/report/text.hpp"
#include "unit/analysis/report_page.hpp"
#include "unit/trace/synthetic_trace.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using namespace lockstep::analysis::test;

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

BOOST_AUTO_TEST_CASE(smoothed_curves_are_centred_exponential_means) {
    // A width at which a weight halves at each step.
    const double width = 1 / std::log(2);
    const Curve smooth = smoothed({{1, 8}, {2, 0}, {3, 0}, {5, 4}}, width);
    BOOST_REQUIRE(smooth.size() == 4u);
    const auto check = [](double value, double expected) {
        BOOST_TEST(std::abs(value - expected) < 1e-12, value << " is not " << expected);
    };
    for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(smooth[i].first == (std::vector<double>{1, 2, 3, 5})[i]);
    check(smooth[0].second, (8 + 4.0 / 16) / (1 + 1.0 / 2 + 1.0 / 4 + 1.0 / 16));
    check(smooth[1].second, (8.0 / 2 + 4.0 / 8) / (1.0 / 2 + 1 + 1.0 / 2 + 1.0 / 8));
    check(smooth[2].second, (8.0 / 4 + 4.0 / 4) / (1.0 / 4 + 1.0 / 2 + 1 + 1.0 / 4));
    check(smooth[3].second, (8.0 / 16 + 4) / (1.0 / 16 + 1.0 / 8 + 1.0 / 4 + 1));
    const Curve constant(50, {1, 3});
    for (const auto& [step, value] : smoothed(constant, 5)) check(value, 3);
    BOOST_TEST(smoothed({}, 1).empty());
}

BOOST_AUTO_TEST_CASE(bands_hold_the_lowest_and_the_highest) {
    using Rows = std::vector<std::vector<double>>;
    const Curve curve = {{1, 5}, {2, 3}, {3, 9}, {4, 1}, {5, 2}};
    BOOST_TEST((band(curve, 2) == Rows{{1, 3, 5}, {2, 3, 5}, {3, 1, 9}, {5, 1, 9}}));
    BOOST_TEST((band(curve, 10) == Rows{{1, 5, 5}, {2, 3, 3}, {3, 9, 9}, {4, 1, 1}, {5, 2, 2}}));
}

BOOST_AUTO_TEST_CASE(validation_losses_are_points_over_the_training_loss) {
    std::vector<Measurement> runs = {make_run("a", 1, 1), make_run("b", 1, 1)};
    BOOST_TEST(loss_plot(runs, run_labels(runs)).title == "Training loss");
    BOOST_TEST(!holds(losses_table(runs, run_labels(runs)).print(TableFormat::text), "validation"));
    runs[1].validations = {{20, 512, 3.5, 2.5}, {40, 512, 3.25, 2.25}, {50, 512, 3.375, 2.375}};
    const Plot two = loss_plot(runs, run_labels(runs));
    BOOST_TEST(two.title == "Training and validation loss");
    BOOST_REQUIRE(two.blocks.size() == 5u);
    BOOST_TEST((two.blocks.back().columns == std::vector<std::string>{"step", "validation_loss"}));
    BOOST_TEST((two.blocks.back().rows == std::vector<std::vector<double>>{{20, 3.5}, {40, 3.25}, {50, 3.375}}));
    BOOST_TEST(two.blocks.back().title == "b");
    BOOST_TEST(holds(two.script, "data index 4 with linespoints lc rgb '#D55E00'"));
    BOOST_TEST(holds(two.script, "'validation, in the colour of its run'"));
    runs.erase(runs.begin());
    const Plot one = loss_plot(runs, run_labels(runs));
    for (const char* title : {"'training, each step'", "'training, smoothed'", "title 'validation'"})
        BOOST_TEST(holds(one.script, title), title);
    const std::string table = losses_table(runs, run_labels(runs)).print(TableFormat::csv);
    BOOST_TEST(holds(table, ",3.375,50,2.375,3.25,40\n"), table);
}

BOOST_AUTO_TEST_CASE(perplexity_by_position_comes_from_a_file_in_the_runs_folder) {
    const trace::test::TemporaryFolder folder("report-positions");
    std::vector<Measurement> runs = {make_run("a", 1, 1), make_run("b", 1, 1)};
    runs[0].path = folder.string();
    const auto write = [&](const std::string& text) { std::ofstream(folder / "positions.json") << text; };
    const auto plot = [&] { return position_plot(runs, run_labels(runs)); };
    BOOST_TEST(holds(plot().missing, "positions.json"));
    const std::string first = R"({"first_position": 1, "last_position": 1, "validation_loss": 2.0, "perplexity": 7.4})";
    write(R"({"step": 5, "positions": [)" + first +
          R"(, {"first_position": 2, "last_position": 8, "validation_loss": 0.0, "perplexity": 1.0}]})");
    const Plot drawn = plot();
    BOOST_TEST_REQUIRE(drawn.missing.empty());
    BOOST_TEST_REQUIRE(drawn.blocks.size() == 1u);
    BOOST_TEST(drawn.blocks[0].title == "a");
    BOOST_TEST((drawn.blocks[0].rows == std::vector<std::vector<double>>{{1, std::exp(2.0)}, {4, 1}}));
    // What is damaged or something else is left out.
    for (const std::string& text :
         std::vector<std::string>{"", "[]", R"({"positions": 3})", R"({"positions": [7, 8]})",
                                  R"({"positions": [)" + first + ", " + first + "]}",
                                  R"({"positions": [)" + first + R"(, {"first_position": 2}]})"}) {
        write(text);
        BOOST_TEST(!plot().missing.empty(), text);
    }
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
          "Averaging over the ranks would give a speedup of 3.12", "The main limit is load balance, 0.79",
          "<li class=\"warning\"><strong>Warning.</strong> 4 ranks: The ranks are imbalanced.</li>",
          "<strong>Note.</strong> g9 belongs to no series", "Base case: 1 rank, ",
          "Universal Scalability Law is not fitted. It needs 4 numbers of ranks and there are 3.",
          "The plots are left out: gnuplot was not found", "How each figure was computed",
          "T(p) = T(1)·(s + (1 − s)/p)", "lockstep-analyze report runs/g1", "started on 2026-05-28", "0123456"})
        BOOST_TEST(holds(page, words), words);
    BOOST_TEST(count_of(page, "<figure ") == 0u);
    BOOST_TEST(count_of(page, "<th scope=\"row\"") > 10u);
    BOOST_TEST(!holds(page, "nan"));
}

BOOST_AUTO_TEST_CASE(what_was_not_measured_limits_nothing) {
    ScalingSeries series = make_report().scaling.series.front();
    ScalingPoint& last = series.points.back();
    last.load_balance = 0.99;
    last.communication_efficiency = last.parallel_efficiency = last.computation_scaling = unknown;
    BOOST_TEST(series_in_short(series).back() ==
               "The limit is not load balance (0.99); communication and computation scaling could not be measured.");
    last.load_balance = unknown;
    BOOST_TEST(holds(series_in_short(series).back(), "The limit is unknown"));
    last.load_balance = 0.7;
    BOOST_TEST(holds(series_in_short(series).back(), "Not measured: communication and computation scaling."));
    last.parallel_efficiency = 0.56;
    BOOST_TEST(holds(series_in_short(series).back(), "communication and imbalance together"));
    last.communication_efficiency = 0.8;
    last.computation_scaling = 0.6;
    BOOST_TEST(holds(series_in_short(series).back(), "The main limit is computation scaling, 0.60"));
    BOOST_TEST(holds(series_in_short(series).back(),
                     "Load balance (0.70) also limits it. Communication (0.80) also limits it."));
    // Ranks among which the threads of one machine are divided are no more hardware.
    last.computation_scaling = 0.26;
    series.points[series.base].threads = last.threads = 4;
    BOOST_TEST(holds(series_in_short(series).back(),
                     "The main limit is that each rank has 1 thread where the base case has 4: all ranks together have "
                     "no more threads than the base case, and compute 3.85 times as long for the same work."));
    last.threads = 8;
    BOOST_TEST(holds(series_in_short(series).back(),
                     "each rank has 2 threads where the base case has 4: all ranks "
                     "together have 2 times the threads"));
    last.threads = 16;
    BOOST_TEST(holds(series_in_short(series).back(), "The main limit is computation scaling, 0.26"));
    last.load_balance = last.communication_efficiency = last.computation_scaling = 0.98;
    last.efficiency = 0.99;
    BOOST_TEST(series_in_short(series).back() == "Scaling is close to ideal.");
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
    const Draw never = [](const Plot& plot) -> Drawing {
        BOOST_ERROR("drawn without data: " + plot.name);
        return {"<svg></svg>", {}};
    };
    const std::string page = report_page(report, never);
    check_page(page);
    for (const char* words :
         {"A single run is not a scaling series",
          "Shares of a step by phase: not drawn, because no run timed the phases of its steps individually.",
          "Distribution of step times: not drawn, because no run has 6 steps or more after its warm-up.",
          "Training loss: not drawn, because no run has the losses of at least two steps.",
          "Computation by rank over time, g1: not drawn, because the run has only one rank.",
          "Memory by rank, g1: not drawn, because its memory was not recorded."})
        BOOST_TEST(holds(page, words), words);
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
    BOOST_TEST(holds(plot.script, "measured: the rates of all ranks"));
    BOOST_TEST(!holds(plot.script, "slowest rank''s time"));
    BOOST_TEST(holds(series_in_short(series)[0],
                     "On 4 ranks the rate is 4,000 tokens/s instead of 1,000 on 1 rank: a speedup of 4.00"));
}

BOOST_AUTO_TEST_CASE(many_ranks_and_many_runs_stay_small) {
    std::vector<Measurement> runs;
    for (int i = 0; i < 15; ++i) runs.push_back(make_run("run" + std::to_string(i), 1, 1));
    const Plot loss = loss_plot(runs, run_labels(runs));
    BOOST_TEST(loss.blocks.size() == 2 * most_curves);  // each step, and smoothed
    BOOST_TEST(
        holds(loss.caption, "Not drawn, because more than 12 curves are indistinguishable: run12, run13, run14."));
    runs[0].losses.clear();
    for (std::int64_t step = 0; step < 10000; ++step)
        runs[0].losses.emplace_back(step, 1.0 / static_cast<double>(step + 1));
    for (std::int64_t step = 5; step <= 10000; step += 5) runs[0].validations.push_back({step, 64, 1, unknown});
    const Plot banded = loss_plot(runs, run_labels(runs));
    for (const Block& block : banded.blocks) BOOST_TEST(block.rows.size() <= 600u);
    BOOST_TEST(banded.blocks.back().rows.size() <= 100u);  // validations
    BOOST_TEST(holds(banded.caption, "from the lowest to the highest in each of 200 stretches"));
    BOOST_TEST(holds(banded.caption, "fall to 1/e over 1 to 100 steps (1 % of a run, at least 1)"));
    const Measurement wide = make_run("wide", 2000, 1);
    for (const Block& block : memory_plot(wide, "wide", "").blocks) BOOST_TEST(block.rows.size() <= 520u);
    runs.push_back(runs[3]);
    BOOST_TEST(run_labels(runs).back() == "run3 (runs/run3)");
}
