// The tables of a sweep, for reading and for programs.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "analysis/output/values.hpp"
#include "analysis/sweep/sweep.hpp"

namespace lockstep::analysis {
namespace {

// A setting's value as a number where it is one.
Cell value_cell(const std::string& value) {
    if (value.empty()) return {};
    char* end = nullptr;
    errno = 0;
    const long long whole = std::strtoll(value.c_str(), &end, 10);
    if (*end == '\0' && errno == 0) return static_cast<std::int64_t>(whole);
    const double real = std::strtod(value.c_str(), &end);
    if (*end == '\0' && std::isfinite(real)) return real;
    return value;
}

// Fractions as the run gives them: rounded to the column's decimals a learning rate of 3e-4 would read 0.000.
Cell shown_value(const std::string& value) {
    Cell cell = value_cell(value);
    if (std::holds_alternative<double>(cell)) return value;
    return cell;
}

std::string best_of(const Sweep& sweep, const SweepRow& row) {
    const auto index = static_cast<std::size_t>(&row - sweep.rows.data());
    const bool time = sweep.best_by_time == index, rate = sweep.best_by_throughput == index;
    if (time && rate) return "time, throughput";
    return time ? "time" : rate ? "throughput" : "";
}

Cell interval_words(const Interval& interval) {
    if (!interval.known()) return {};
    return fixed_words(1e3 * interval.low, 2) + " to " + fixed_words(1e3 * interval.high, 2);
}

Json best_json(const Sweep& sweep, const std::optional<std::size_t>& best) {
    if (!best) return nullptr;
    const SweepRow& row = sweep.rows[*best];
    Json object = Json::object();
    for (std::size_t k = 0; k < 2; ++k) object[sweep.keys[k]] = json_cell(value_cell(row.values[k]));
    object["total_seconds"] = json_cell(known(row.total));
    object["equal_work_seconds"] = json_cell(known(row.equal_work));
    object["tokens_per_second"] = json_cell(known(row.tokens_per_second));
    return object;
}

// The two settings, left out where no run gives them.
std::vector<Field<SweepRow>> key_fields(const Sweep& sweep) {
    std::vector<Field<SweepRow>> fields;
    for (std::size_t k = 0; k < 2; ++k)
        fields.push_back(
            {{sweep.keys[k], sweep.keys[k]}, [k](const SweepRow& row) { return shown_value(row.values[k]); }, true});
    return fields;
}

}  // namespace

Table sweep_times(const Sweep& sweep) {
    using R = SweepRow;
    const auto figure = [](const char* name, const char* title, double R::*member, double factor = 1) {
        return Field<R>{{name, title, 2}, [=](const R& row) { return known_fixed(row.*member, factor); }, true};
    };
    std::vector<Field<R>> fields = key_fields(sweep);
    fields.push_back({{"runs", "runs"}, [](const R& row) { return static_cast<std::int64_t>(row.runs.size()); }});
    fields.push_back(figure("total", "total, s", &R::total));
    if (sweep.by_equal_work) fields.push_back(figure("equal", "for equal work, s", &R::equal_work));
    fields.push_back(figure("train", "train, s", &R::train));
    fields.push_back(figure("epoch", "epoch, s", &R::epoch));
    fields.push_back(figure("step", "step, ms", &R::step_seconds, 1e3));
    fields.push_back({{"interval", "95 %, ms"}, [](const R& row) { return interval_words(row.step_interval); }, true});
    fields.push_back(
        {{"rate", "tokens/s, mean"}, [](const R& row) { return known_whole(row.tokens_per_second); }, true});
    fields.push_back({{"best", "best by"}, [&](const R& row) { return best_of(sweep, row); }});
    return table_of(sweep.rows, fields);
}

Table sweep_phases(const Sweep& sweep) {
    const std::vector<std::pair<std::string, SweepPhase SweepRow::*>> phases = {{"validation", &SweepRow::validation},
                                                                                {"forward", &SweepRow::forward},
                                                                                {"loss", &SweepRow::loss},
                                                                                {"backward", &SweepRow::backward}};
    std::vector<Field<SweepRow>> fields = key_fields(sweep);
    for (const auto& [name, member] : phases) {
        const auto sum = [member = member](const SweepRow& row) { return known_fixed((row.*member).sum); };
        const auto mean = [member = member](const SweepRow& row) {
            return known_fixed((row.*member).mean_per_call, 1e3);
        };
        // Without a column of sums to the left the title names the phase.
        const bool named =
            std::any_of(sweep.rows.begin(), sweep.rows.end(), [&](const SweepRow& row) { return sum(row) != Cell(); });
        fields.push_back({{name, name + ", s", 2}, sum, true});
        fields.push_back({{name + "_mean", (named ? "" : name + ", ") + "ms/call", 2}, mean, true});
    }
    return table_of(sweep.rows, fields);
}

Table sweep_rows(const Sweep& sweep) {
    std::vector<Column> columns =
        columns_named({"runs", "total_seconds", "equal_work_seconds", "train_seconds", "epoch_seconds",
                       "validation_seconds", "validation_mean_seconds", "backward_seconds", "backward_mean_seconds",
                       "loss_seconds", "loss_mean_seconds", "forward_seconds", "forward_mean_seconds", "step_seconds",
                       "step_seconds_low", "step_seconds_high", "tokens", "tokens_per_second"});
    columns.insert(columns.begin(), {{sweep.keys[0], ""}, {sweep.keys[1], ""}});
    Table table(std::move(columns));
    for (const SweepRow& row : sweep.rows) {
        std::vector<Cell> cells = {
            value_cell(row.values[0]), value_cell(row.values[1]), static_cast<std::int64_t>(row.runs.size()),
            known(row.total),          known(row.equal_work),     known(row.train),
            known(row.epoch)};
        for (const SweepPhase& phase : {row.validation, row.backward, row.loss, row.forward}) {
            cells.push_back(known(phase.sum));
            cells.push_back(known(phase.mean_per_call));
        }
        for (const double value :
             {row.step_seconds, row.step_interval.low, row.step_interval.high, row.tokens, row.tokens_per_second})
            cells.push_back(known(value));
        table.add_row(std::move(cells));
    }
    return table;
}

Json json_of(const Sweep& sweep) {
    Json object = Json::object();
    object["keys"] = sweep.keys;
    Json& rows = object["rows"] = Json::array();
    const Table table = sweep_rows(sweep);
    for (const auto& cells : table.rows()) {
        Json row = Json::object();
        for (std::size_t c = 0; c < cells.size(); ++c) row[table.columns()[c].name] = json_cell(cells[c]);
        rows.push_back(std::move(row));
    }
    object["best_by_time"] = best_json(sweep, sweep.best_by_time);
    object["best_by_throughput"] = best_json(sweep, sweep.best_by_throughput);
    object["sentences"] = sweep.sentences;
    object["remarks"] = sweep.remarks;
    return object;
}

}  // namespace lockstep::analysis
