#include "analysis/predict/scaling_prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <optional>
#include <set>

#include "analysis/metrics/statistics.hpp"
#include "analysis/predict/randomized_fit.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::size_t draw_count = 300;
constexpr std::uint64_t seed = 1;
// Standard deviations of measurements from the model, as shares of the measurement and of the step: launches differ,
// and the model is simpler than the machine.
constexpr double step_deviation = 0.01, work_deviation = 0.02, work_floor = 0.001, wait_deviation = 0.25,
                 exchange_deviation = 0.1, communication_floor = 0.003;
constexpr double least_left_out_error = 0.01;
constexpr double negligible = 1e-9;  // seconds of a term that was not seen

Range range_of(const std::vector<double>& values) {
    return {quantile(values, (1 - prediction_level) / 2), quantile(values, 0.5),
            quantile(values, (1 + prediction_level) / 2)};
}

// What a root mean square of so few errors must be multiplied by: the 95 % quantile of Student's t.
double student(std::size_t freedom) {
    const boost::math::students_t distribution(static_cast<double>(std::max<std::size_t>(freedom, 1)));
    return boost::math::quantile(distribution, (1 + prediction_level) / 2);
}

class Predictor {
  public:
    Predictor(const ScalingProgram& program, const std::vector<WorkTerm>& terms, const config::Machine& machine,
              const std::vector<MeasuredSteps>& runs)
        : model_(program, terms), runs_(runs) {
        for (const MeasuredSteps& run : runs_) {
            scales_.emplace_back(run.ranks, run.nodes, run.batch);
            counts_.insert(run.ranks);
        }
        if (counts_.size() < 2)
            throw usage_error(
                "a prediction needs runs on at least two different numbers of ranks, preferably three; runs on {} "
                "rank{} alone do not show what does not shrink with a rank's share, how long ranks wait, and what the "
                "backward pass hides",
                runs_.empty() ? 0.0 : runs_.front().ranks, plural(runs_.empty() ? 0 : runs_.front().ranks));
        believe(machine);
    }

    ScalingPrediction predict(const std::vector<CurveRequest>& requests) {
        ScalingPrediction result;
        leave_out(result);
        const FitProblem problem = problem_without(0);
        best_ = most_probable(problem);
        draws_ = draw_unknowns(problem, draw_count, seed);
        tell_numbers(result);
        Vague vague;
        for (const CurveRequest& request : requests) result.curves.push_back(curve(request, result, vague));
        if (vague.first && vague.told == 0) {
            const auto ranks = std::llround(vague.first->ranks);
            throw usage_error(
                "these runs, on {} numbers of ranks, are not enough: the 90 % interval at {} rank{} spans more than a "
                "factor of {:g}; add {}",
                counts_.size(), with_commas(ranks), plural(ranks), widest_interval, advice(*vague.first));
        }
        return result;
    }

  private:
    // Points beyond the measured ranks: those that are told, and those too wide to be.
    struct Vague {
        int told = 0;
        std::optional<CurvePoint> first;  // of all that are refused
    };

    // The run that would tell more.
    std::string advice(const CurvePoint& point) const {
        double nodes = 1;
        for (const Scale& scale : scales_) nodes = std::max(nodes, scale.nodes);
        std::string run = counts_.size() < 3 ? "a run on a third number of ranks" : "";
        if (nodes == 1 && point.nodes > 1)
            run += run.empty() ? "a run on two nodes or more" : ", best on two nodes or more";
        if (run.empty()) run = fmt::format("a run on more than {} ranks", with_commas(std::llround(*counts_.rbegin())));
        return run;
    }

    // What is believed before: the terms begin with the order of magnitude of the run with the largest share.
    void believe(const config::Machine& machine) {
        std::size_t largest = 0;
        for (std::size_t i = 1; i < runs_.size(); ++i)
            if (model_.sequences_per_replica(scales_[i]) > model_.sequences_per_replica(scales_[largest])) largest = i;
        const MeasuredSteps& run = runs_[largest];
        std::vector<double> seconds;
        for (const double value : run.work)
            seconds.push_back(std::isfinite(value) ? std::max(value, negligible)
                                                   : run.seconds / static_cast<double>(run.work.size()));
        unknowns_ = model_.unknowns(machine, seconds, model_.sequences_per_replica(scales_[largest]),
                                    run.ranks / model_.program().shards);
    }

