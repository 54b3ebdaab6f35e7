// The tables of a comparison, for reading and for programs.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/compare/compare.hpp"
#include "analysis/output/values.hpp"

namespace lockstep::analysis {
namespace {

// In the order of Finding.
constexpr const char* finding_names[] = {"slower",      "faster", "within_noise", "negligible",
                                         "no_interval", "only_a", "only_b"};
constexpr const char* finding_words[] = {"B is slower", "B is faster", "within the noise", "too small to count",
                                         "no interval", "only in A",   "only in B"};

const char* name_of(Finding finding) {
    return finding_names[static_cast<std::size_t>(finding)];
}

std::vector<const CompareRow*> all_rows(const Comparison& comparison) {
    std::vector<const CompareRow*> rows = {&comparison.whole};
    if (comparison.undivided) rows.push_back(&*comparison.undivided);
    for (const CompareRow& row : comparison.phases) rows.push_back(&row);
    return rows;
}

// Four digits, whatever the size: phases last from below a microsecond to hours.
std::string digits(double value) {
    return std::abs(value) < 9999.5 ? fmt::format("{:.4g}", value) : fixed_words(value, 0);
}

// "12.34 [12.1, 12.6]"
std::string seconds_words(const Figure& figure, double unit) {
    if (!figure.present) return "-";
    std::string words = digits(figure.seconds / unit);
    if (figure.interval.known())
        words += fmt::format(" [{}, {}]", digits(figure.interval.low / unit), digits(figure.interval.high / unit));
    return words;
}

std::string ratio_words(const CompareRow& row) {
    if (!std::isfinite(row.ratio)) return "-";
    std::string words = digits(row.ratio);
    if (row.ratio_interval.known())
        words += fmt::format(" [{}, {}]", digits(row.ratio_interval.low), digits(row.ratio_interval.high));
    return words;
}

Json json_row(const CompareRow& row) {
    const auto figure = [](const Figure& one) {
        return Json{{"seconds", one.present ? json_number(one.seconds) : Json(nullptr)},
                    {"interval", json_interval(one.interval)},
                    {"samples", one.samples}};
    };
    return {{"name", row.name},
            {"of", row.of},
            {"a", figure(row.a)},
            {"b", figure(row.b)},
            {"difference_seconds", json_number(row.difference)},
            {"ratio", json_number(row.ratio)},
            {"ratio_interval", json_interval(row.ratio_interval)},
            {"finding", name_of(row.finding)}};
}

Json json_run(const ComparedRun& run) {
    return {{"path", run.path},
            {"name", run.name},
            {"imported", run.imported},
            {"ranks", run.ranks},
            {"steps", run.steps},
            {"warm_up_steps", run.warm_up},
            {"timed_steps", run.timed_steps},
            {"tokens_per_second", json_number(run.tokens_per_second)},
            {"peak_memory_bytes", run.peak > 0 ? Json(run.peak) : Json(nullptr)},
            {"loss", json_number(run.loss)},
            {"validation",
             {{"common", json_validation(run.common_validation)},
              {"last", json_validation(run.last_validation)},
              {"best", json_validation(run.best_validation)}}}};
}

}  // namespace

Table compare_table(const Comparison& comparison) {
    Table table({{"name", "what"},
                 {"unit", "unit"},
                 {"a", "A [95 %]"},
                 {"b", "B [95 %]"},
                 {"difference", "B - A"},
                 {"ratio", "B / A [95 %]"},
                 {"finding", "finding"}});
    for (const CompareRow* row : all_rows(comparison)) {
        const double unit = row->of == "token" ? 1e-6 : row->of == "step" ? 1e-3 : 1;
        const std::string words = row->of == "token" ? "µs/token" : row->of == "step" ? "ms/step" : "s/run";
        table.add_row({row->name, words, seconds_words(row->a, unit), seconds_words(row->b, unit),
                       std::isfinite(row->difference) ? digits(row->difference / unit) : "-", ratio_words(*row),
                       words_of(row->finding)});
    }
    return table;
}

std::string words_of(Finding finding) {
    return finding_words[static_cast<std::size_t>(finding)];
}

Table compare_rows(const Comparison& comparison) {
    Table table(
        columns_named({"name", "of", "a_seconds", "a_low", "a_high", "a_samples", "b_seconds", "b_low", "b_high",
                       "b_samples", "difference_seconds", "ratio", "ratio_low", "ratio_high", "finding"}));
    for (const CompareRow* row : all_rows(comparison)) {
        std::vector<Cell> cells = {row->name, row->of};
        for (const Figure* figure : {&row->a, &row->b}) {
            cells.push_back(figure->present ? known(figure->seconds) : Cell());
            cells.push_back(known(figure->interval.low));
            cells.push_back(known(figure->interval.high));
            cells.emplace_back(static_cast<std::int64_t>(figure->samples));
        }
        for (const double value : {row->difference, row->ratio, row->ratio_interval.low, row->ratio_interval.high})
            cells.push_back(known(value));
        cells.emplace_back(std::string(name_of(row->finding)));
        table.add_row(std::move(cells));
    }
    return table;
}

Json json_of(const Comparison& comparison) {
    Json object = Json::object();
    object["a"] = json_run(comparison.a);
    object["b"] = json_run(comparison.b);
    object["per"] = comparison.whole.of;
    object["whole"] = json_row(comparison.whole);
    object["undivided"] = comparison.undivided ? json_row(*comparison.undivided) : Json(nullptr);
    Json& phases = object["phases"] = Json::array();
    for (const CompareRow& row : comparison.phases) phases.push_back(json_row(row));
    object["least_difference_seconds"] = json_number(comparison.least_difference);
    object["last_common_step"] = comparison.last_common_step ? Json(*comparison.last_common_step) : Json(nullptr);
    Json& settings = object["settings"] = Json::array();
    for (const Difference& difference : comparison.settings)
        settings.push_back({{"key", difference.key}, {"a", difference.values[0]}, {"b", difference.values[1]}});
    object["verdict"] = nullptr;
    if (comparison.verdict)
        object["verdict"] = {{"allowed_share", comparison.verdict->allowed},
                             {"slower", comparison.verdict->slower},
                             {"per", comparison.verdict->per},
                             {"sentence", comparison.verdict->sentence}};
    object["remarks"] = comparison.remarks;
    return object;
}

}  // namespace lockstep::analysis
