// How well the planner's model of a described machine predicts measured training steps: fitted to a table, and
// cross-validated on it. Usage: bench_plan_fit [TABLE.csv [START]]
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/table.hpp"
#include "plan/fit.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::cost;
using namespace lockstep::plan;

Table summary(const std::vector<std::pair<std::string, Judgement>>& judgements) {
    Table table({{"case", "case"},
                 {"mean_absolute_error", "time: mean error, %", 2},
                 {"worst_error", "worst, %", 2},
                 {"rank_correlation", "rank correlation", 4},
                 {"mean_memory_error", "memory: mean error, %", 2},
                 {"worst_memory_error", "worst, %", 2},
                 {"wrong_outcomes", "wrong outcomes"}});
    for (const auto& [name, judgement] : judgements)
        table.add_row({name, 100 * judgement.mean_absolute_error, 100 * judgement.worst_error,
                       judgement.rank_correlation, 100 * judgement.mean_memory_error,
                       100 * judgement.worst_memory_error, judgement.wrong_outcomes});
    return table;
}

// Every row predicted by a fit to those that have another value of something: harder than folds, whose rows all have
// others that are like them. Values of most rows stay in: the others would be too few to fit.
using Value = std::function<std::int64_t(const MeasuredRow&)>;
Judgement groups_left_out(const Machine& start, std::vector<MeasuredRow> rows, const Value& value) {
    std::set<std::int64_t> values;
    for (const MeasuredRow& row : rows) values.insert(value(row));
    std::vector<Prediction> predictions(rows.size());
    for (const std::int64_t left_out : values) {
        std::vector<MeasuredRow> others;
        for (const MeasuredRow& row : rows)
            if (value(row) != left_out) others.push_back(row);
        const bool enough = others.size() > rows.size() / 3;
        const Machine machine = enough ? fit(start, others) : start;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (value(rows[i]) != left_out) continue;
            predictions[i] = predict(machine, rows[i]);
            if (!enough) rows[i].flagged = "not left out";
        }
    }
    return judge(rows, std::move(predictions));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const auto rows = read_measured_table(argc > 1 ? argv[1] : LOCKSTEP_MEASURED_TABLE);
        const Machine start = read_machine(argc > 2 ? argv[2] : "a100-80-4x100g");
        const Machine fitted = fit(start, rows);
        std::vector<std::pair<std::string, Judgement>> judgements = {{"shipped", judge(start, rows)},
                                                                     {"fitted to all", judge(fitted, rows)}};
        for (const std::size_t folds : {5, 7, 10})
            judgements.emplace_back(std::to_string(folds) + " folds", cross_validate(start, rows, folds));
        const auto shape = [](const MeasuredRow& row) { return row.job.models.front().shape; };
        const std::vector<std::pair<std::string, Value>> groups = {
            {"width", [&](const MeasuredRow& row) { return shape(row).width; }},
            {"number of heads", [&](const MeasuredRow& row) { return shape(row).heads.front(); }},
            {"tensor", [](const MeasuredRow& row) { return row.layout.tensor; }},
            {"pipeline", [](const MeasuredRow& row) { return row.layout.pipeline; }},
            {"micro-batch", [](const MeasuredRow& row) { return row.layout.micro; }}};
        for (const auto& [name, value] : groups)
            judgements.emplace_back("each " + name + " left out", groups_left_out(start, rows, value));
        std::printf("%s\n", summary(judgements).print(TableFormat::text).c_str());
        const Judgement& crossed = judgements[2].second;
        Table table({{"source_line", "line"},
                     {"layout", "layout"},
                     {"seconds", "measured, s", 2},
                     {"predicted", "predicted, s", 2},
                     {"error", "error, %", 1},
                     {"memory_gb", "memory, GB", 0},
                     {"predicted_gb", "predicted, GB", 1},
                     {"remark", "remark"}});
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const MeasuredRow& row = rows[i];
            const Prediction& prediction = crossed.rows[i];
            const auto& model = row.job.models.front().shape;
            const std::string outcome = prediction.out_of_memory ? "predicted: out of memory; " : "";
            table.add_row({row.source_line,
                           fmt::format("{} x {}, {} heads, dp {} tp {} pp {} mb {}", model.layers, model.width,
                                       model.heads.front(), row.layout.data, row.layout.tensor, row.layout.pipeline,
                                       row.layout.micro),
                           row.seconds ? Cell(*row.seconds) : Cell(), prediction.seconds,
                           row.seconds ? Cell(100 * (prediction.seconds / *row.seconds - 1)) : Cell(),
                           row.memory_gb ? Cell(*row.memory_gb) : Cell(), prediction.memory_gb,
                           outcome + (row.out_of_memory ? "out of memory" : row.flagged)});
        }
        std::printf("5-fold cross-validation; rows with a remark are not counted in the errors\n%s\n",
                    table.print(TableFormat::text).c_str());
        std::printf("%s", to_toml(fitted).c_str());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_plan_fit: %s\n", error.what());
        return 2;
    }
}
