// How the report's plots look: where axes are labelled, colours on light and dark paper, legends, and what is said of
// what is pointed at.
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "analysis/report/colours.hpp"
#include "analysis/report/figure.hpp"
#include "analysis/report/page_script.hpp"
#include "analysis/report/tics.hpp"
#include "unit/analysis/report_page.hpp"
#include "unit/analysis/report_runs.hpp"

using namespace lockstep;
using namespace lockstep::analysis;
using namespace lockstep::analysis::test;

namespace {

std::string words_of(const std::vector<Tic>& tics) {
    std::string words;
    for (const Tic& tic : tics) words += (words.empty() ? "" : " ") + tic.words;
    return words;
}

// 1, 2 or 5 times a power of ten.
bool is_round_step(double step) {
    const double leading = step / std::pow(10, std::floor(std::log10(step) + 1e-9));
    return std::abs(leading - 1) < 1e-6 || std::abs(leading - 2) < 1e-6 || std::abs(leading - 5) < 1e-6;
}

void check_apart(const AxisRange& range, Side side, const std::vector<Tic>& tics) {
    AxisRange sized = range;
    sized.pixels = side == Side::below ? 356 : 250;
    BOOST_TEST(tics.size() >= 2u, range.low << " to " << range.high << ": " << words_of(tics));
    BOOST_TEST(tics.size() <= 9u);
    for (std::size_t i = 1; i < tics.size(); ++i) {
        const double apart = position(sized, tics[i].at) - position(sized, tics[i - 1].at);
        const double needed =
            side == Side::left ? 18 : 4 * static_cast<double>(tics[i].words.size() + tics[i - 1].words.size()) + 6;
        BOOST_TEST(apart >= needed, range.low << " to " << range.high << ": " << words_of(tics));
        BOOST_TEST(tics[i].words != tics[i - 1].words);
    }
}

// Contrast as WCAG 2 defines it.
double luminance(const std::string& colour) {
    double sum = 0;
    const double weights[] = {0.2126, 0.7152, 0.0722};
    for (int i = 0; i < 3; ++i) {
        const double part = std::stoi(colour.substr(1 + 2 * static_cast<std::size_t>(i), 2), nullptr, 16) / 255.0;
        sum += weights[i] * (part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4));
    }
    return sum;
}
double contrast(const std::string& one, const std::string& other) {
    const double a = luminance(one) + 0.05, b = luminance(other) + 0.05;
    return std::max(a, b) / std::min(a, b);
}

}  // namespace

BOOST_AUTO_TEST_CASE(labels_of_axes_are_round_and_do_not_touch) {
    BOOST_TEST(words_of(round_tics({0, 10000, false, true}, Side::below)) == "0 2,000 4,000 6,000 8,000 10,000");
    BOOST_TEST(words_of(round_tics({0, 3, false, true}, Side::below)) == "0 1 2 3");
    BOOST_TEST(words_of(round_tics({1, 1e5, true}, Side::below)) == "1 10 100 1,000 10,000 100,000");
    BOOST_TEST(words_of(round_tics({0.9, 60, true}, Side::left)) == "1 2 5 10 20 50");
    BOOST_TEST(words_of(round_tics({0, 1.08}, Side::left)) == "0 0.2 0.4 0.6 0.8 1.0");
    BOOST_TEST(words_of(round_tics({1, 1.0001}, Side::left)) == "1 1.00002 1.00004 1.00006 1.00008 1.0001");
    BOOST_TEST(words_of(round_tics({0, 5e-6}, Side::left)) == "0 1e-6 2e-6 3e-6 4e-6 5e-6");
    for (const double low : {0.0, 1.0, 17.0, 3445.0, 123456.0})
        for (const double steps : {3.0, 7.0, 60.0, 99.0, 1728.0, 10000.0, 54321.0, 999999.0, 1e7}) {
            const AxisRange range{low, low + steps, false, true};
            const std::vector<Tic> tics = round_tics(range, Side::below);
            check_apart(range, Side::below, tics);
            BOOST_TEST(is_round_step(tics[1].at - tics[0].at));
            BOOST_TEST(std::remainder(tics[0].at, tics[1].at - tics[0].at) == 0);
        }
    for (double seconds = 1e-6; seconds < 2e5; seconds *= 3.7)
        for (const Side side : {Side::below, Side::left}) {
            const AxisRange range{0, seconds};
            const std::vector<Tic> tics = round_tics(range, side);
            check_apart(range, side, tics);
            BOOST_TEST(is_round_step(tics[1].at - tics[0].at));
        }
    for (const double low : {1e-6, 3.3e-4, 0.017, 1.0, 42.0, 1728.0})
        for (const double times : {1.3, 2.0, 4.0, 9.0, 15.0, 80.0, 1e3, 1e5, 1e11})
            for (const Side side : {Side::below, Side::left}) {
                const AxisRange range{low, low * times, true};
                check_apart(range, side, round_tics(range, side));
            }
}