    // Without the runs on so many ranks; 0: with all.
    FitProblem problem_without(double ranks) const {
        FitProblem problem;
        for (const auto& unknown : unknowns_) {
            problem.mean.push_back(unknown.mean);
            problem.deviation.push_back(unknown.deviation);
        }
        std::vector<std::size_t> used;
        const auto measured = [&](double value, double deviation) {
            problem.measured.push_back(value);
            problem.measured_deviation.push_back(deviation);
        };
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            const MeasuredSteps& run = runs_[i];
            if (run.ranks == ranks) continue;
            used.push_back(i);
            measured(run.seconds, run.seconds * std::hypot(step_deviation, run.deviation));
            for (const double value : run.work)
                if (std::isfinite(value)) measured(value, work_deviation * value + work_floor * run.seconds);
            if (run.ranks > 1 && std::isfinite(run.wait))
                measured(run.wait, wait_deviation * run.wait + communication_floor * run.seconds);
            if (run.ranks > 1 && std::isfinite(run.exchange))
                measured(run.exchange, exchange_deviation * run.exchange + communication_floor * run.seconds);
        }
        problem.predict = [this, used](const std::vector<double>& unknowns) {
            std::vector<double> values;
            for (const std::size_t i : used) {
                const StepTime step = model_.step(scales_[i], unknowns);
                values.push_back(step.total());
                for (std::size_t term = 0; term < step.work.size(); ++term)
                    if (std::isfinite(runs_[i].work[term])) values.push_back(step.work[term]);
                if (runs_[i].ranks > 1 && std::isfinite(runs_[i].wait)) values.push_back(step.wait);
                if (runs_[i].ranks > 1 && std::isfinite(runs_[i].exchange)) values.push_back(step.exchange);
            }
            return values;
        };
        return problem;
    }

    void leave_out(ScalingPrediction& result) const {
        double squares = 0;
        for (const double count : counts_) {
            const std::vector<double> unknowns = most_probable(problem_without(count));
            double of_count = 0, members = 0;
            for (std::size_t i = 0; i < runs_.size(); ++i) {
                if (runs_[i].ranks != count) continue;
                LeftOutRun left;
                left.ranks = count;
                left.batch = runs_[i].batch;
                left.measured = runs_[i].seconds;
                left.predicted = model_.step(scales_[i], unknowns).total();
                left.error = left.predicted / left.measured - 1;
                result.left_out.push_back(left);
                const double ratio = std::log(left.predicted / left.measured);
                of_count += ratio * ratio;
                ++members;
            }
            squares += of_count / members;
        }
        result.left_out_error =
            std::max(std::sqrt(squares / static_cast<double>(counts_.size())), least_left_out_error);
    }

    void tell_numbers(ScalingPrediction& result) const {
        for (std::size_t u = 0; u < unknowns_.size(); ++u) {
            const auto& unknown = unknowns_[u];
            if (!unknown.used) continue;
            std::vector<double> values, plain;
            double mean = 0, square = 0;
            for (const auto& draw : draws_) {
                values.push_back(unknown.value(draw[u]));
                mean += draw[u] / static_cast<double>(draws_.size());
                square += draw[u] * draw[u] / static_cast<double>(draws_.size());
            }
            LearnedNumber number;
            number.name = unknown.name;
            number.title = unknown.title;
            number.believed = unknown.value(unknown.mean);
            number.value = range_of(values);
            number.measured = std::sqrt(std::max(square - mean * mean, 0.0)) < 0.5 * unknown.deviation;
            result.numbers.push_back(number);
        }
    }

    // Doublings from what was measured: of ranks, or of a replica's share.
    double distance(const Scale& scale) const {
        double least = INFINITY, most = 0;
        for (const Scale& measured : scales_) {
            least = std::min(least, model_.sequences_per_replica(measured));
            most = std::max(most, model_.sequences_per_replica(measured));
        }
        const double share = model_.sequences_per_replica(scale);
        return std::max({0.0, std::log2(scale.ranks / *counts_.rbegin()), std::log2(*counts_.begin() / scale.ranks),
                         std::log2(least / share), std::log2(share / most)});
    }

    // The draws' quantiles, widened by the leave-one-out error, which grows with the square root of the number of
    // doublings, like a random walk with a step per doubling.
    Range seconds_at(const Scale& scale, const std::vector<double>& draws, double left_out_error) const {
        const Range drawn = range_of(draws);
        const double more = student(counts_.size()) * left_out_error * std::sqrt(1 + distance(scale));
        const double below = std::hypot(std::log(drawn.median / drawn.low), more),
                     above = std::hypot(std::log(drawn.high / drawn.median), more);
        return {drawn.median * std::exp(-below), drawn.median, drawn.median * std::exp(above)};
    }

    // Why there is no step with so many ranks; "" where there is one.
    std::string impossible(const CurveRequest& request, double ranks) const {
        const ScalingProgram& program = model_.program();
        const double replicas = ranks / program.model_ranks();
        if (replicas < 1 || replicas != std::floor(replicas))
            return fmt::format("{:g} rank{} not a multiple of the {:g} that share a replica of the model", ranks,
                               ranks == 1 ? " is" : "s are", program.model_ranks());
        if (request.kind == CurveKind::weak || !program.batch_known) return "";
        if (replicas > request.batch)
            return fmt::format("a step has {:g} sequences, but {:g} ranks make {:g} replicas", request.batch, ranks,
                               replicas);
        if (program.must_divide && std::fmod(request.batch, replicas) != 0)
            return fmt::format("{:g} sequences do not divide evenly among the {:g} replicas of {:g} ranks",
                               request.batch, replicas, ranks);
        return "";
    }

    double batch_at(const CurveRequest& request, double ranks) const {
        return request.kind == CurveKind::strong ? request.batch
                                                 : request.batch * ranks / model_.program().model_ranks();
    }

    std::vector<double> totals(const Scale& scale) const {
        std::vector<double> values;
        for (const auto& draw : draws_) values.push_back(model_.step(scale, draw).total());
        return values;
    }

    CurvePoint point(const CurveRequest& request, double ranks, double left_out_error) const {
        const Scale scale = scale_of(model_.program(), ranks, batch_at(request, ranks));
        CurvePoint point;
        point.ranks = ranks;
        point.nodes = scale.nodes;
        point.batch = scale.batch;
        point.sequences_per_replica = model_.sequences_per_replica(scale);
        std::vector<double> shares;
        for (const auto& draw : draws_) {
            const StepTime step = model_.step(scale, draw);
            shares.push_back(step.communication / step.total());
        }
        point.seconds = seconds_at(scale, totals(scale), left_out_error);
        point.communication_share = range_of(shares);
        const double work = scale.batch / batch_at(request, request.base_ranks);
        const double times = ranks / request.base_ranks;
        const auto over = [&](double amount) {
            return Range{amount / point.seconds.high, amount / point.seconds.median, amount / point.seconds.low};
        };
        point.speedup = over(work * request.base_seconds);
        point.efficiency = over(work * request.base_seconds / times);
        point.tokens_per_second = over(scale.batch * request.tokens_a_sequence);
        const StepTime step = model_.step(scale, best_);
        for (std::size_t i = 0; i < step.work.size(); ++i)
            point.parts.emplace_back(model_.terms()[i].name, step.work[i]);
        point.parts.emplace_back("wait", step.wait);
        point.parts.emplace_back("exchange", step.exchange);
        return point;
    }

    PredictedCurve curve(const CurveRequest& request, const ScalingPrediction& result, Vague& vague) const {
        PredictedCurve curve;
        curve.request = request;
        const ScalingProgram& program = model_.program();
        const bool strong = request.kind == CurveKind::strong;
        if (!(curve.request.base_seconds > 0))
            curve.request.base_seconds =
                range_of(totals(scale_of(program, request.base_ranks, batch_at(request, request.base_ranks)))).median;
        if (strong && program.batch_known) curve.most_ranks = request.batch * program.model_ranks();
        std::vector<CurvePoint> refused;
        double beyond = 0;
        for (const double ranks : request.ranks) {
            if (curve.most_ranks > 0 && ranks > curve.most_ranks) {
                beyond = ranks;
                continue;
            }
            if (const std::string reason = impossible(request, ranks); !reason.empty()) {
                curve.remarks.push_back(fmt::format("No point at {} rank{}: {}.", with_commas(std::llround(ranks)),
                                                    plural(std::llround(ranks)), reason));
                continue;
            }
            CurvePoint found = point(curve.request, ranks, result.left_out_error);
            const bool is_new = ranks > *counts_.rbegin();
            const bool wide = is_new && found.seconds.high > widest_interval * found.seconds.low;
            if (is_new && !wide) ++vague.told;
            (wide ? refused : curve.points).push_back(std::move(found));
        }
        if (!refused.empty()) {
            const CurvePoint& first = refused.front();
            if (!vague.first) vague.first = first;
            const auto count = std::llround(first.ranks);
            curve.remarks.push_back(fmt::format(
                "No point at {} rank{}{}: the 90 % interval there, {:.3g} to {:.3g} s, spans more than a factor of {:g}. "
                "It would take {}.",
                with_commas(count), plural(count),
                refused.size() > 1 ? fmt::format(" and {} others", refused.size() - 1) : "", first.seconds.low,
                first.seconds.high, widest_interval, advice(first)));
        }
        if (beyond > 0)
            curve.remarks.push_back(fmt::format(
                "Strong scaling with {} sequences per step ends at {} ranks: more ranks would have no sequence to "
                "work on. {} ranks need a batch of {} or more, or more ranks per replica.",
                with_commas(std::llround(request.batch)), with_commas(std::llround(curve.most_ranks)),
                with_commas(std::llround(beyond)),
                with_commas(std::llround(std::ceil(beyond / program.model_ranks())))));
        const auto fastest = std::min_element(
            curve.points.begin(), curve.points.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.seconds.median < b.seconds.median; });
        if (strong && !curve.points.empty() && fastest + 1 != curve.points.end())
            curve.remarks.push_back(fmt::format("Beyond {} rank{} a step gets no faster.",
                                                with_commas(std::llround(fastest->ranks)),
                                                plural(std::llround(fastest->ranks))));
        return curve;
    }

    ScalingModel model_;
    std::vector<MeasuredSteps> runs_;
    std::vector<Scale> scales_;
    std::set<double> counts_;
    std::vector<ScalingModel::Unknown> unknowns_;
    std::vector<double> best_;
    std::vector<std::vector<double>> draws_;
};

}  // namespace

ScalingPrediction predict_scaling(const ScalingProgram& program, const std::vector<WorkTerm>& terms,
                                  const config::Machine& machine, const std::vector<MeasuredSteps>& runs,
                                  const std::vector<CurveRequest>& curves) {
    return Predictor(program, terms, machine, runs).predict(curves);
}

}  // namespace lockstep::analysis
