// A report made by hand, and what holds of every page.
#pragma once

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>
#include <string>
#include <vector>

#include "analysis/report/report.hpp"
#include "unit/analysis/text.hpp"

namespace lockstep::analysis::test {

inline std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
}

// Elements closed in their order, attributes quoted and no two alike, nothing bare that has a meaning. "" or what is
// wrong. A document type and the text of <style> are passed over.
inline std::string malformed(const std::string& text) {
    std::vector<std::string> open;
    std::size_t at = 0;
    const auto entity = [&](std::size_t i) {
        for (const char* known : {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", "&#10;"})
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
inline std::vector<std::string> values_of(const std::string& text, const std::string& attribute) {
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
inline Measurement make_run(const std::string& name, std::int64_t ranks, double seconds) {
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

inline ScalingPoint make_point(std::size_t run, std::int64_t ranks, double seconds, double average) {
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
inline Report make_report(const std::string& first_name = "g1") {
    Report report;
    report.title = "How the runs scale";
    report.command_line = "lockstep-analyze report runs/g1";
    report.scaling.measurements = {make_run(first_name, 1, 2), make_run("g2", 2, 1.2), make_run("g4", 4, 0.8)};
    ScalingSeries series;
    series.title = "batch 64";
    series.kind_reason = "the batch is 64 in all of them";
    series.unit = "step";
    series.points = {make_point(0, 1, 2, 2), make_point(1, 2, 1.2, 0.96), make_point(2, 4, 0.8, 0.64)};
    series.points[2].remarks = {"The ranks are imbalanced."};
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

inline void check_page(const std::string& page) {
    BOOST_TEST(malformed(page) == "");
    for (const char* never : {"http:", "https:", "javascript:", "@import", "<link", "<iframe", " src="})
        BOOST_TEST(!holds(page, never), never);
    BOOST_TEST(holds(page, "default-src &#39;none&#39;; script-src &#39;sha256-"));
    BOOST_TEST(count_of(page, "<script") == 1u);
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

}  // namespace lockstep::analysis::test