BOOST_AUTO_TEST_CASE(ranks_are_labelled_where_they_were_measured_if_that_is_round) {
    const auto words = [](const std::vector<double>& ranks) {
        const AxisRange range{ranks.front() / 1.1, ranks.back() * 1.1, true, true};
        const std::vector<Tic> tics = rank_tics(range, ranks);
        check_apart(range, Side::below, tics);
        return words_of(tics);
    };
    BOOST_TEST(words({1, 2, 4}) == "1 2 4");
    BOOST_TEST(words({6, 12, 24, 96}) == "6 12 24 96");
    BOOST_TEST(words({96, 192, 384}) == "96 192 384");
    BOOST_TEST(words({1, 8, 1728, 3445}) == "1 4 16 64 256 1,024");
    std::vector<double> doublings;
    for (double ranks = 1; ranks <= 131072; ranks *= 2) doublings.push_back(ranks);
    BOOST_TEST(words(doublings) == "1 8 64 512 4,096 32,768");
    words({1, 100000});
    words({99991, 100003});
    std::vector<double> all;
    for (double ranks = 1; ranks <= 64; ++ranks) all.push_back(ranks);
    BOOST_TEST(words(all) == "1 2 4 8 16 32 64");
}

BOOST_AUTO_TEST_CASE(a_heat_map_is_labelled_at_round_steps_and_ranks) {
    Measurement run = make_run("wide", 3456, 1);
    run.heat = {};
    for (std::int64_t column = 0; column < 100; ++column) run.heat.first_step.push_back(11 + 103 * column);
    for (std::int64_t row = 0; row < 128; ++row) run.heat.first_rank.push_back(27 * row);
    run.heat.seconds.assign(12800, 1.0);
    run.steps.back().step = 10310;
    const Plot plot = heat_plot(run, "wide", "");
    BOOST_TEST(holds(plot.script, "set xtics ('2,000' "), plot.script);
    BOOST_TEST(holds(plot.script, "set ytics ('0' -0.481"), plot.script);
    BOOST_TEST(holds(plot.script, "'1,000' "), plot.script);
    // Step 2,000 is 32 steps behind the beginning of column 19, which begins with step 1968.
    BOOST_TEST(holds(plot.script, "'2,000' 18.8155"), plot.script);
    const std::string figure = figure_markup(plot, {"<svg></svg>", {50, 440, 260, 10, -0.5, 99.5, 127.5, -0.5}});
    BOOST_TEST(holds(figure, "data-steps=\"11 114 "), figure.substr(0, 400));
    BOOST_TEST(holds(figure, " 10208 10311\""));
    BOOST_TEST(holds(figure, " 3429 3456\""));
}

BOOST_AUTO_TEST_CASE(lines_and_words_stand_out_on_both_papers) {
    for (const SchemeColour& colour : scheme_colours) {
        if (std::string(colour.name) == "grid") continue;  // which is to stay behind
        BOOST_TEST(contrast(colour.light, light_paper) >= 3, colour.name);
        BOOST_TEST(contrast(colour.dark, dark_paper) >= 3, colour.name);
    }
    for (const std::string& colour : line_colours) BOOST_TEST(holds(in_scheme(colour), "var(--"), colour);
    BOOST_TEST(contrast(word_colour, light_paper) >= 7);
    BOOST_TEST(in_scheme("#0072b2") == "var(--blue)");
    BOOST_TEST(with_scheme_colours("<path stroke='rgb(  0, 114, 178)'/><g fill=\"rgb(34,34,34)\"><text>rgb(0,0,0)"
                                   "</text><rect fill='rgb(1,1,1)'/>") ==
               "<path stroke='var(--blue)'/><g fill=\"var(--words)\"><text>rgb(0,0,0)</text><rect fill='rgb(1,1,1)'/>");
}

BOOST_AUTO_TEST_CASE(the_page_follows_the_colour_scheme_and_files_are_white) {
    if (!gnuplot_found()) {
        BOOST_TEST_MESSAGE("skipped: there is no gnuplot here");
        return;
    }
    const trace::test::TemporaryFolder folder("report-scheme");
    std::vector<std::string> names;
    const std::string page = report_page(make_report(), [&](const Plot& plot) {
        names.push_back(plot.name);
        write_plot(folder.string(), plot);
        return draw(plot);
    });
    BOOST_TEST(holds(page, "prefers-color-scheme: dark"));
    BOOST_TEST(holds(page, "stroke='var(--blue)'"));
    BOOST_TEST(holds(page, " data-x=\"0.909090909 4.4 1\" data-y=\"0 "));
    BOOST_TEST(holds(page, " 0\" data-names=\"ranks|efficiency\""));
    for (auto at = page.find("<svg class=\"plot\""); at != std::string::npos;
         at = page.find("<svg class=\"plot\"", at + 1)) {
        const std::string svg = page.substr(at, page.find("</svg>", at) - at);
        for (const char* fixed : {"#ffffff", "white'", "rgb(255, 255, 255)", "rgb(34,34,34)", "rgb( 85,  85,  85)"})
            BOOST_TEST(!holds(svg, fixed), fixed << " in " << svg.substr(0, 120));
    }
    for (const std::string& name : names) {
        const std::string svg = read_text(folder / (name + ".svg"));
        BOOST_TEST(holds(svg, "fill=\"#ffffff\""), name);
        BOOST_TEST(!holds(svg, "var(--"), name);
    }
}

