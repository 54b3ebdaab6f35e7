// Numbers of an imported table that contradict each other. Nothing is refused here: published tables have such rows,
// and what is wrong with them is worth knowing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "analysis/exchange/imported_table.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr double parts_tolerance = 0.01;  // parts are rounded, each by itself
constexpr double tokens_tolerance = 0.02;
constexpr double work_tolerance = 0.05;

void check_missing_ranks(ImportedRun& run) {
    std::string missing;
    std::size_t count = 0;
    constexpr std::size_t named = 8;
    for (std::size_t r = 0; r < run.rank.size(); ++r) {
        if (run.rank[r].line > 0) continue;
        if (count < named) missing += fmt::format("{}{}", count > 0 ? ", " : "", r);
        ++count;
    }
    if (count == 0) return;
    if (count > named) missing += fmt::format(" and {} more", count - named);
    run.remarks.push_back(fmt::format("The table has {} of {} ranks; missing: {}. The slowest may be among them.",
                                      run.rank.size() - count, run.rank.size(), missing));
}

// The rank whose parts exceed their whole by most; one sentence is enough.
template <class Whole, class Parts>
void check_parts(ImportedRun& run, const Whole& whole, const Parts& parts, const char* words) {
    const ImportedRank* worst = nullptr;
    double excess = parts_tolerance;
    for (const ImportedRank& rank : run.rank) {
        const double sum = parts(rank), most = whole(rank);
        // Not finite where one of the two is not given.
        if (!std::isfinite(sum) || !std::isfinite(most) || sum <= most * (1 + excess)) continue;
        worst = &rank;
        excess = most > 0 ? sum / most - 1 : HUGE_VAL;
    }
    if (worst)
        run.remarks.push_back(fmt::format("Line {}: {} sum to {:.6g} s, but {:.6g} s are given; do they overlap?",
                                          worst->line, words, parts(*worst), whole(*worst)));
}

void check_degrees(ImportedRun& run) {
    std::int64_t product = 1;
    std::string words;
    for (const char* name : {"data", "tensor", "pipeline", "context"})
        if (const std::int64_t degree = run.setting(name); degree > 0) {
            if (product <= run.ranks) product *= degree;
            words += fmt::format("{}{} {}", words.empty() ? "" : " × ", name, degree);
        }
    // Where the data-parallel degree is not given, it is what is left.
    const bool fits = run.setting("data") > 0 ? product == run.ranks : run.ranks % product == 0;
    if (!fits)
        run.remarks.push_back(fmt::format("{} do not multiply to {} rank{}.", words, run.ranks, plural(run.ranks)));
}

void check_tokens(ImportedRun& run) {
    const auto tokens = static_cast<double>(run.setting("tokens"));
    const double work = run.work();
    if (tokens > 0 && std::isfinite(work) && std::abs(work - tokens) > tokens_tolerance * tokens)
        run.remarks.push_back(fmt::format("Time × tokens/s is {:.4g} tokens, but {:.4g} are given ({:+.1f} %).", work,
                                          tokens, 100 * (work / tokens - 1)));
}

// Of runs whose steps had as many sequences; in other runs the work may well have grown with the batch.
void check_same_work(const std::vector<ImportedRun*>& known) {
    if (known.size() < 2) return;
    const auto less = [](const ImportedRun* a, const ImportedRun* b) { return a->work() < b->work(); };
    const auto [least, most] = std::minmax_element(known.begin(), known.end(), less);
    if ((*most)->work() <= (*least)->work() * (1 + work_tolerance)) return;
    const std::string sentence = fmt::format(
        "Time × tokens/s differs between runs with the same batch × accumulation, from {:.4g} tokens ({}) to {:.4g} "
        "({}): they did not do the same work, or times and rates were not measured together.",
        (*least)->work(), (*least)->name, (*most)->work(), (*most)->name);
    (*least)->remarks.push_back(sentence);
    if (*most != *least) (*most)->remarks.push_back(sentence);
}

}  // namespace

void check_consistency(std::vector<ImportedRun>& runs) {
    for (ImportedRun& run : runs) {
        check_missing_ranks(run);
        check_parts(
            run, [](const auto& rank) { return rank.at(TimeColumn::total); },
            [](const auto& rank) { return rank.parts_of_total(); }, "the parts of the total");
        check_parts(
            run, [](const auto& rank) { return rank.at(TimeColumn::compute); },
            [](const auto& rank) { return rank.parts_of_compute(); }, "forward, loss, backward and optimizer");
        check_degrees(run);
        check_tokens(run);
    }
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<ImportedRun*>> alike;  // by sequences a step, length
    for (ImportedRun& run : runs)
        if (run.setting("tokens") == 0 && std::isfinite(run.work()))
            alike[{run.setting("batch") * std::max<std::int64_t>(run.setting("accumulation"), 1),
                   run.setting("length")}]
                .push_back(&run);
    for (const auto& [size, known] : alike) check_same_work(known);
}

}  // namespace lockstep::analysis
