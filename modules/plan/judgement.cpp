#include "plan/judgement.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "cost/time_model.hpp"

namespace lockstep::plan {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

// Places in the order of size; equal values share the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
    std::vector<double> ranks(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        double below = 0, equal = 0;
        for (const double other : values) {
            below += other < values[i] ? 1 : 0;
            equal += other == values[i] ? 1 : 0;
        }
        ranks[i] = below + (equal + 1) / 2;
    }
    return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
    const auto count = static_cast<double>(a.size());
    const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
    const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        ab += (a[i] - mean_a) * (b[i] - mean_b);
        aa += (a[i] - mean_a) * (a[i] - mean_a);
        bb += (b[i] - mean_b) * (b[i] - mean_b);
    }
    return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

}  // namespace

Prediction predict(const config::Machine& machine, const MeasuredRow& row) {
    const cost::MemoryUse use = cost::memory_use(machine, row.job, row.layout);
    Prediction prediction;
    prediction.seconds = cost::described_step_time(machine, row.job, row.layout, use).total();
    if (!machine.repair.date.empty() && !row.date.empty() && row.date < machine.repair.date)
        prediction.seconds *= 1 + machine.repair.slowdown;
    prediction.memory_gb = use.total() * 1e-9;
    prediction.out_of_memory = !cost::fits(machine, use, 0);
    return prediction;
}

Judgement judge(const std::vector<MeasuredRow>& rows, std::vector<Prediction> predictions) {
    Judgement judgement;
    std::vector<double> predicted, measured;
    double memory_rows = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const MeasuredRow& row = rows[i];
        const Prediction& prediction = predictions[i];
        if (row.flagged.empty() && prediction.out_of_memory != row.out_of_memory) ++judgement.wrong_outcomes;
        if (row.counts()) {
            const double error = std::abs(prediction.seconds / *row.seconds - 1);
            judgement.mean_absolute_error += error;
            judgement.worst_error = std::max(judgement.worst_error, error);
            predicted.push_back(prediction.seconds);
            measured.push_back(*row.seconds);
        }
        if (row.memory_gb && row.flagged.empty() && !row.out_of_memory) {
            const double error = std::abs(prediction.memory_gb / *row.memory_gb - 1);
            judgement.mean_memory_error += error;
            judgement.worst_memory_error = std::max(judgement.worst_memory_error, error);
            ++memory_rows;
        }
    }
    if (!predicted.empty()) {
        judgement.mean_absolute_error /= static_cast<double>(predicted.size());
        judgement.rank_correlation = correlation(ranks_of(predicted), ranks_of(measured));
    } else {
        judgement.mean_absolute_error = judgement.worst_error = judgement.rank_correlation = unknown;
    }
    if (memory_rows > 0)
        judgement.mean_memory_error /= memory_rows;
    else
        judgement.mean_memory_error = judgement.worst_memory_error = unknown;
    judgement.rows = std::move(predictions);
    return judgement;
}

Judgement judge(const config::Machine& machine, const std::vector<MeasuredRow>& rows) {
    std::vector<Prediction> predictions;
    for (const MeasuredRow& row : rows) predictions.push_back(predict(machine, row));
    return judge(rows, std::move(predictions));
}

}  // namespace lockstep::plan