BOOST_AUTO_TEST_CASE(the_policy_allows_the_pages_script_and_no_other) {
    const trace::test::TemporaryFolder folder("report-script");
    const std::string page = report_page(make_report(), nullptr);
    const std::size_t begin = page.find("<script>") + 8, end = page.find("</script>");
    BOOST_REQUIRE(end != std::string::npos);
    std::ofstream(folder / "script") << page.substr(begin, end - begin);
    BOOST_REQUIRE(std::system(("cd " + folder.string() + " && sha256sum script >sum").c_str()) == 0);
    const std::string hex = read_text(folder / "sum").substr(0, 64);
    std::string base64;
    for (std::size_t i = 0; i < 66; i += 6) {  // 3 bytes, 4 letters
        std::string six = hex.substr(std::min<std::size_t>(i, 64), 6);
        const std::size_t missing = 6 - six.size();
        six.append(missing, '0');
        const unsigned bits = static_cast<unsigned>(std::stoul(six, nullptr, 16));
        for (int k = 0; k < 4; ++k)
            base64 += "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(bits >> (18 - 6 * k)) & 63];
        if (missing == 2) base64.back() = '=';
    }
    BOOST_TEST(page_script_hash == "sha256-" + base64);
    BOOST_TEST(holds(page, "default-src &#39;none&#39;; script-src &#39;sha256-" + base64 + "&#39;; style-src"));
    BOOST_TEST(std::string(page_script).find_first_of("<&") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_figure_says_what_is_at_its_points) {
    const Report report = make_report(hostile_name);
    const auto& all = report.scaling.measurements;
    const Drawing drawn{"<svg><g/></svg>", {60, 446, 260, 12, 0, 50, 2, 5, false, true}};
    const std::string loss = figure_markup(loss_plot(all, run_labels(all)), drawn);
    BOOST_TEST(malformed(loss) == "");
    BOOST_TEST(holds(loss, "<figure data-area=\"60 446 260 12\" data-x=\"0 50 0\" data-y=\"2 5 1\" "), loss);
    BOOST_TEST(holds(loss, "data-names=\"step|loss, nats per token\""));
    BOOST_TEST(holds(loss, "data-curve=\"g2, 2 ranks, smoothed\" data-points=\"1 4."));
    BOOST_TEST(!holds(loss, "<script>"));
    const std::string phases = figure_markup(phase_plot(all, run_labels(all)), drawn);
    BOOST_TEST(holds(phases, "data-words=\"g2, 2 ranks&#10;backward: 50 %\""), phases);
    // Where gnuplot does not say where the axes are, there is nothing to point at.
    BOOST_TEST(!holds(figure_markup(loss_plot(all, run_labels(all)), {"<svg></svg>", {}}), "data-"));
}

BOOST_AUTO_TEST_CASE(one_runs_shares_have_room_and_numbers) {
    const std::vector<Measurement> one = {make_run("g4", 4, 1)};
    const Plot plot = phase_plot(one, run_labels(one));
    BOOST_TEST(plot.height >= space_above + space_below + 84);
    BOOST_REQUIRE(plot.legend.size() == 3u);
    BOOST_TEST(plot.legend[0].second == "forward, 25 %");
    BOOST_TEST(holds(plot.script, "set label '50 %' at 50.000,"), plot.script);
    const std::vector<Measurement> two = {one[0], make_run("g8", 8, 1)};
    BOOST_TEST(phase_plot(two, run_labels(two)).legend[0].second == "forward");
    BOOST_TEST(phase_plot(two, run_labels(two)).height - plot.height == 2 * 54 - 84);
}

BOOST_AUTO_TEST_CASE(legends_are_below_and_take_a_third_at_most) {
    std::vector<Measurement> runs;
    for (int i = 0; i < 15; ++i)
        runs.push_back(make_run("a-run-with-a-long-name-of-many-letters-" + std::to_string(i), 1, 1));
    const Plot loss = loss_plot(runs, run_labels(runs));
    const FileLegend legend = file_legend(loss);
    BOOST_TEST(legend.height > 0);
    BOOST_TEST(3 * legend.height <= legend.whole);
    BOOST_TEST(legend.whole - legend.height >= loss.height);
    BOOST_TEST(!holds(loss.script, "set key"));
    const std::string figure = figure_markup(loss, {"<svg></svg>", {}});
    BOOST_TEST(count_of(figure, "<li>") == most_curves);
    BOOST_TEST(figure.find("<ul class=\"legend\">") > figure.find("</svg>"));
}
