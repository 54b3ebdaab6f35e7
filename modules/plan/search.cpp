#include "plan/search.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "cost/memory_model.hpp"
#include "layout/run_layout.hpp"
#include "model/mixers/registry.hpp"

namespace lockstep::plan {
namespace {

// The values allowed on every axis.
struct Choices {
    std::vector<std::int64_t> tensor, pipeline, context, micro, interleave, zero;  // empty: all
    std::vector<config::Recompute> recompute;
    std::vector<bool> sequence;
};

Choices choices_of(const PlanRequest& request, const cost::Job& job) {
    Choices choices;
    choices.tensor = counts_of(request.tensor, "plan.tensor");
    choices.pipeline = counts_of(request.pipeline, "plan.pipeline");
    choices.context = counts_of(request.context, "plan.context");
    choices.micro = counts_of(request.micro, "plan.micro");
    choices.interleave = counts_of(request.interleave, "plan.interleave");
    choices.zero = counts_of(request.zero, "plan.zero");
    const bool by_lanes = job.own_program() && job.run.parallel.lanes > 0;
    const std::int64_t most_zero = by_lanes ? 1 : 3;
    for (const std::int64_t stage : choices.zero)
        if (stage > most_zero)
            throw usage_error("plan.zero = \"{}\": {} supports stages 0 to {}{}", request.zero, job.program.name,
                              most_zero, by_lanes ? " with parallel.lanes" : "");
    if (choices.zero.empty() && job.own_program() && !by_lanes) choices.zero = {0, 1, 2, 3};
    if (choices.zero.empty()) choices.zero = {0, 1};
    for (const std::string& word : words_of(request.recompute))
        choices.recompute.push_back(config::from_word<config::Recompute>(word, "plan.recompute"));
    using config::Recompute;
    if (!job.own_program() && std::count(choices.recompute.begin(), choices.recompute.end(), Recompute::cheap) > 0)
        throw usage_error("plan.recompute = \"{}\": {} supports none, selective and full", request.recompute,
                          job.program.name);
    if (choices.recompute.empty() && job.own_program())
        choices.recompute = {Recompute::none, Recompute::cheap, Recompute::selective, Recompute::full};
    if (choices.recompute.empty()) choices.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    for (const std::string& word : words_of(request.sequence))
        choices.sequence.push_back(config::from_word<bool>(word, "plan.sequence"));
    if (choices.sequence.empty()) choices.sequence = {false, true};
    return choices;
}

// Tokens of a rank where contexts are not named: a tile of attention. Shorter ones are possible but slow.
constexpr std::int64_t least_stretch = 64;

bool allowed(const std::vector<std::int64_t>& values, std::int64_t value) {
    return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

class Search {
  public:
    Search(const config::Machine& machine, const cost::Job& job, const Choices& choices, const Limits& limits)
        : machine_(machine), job_(job), choices_(choices), limits_(limits) {
        for (const cost::ModelLoad& load : job.models) {
            runs_.push_back(job.run);
            runs_.back().model = load.shape;
        }
        hands_on_states_ = std::any_of(job.models.begin(), job.models.end(),
                                       [](const auto& load) { return !model::exchanges_along_sequences(load.shape); });
        divides_sequences_ =
            job.own_program() && std::all_of(job.models.begin(), job.models.end(),
                                             [](const auto& load) { return model::divides_sequences(load.shape); });
    }

    void count(std::int64_t devices) {
        const std::int64_t before = result_.examined;
        const auto per_node = static_cast<std::int64_t>(machine_.device.per_node);
        problem_ = fmt::format("no allowed tensor x context x pipeline divides {}", devices);
        for (const std::int64_t tensor : layout::divisors(devices)) {
            if (!allowed(choices_.tensor, tensor) || (choices_.tensor.empty() && tensor > per_node)) continue;
            for (const std::int64_t context : layout::divisors(devices / tensor)) {
                if (!allowed(choices_.context, context) || (context > 1 && !divides_sequences_)) continue;
                const bool short_stretch = job_.run.batch.length / context < least_stretch;
                if (context > 1 && short_stretch && choices_.context.empty()) continue;
                for (const std::int64_t pipeline : layout::divisors(devices / tensor / context))
                    if (allowed(choices_.pipeline, pipeline)) grid(devices, tensor, context, pipeline);
            }
        }
        if (result_.examined == before)
            result_.remarks.push_back(
                fmt::format("{} devices: no layout is possible{}{}", devices, problem_.empty() ? "" : ": ", problem_));
    }
    // Memory is looked at from the best on, until there are enough that fit.
    SearchResult take(Order order) {
        const auto better = [order](const Candidate& a, const Candidate& b) {
            if (order == Order::tokens) return a.tokens_per_second > b.tokens_per_second;
            const auto cost = [order](const Candidate& candidate) {
                return candidate.price.time.total() *
                       (order == Order::gpu_hours ? static_cast<double>(candidate.devices) : 1);
            };
            return cost(a) < cost(b);
        };
        std::stable_sort(timed_.begin(), timed_.end(), better);
        std::map<std::int64_t, std::size_t> fitting, planned;  // of each count
        std::vector<Candidate> left;
        for (Candidate& candidate : timed_) {
            if (fitting[candidate.devices] == most_fitting) {
                result_.more_may_fit = true;
                continue;
            }
            // The plan of our own program takes longer than the described one: some are looked at.
            const bool too_large = job_.own_program() && far_too_large(candidate);
            if (too_large || (job_.own_program() && planned[candidate.devices] == most_planned)) {
                if (!too_large) result_.more_may_fit = true;
                left.push_back(std::move(candidate));
                continue;
            }
            ++planned[candidate.devices];
            if (decide(candidate)) ++fitting[candidate.devices];
        }
        // Where none of the fastest fits, the leanest may.
        std::stable_sort(left.begin(), left.end(),
                         [](const Candidate& a, const Candidate& b) { return a.price.memory < b.price.memory; });
        std::map<std::int64_t, std::size_t> lean;
        for (Candidate& candidate : left)
            if (fitting[candidate.devices] == 0 && lean[candidate.devices]++ < most_lean) decide(candidate);
        std::stable_sort(result_.fitting.begin(), result_.fitting.end(), better);
        std::stable_sort(result_.excluded.begin(), result_.excluded.end(), better);
        return std::move(result_);
    }

  private:
    void grid(std::int64_t devices, std::int64_t tensor, std::int64_t context, std::int64_t pipeline) {
        const config::Grid grid{tensor, context, devices / tensor / context / pipeline, pipeline};
        cost::Layout layout{{grid}, 0};  // micro-batches of any size
        layout.bucket_bytes = job_.run.parallel.bucket_bytes;
        layout.lanes = job_.run.parallel.lanes;
        layout.offload = job_.run.parallel.offload;
        layout.zero = most_divided();
        if (!possible(layout)) return;
        const std::int64_t share = job_.run.batch.global / std::max(layout.data, layout.lanes);
        problem_ = fmt::format("no allowed micro-batch divides the {} sequences of a {}", share,
                               layout.lanes > 0 ? "lane" : "replica");
        for (std::int64_t micro = 1; micro <= share; micro *= 2) {
            const bool wanted = choices_.micro.empty() ? micro <= 64 : allowed(choices_.micro, micro);
            if (wanted && share % micro == 0) with_micro(devices, layout, micro);
        }
        for (const std::int64_t micro : choices_.micro)  // those that are no powers of 2
            if (micro > 0 && (micro & (micro - 1)) != 0 && share % micro == 0) with_micro(devices, layout, micro);
    }

    // The stage that allows most grids: some optimizers want replicas to divide them.
    std::int64_t most_divided() const { return *std::max_element(choices_.zero.begin(), choices_.zero.end()); }

    void with_micro(std::int64_t devices, cost::Layout layout, std::int64_t micro) {
        layout.micro = micro;
        std::vector<std::int64_t> interleaves = choices_.interleave;
        if (interleaves.empty()) interleaves = {1, 2, 4};
        for (const std::int64_t interleave : interleaves) {
            layout.interleave = interleave;
            layout.sequence = false;
            layout.zero = most_divided();
            if (interleave < 1 || !possible(layout)) continue;
            for (const std::int64_t zero : choices_.zero) {
                layout.zero = zero;
                if (zero > 0 && layout.data * layout.context == 1 && choices_.zero.size() > 1) continue;
                // Ranks that hand on states meet at every block, which the price does not know.
                const bool meets = zero > 1 && layout.context > 1 && hands_on_states_;
                if (meets && choices_.zero.front() < 2) continue;
                for (const bool sequence : choices_.sequence) {
                    layout.sequence = sequence;
                    if (sequence && (layout.tensor == 1 || !possible(layout))) continue;
                    for (const config::Recompute recompute : choices_.recompute) {
                        layout.recompute = recompute;
                        examine(devices, layout);
                    }
                }
            }
        }
    }

    // The trainer's rule, for each of the models; of a described program too.
    bool possible(const cost::Layout& layout) {
        for (config::RunDescription& run : runs_) {
            run.parallel = layout;
            run.batch.micro = layout.micro;
            const std::string why = layout::why_impossible(run, layout);
            if (why.empty()) continue;
            problem_ = why;
            return false;
        }
        return true;
    }

    void examine(std::int64_t devices, const cost::Layout& layout) {
        Candidate candidate;
        candidate.devices = devices;
        candidate.layout = layout;
        candidate.price = cost::price_time(machine_, job_, layout);
        if (!candidate.price.why_not.empty()) {
            problem_ = candidate.price.why_not;
            return;
        }
        ++result_.examined;
        const double seconds = candidate.price.time.total();
        candidate.tokens_per_second = static_cast<double>(job_.run.batch.global * job_.run.batch.length) / seconds;
        candidate.job = job_time(machine_, job_, layout, candidate.price.time);
        candidate.gpu_hours = candidate.job.total() / 3600 * static_cast<double>(devices);
        timed_.push_back(std::move(candidate));
    }

    // By the described model, which is not far off.
    bool far_too_large(Candidate& candidate) const {
        const cost::MemoryUse use = cost::memory_use(machine_, job_, candidate.layout);
        const bool offloads = job_.own_program() && machine_.device.kind == config::MachineKind::gpu &&
                              candidate.layout.offload != config::Offload::none;
        candidate.price.memory = use.total() - (offloads ? use.owner : 0);
        const double on_node = static_cast<double>(std::min(candidate.devices, cost::ranks_per_node(machine_, job_)));
        const double all = machine_.memory_bytes() / (machine_.device.kind == config::MachineKind::gpu ? 1 : on_node);
        return candidate.price.memory > 2 * (limits_.memory > 0 ? std::min(limits_.memory, all) : all);
    }

    bool decide(Candidate& candidate) {
        candidate.price.memory = 0;
        cost::price_memory(candidate.price, machine_, job_, candidate.layout, limits_.memory);
        candidate.why_not = candidate.price.why_not;
        if (candidate.why_not.empty()) candidate.why_not = why_beyond_limits(candidate);
        const bool good = candidate.why_not.empty();
        (good ? result_.fitting : result_.excluded).push_back(std::move(candidate));
        return good;
    }

    std::string why_beyond_limits(const Candidate& candidate) const {
        if (limits_.seconds > 0 && candidate.job.total() > limits_.seconds)
            return fmt::format("{} exceeds the limit of {}", human_seconds(candidate.job.total()),
                               human_seconds(limits_.seconds));
        if (limits_.gpu_hours > 0 && candidate.gpu_hours > limits_.gpu_hours)
            return fmt::format("{:.1f} GPU-hours exceed the budget of {:.1f}", candidate.gpu_hours, limits_.gpu_hours);
        return "";
    }

    static constexpr std::size_t most_fitting = 100, most_planned = 500, most_lean = 100;  // of a count of devices
    const config::Machine& machine_;
    const cost::Job& job_;
    const Choices& choices_;
    const Limits& limits_;
    bool hands_on_states_ = false;  // along a divided sequence
    bool divides_sequences_;        // every mixer can
    SearchResult result_;
    std::vector<config::RunDescription> runs_;  // of each model
    std::vector<Candidate> timed_;
    std::string problem_;
};

}  // namespace

SearchResult search(const config::Machine& machine, const cost::Job& job, const PlanRequest& request,
                    const std::vector<std::int64_t>& devices, const Limits& limits, Order order) {
    const Choices choices = choices_of(request, job);
    Search search(machine, job, choices, limits);
    for (const std::int64_t count : devices) search.count(count);
    return search.take(order);
}

}  // namespace lockstep::plan
