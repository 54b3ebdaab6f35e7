#include "plan/fit.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"
#include "base/least_squares.hpp"

namespace lockstep::plan {
namespace {

// Beyond this a residual counts linearly (Huber 1964): a table may have a number that is wrong.
constexpr double memory_outlier = 0.06;
// Keeps what the rows do not tell near where it started.
constexpr double pull_to_start = 0.003;

double softened(double residual, double outlier) {
    const double size = std::abs(residual);
    if (outlier <= 0 || size <= outlier) return residual;
    return std::copysign(std::sqrt(2 * outlier * size - outlier * outlier), residual);
}

// A number between its limits as one without limits.
struct Unknown {
    std::string path;
    double least, most;
    bool share() const { return most <= 2; }
    double free_of(double value) const {
        if (!share()) return std::log(std::max(value, 1e-9));
        const double part = std::clamp((value - least) / (most - least), 0.01, 0.99);
        return std::log(part / (1 - part));
    }
    double value_of(double free) const {
        if (!share()) return std::clamp(std::exp(free), least, most);
        return least + (most - least) / (1 + std::exp(-free));
    }
};

const config::Key& find(const std::vector<config::Key>& keys, const std::string& path) {
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const config::Key& key) { return key.path == path; });
    LOCKSTEP_ASSERT(found != keys.end());
    return *found;
}

// The numbers of a machine that are fitted, in terms without limits.
class Unknowns {
  public:
    Unknowns(const config::Machine& start, const std::vector<std::string>& paths) : start_(start) {
        config::Machine copy = start;
        const std::vector<config::Key> keys = copy.keys();
        for (const std::string& path : paths) {
            const config::Key& key = find(keys, path);
            unknowns_.push_back({path, key.least, key.most});
            first_.push_back(unknowns_.back().free_of(*std::get<double*>(key.member)));
        }
    }
    const std::vector<double>& first() const { return first_; }

    config::Machine machine(const std::vector<double>& at) const {
        config::Machine machine = start_;
        const std::vector<config::Key> keys = machine.keys();
        for (std::size_t i = 0; i < unknowns_.size(); ++i)
            *std::get<double*>(find(keys, unknowns_[i].path).member) = unknowns_[i].value_of(at[i]);
        return machine;
    }

  private:
    const config::Machine& start_;
    std::vector<Unknown> unknowns_;
    std::vector<double> first_;
};

config::Machine fit_keys(const config::Machine& start, const std::vector<const MeasuredRow*>& rows,
                         const std::vector<std::string>& paths, bool of_memory) {
    const Unknowns unknowns(start, paths);
    const std::vector<double>& first = unknowns.first();
    const Residuals residuals = [&](const std::vector<double>& at) {
        const config::Machine machine = unknowns.machine(at);
        std::vector<double> all;
        for (const MeasuredRow* row : rows) {
            const Prediction prediction = predict(machine, *row);
            all.push_back(of_memory ? softened(std::log(prediction.memory_gb / *row->memory_gb), memory_outlier)
                                    : std::log(prediction.seconds / *row->seconds));
        }
        for (std::size_t i = 0; i < at.size(); ++i) all.push_back(pull_to_start * (at[i] - first[i]));
        return all;
    };
    config::Machine machine = unknowns.machine(least_squares(residuals, first));
    const std::vector<config::Key> keys = machine.keys();
    for (const std::string& path : paths) {  // more digits than the rows can tell would only pretend
        double& value = *std::get<double*>(find(keys, path).member);
        value = std::stod(fmt::format("{:.4g}", value));
    }
    return machine;
}

config::Machine fit_to(const config::Machine& start, const std::vector<const MeasuredRow*>& rows) {
    std::vector<const MeasuredRow*> timed, sized;
    bool repaired = false;
    for (const MeasuredRow* row : rows) {
        if (row->counts()) timed.push_back(row);
        if (row->counts() && row->memory_gb) sized.push_back(row);
        repaired = repaired || (!start.repair.date.empty() && !row->date.empty() && row->date < start.repair.date);
    }
    std::vector<std::string> paths = fitted_time_keys();
    if (!repaired) paths.erase(std::remove(paths.begin(), paths.end(), "repair.slowdown"), paths.end());
    LOCKSTEP_ASSERT(timed.size() >= paths.size());
    config::Machine machine = start;
    if (sized.size() >= fitted_memory_keys().size()) machine = fit_keys(machine, sized, fitted_memory_keys(), true);
    return fit_keys(machine, timed, paths, false);
}

// Each of the folds must leave enough rows.
void check_enough(const std::vector<MeasuredRow>& rows, std::size_t folds) {
    const auto count = static_cast<std::size_t>(
        std::count_if(rows.begin(), rows.end(), [](const MeasuredRow& row) { return row.counts(); }));
    const std::size_t left = count - (folds > 1 ? (count + folds - 1) / folds : 0);
    if (left < fitted_time_keys().size())
        throw usage_error(
            "{} unflagged rows with seconds_per_iteration{} are too few to fit {} numbers; measure more layouts", count,
            folds > 1 ? fmt::format(", {} of them in a fold's fit,", left) : "", fitted_time_keys().size());
}

}  // namespace

const std::vector<std::string>& fitted_time_keys() {
    static const std::vector<std::string> paths = {
        "products.efficiency",  "products.unaligned_tflops", "device.memory_efficiency", "device.kernel_us",
        "node_link.efficiency", "network.efficiency",        "memory.pressure_slowdown", "repair.slowdown"};
    return paths;
}

const std::vector<std::string>& fitted_memory_keys() {
    static const std::vector<std::string> paths = {"memory.fixed_gb", "memory.slack"};
    return paths;
}

config::Machine fit(const config::Machine& start, const std::vector<MeasuredRow>& rows) {
    check_enough(rows, 1);
    std::vector<const MeasuredRow*> all;
    for (const MeasuredRow& row : rows) all.push_back(&row);
    return fit_to(start, all);
}

Judgement cross_validate(const config::Machine& start, const std::vector<MeasuredRow>& rows, std::size_t folds) {
    check_enough(rows, folds);
    const config::Machine of_all = fit(start, rows);
    std::vector<Prediction> predictions;
    std::vector<std::size_t> counting;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        predictions.push_back(predict(of_all, rows[i]));
        if (rows[i].counts()) counting.push_back(i);
    }
    for (std::size_t fold = 0; fold < folds; ++fold) {
        std::vector<const MeasuredRow*> others;
        for (std::size_t i = 0; i < counting.size(); ++i)
            if (i % folds != fold) others.push_back(&rows[counting[i]]);
        const config::Machine machine = fit_to(start, others);
        for (std::size_t i = fold; i < counting.size(); i += folds)
            predictions[counting[i]] = predict(machine, rows[counting[i]]);
    }
    return judge(rows, std::move(predictions));
}

}  // namespace lockstep::plan
