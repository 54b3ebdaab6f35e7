#include "cost/memory_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "base/plural.hpp"
#include "cost/described_program.hpp"
#include "model/mixers/registry.hpp"
#include "model/stage.hpp"

namespace lockstep::cost {
namespace {

// What the backward pass of a block keeps of its forward pass, bytes: of the stream, which only sequence parallelism
// divides; of what is inside of layers; of scores.
struct Kept {
    double stream = 0, inner = 0, scores = 0;
    double total() const { return stream + inner + scores; }
};

Kept kept_of_block(const Job& job, const ModelLoad& load, const Layout& layout) {
    const config::ModelDescription& model = load.shape;
    const double number = bytes_of(job.run.precision.compute);
    const auto t = static_cast<double>(layout.tensor);
    const double length = static_cast<double>(job.run.batch.length) / static_cast<double>(layout.context);
    const double rows = length * static_cast<double>(layout.micro);
    const config::LayerShape layer = model.layer(0);  // as all are, of a described program
    const auto width = static_cast<double>(model.width), heads = static_cast<double>(layer.heads);
    const auto head_width = static_cast<double>(layer.head_width);
    const auto keys = static_cast<double>(layer.kv_heads);
    Kept kept;
    kept.stream = 5 * rows * width * number / (layout.sequence ? t : 1);
    const double hidden = (model.mlp == config::MlpKind::swiglu ? 3.0 : 2.0) * static_cast<double>(model.mlp_width);
    const double normed = model.qk_norm ? heads + keys : 0;
    kept.inner = rows * number * ((2 * heads + 2 * keys + normed) * head_width + hidden) / t;
    if (job.program.attention_scores) {
        const auto scoring = std::count_if(model.mixers.begin(), model.mixers.end(), [](const std::string& mixer) {
            return model::mixer_type(mixer).scores_pairs();
        });
        const double share = static_cast<double>(scoring) / static_cast<double>(model.mixers.size());
        kept.scores = share * 5 * length * length * static_cast<double>(layout.micro) * heads / t;
    }
    return kept;
}

double under_way(const Job& job, const Layout& layout, std::int64_t stage) {
    const auto most = static_cast<double>(micro_batches(job, layout));
    const auto p = static_cast<double>(layout.pipeline), v = static_cast<double>(layout.interleave);
    const auto here = static_cast<double>(stage);
    if (layout.pipeline == 1) return 1;
    if (layout.interleave == 1) return std::min(most, p - here);
    // Interleaved (Narayanan et al. 2021, section 2.2): of pieces, as micro-batches of the whole stage.
    return std::min(most * v, 2 * (p - here - 1) + (v - 1) * p + 1) / v;
}

double pressure_of(const config::Machine& machine, const MemoryUse& use) {
    const double activations = use.stored + use.working + use.cached;
    if (activations <= 0 || machine.memory.headroom <= 0) return 0;
    const double left = (machine.memory_bytes() - use.total()) / activations;
    const double half = machine.memory.headroom / 2;
    return std::clamp((machine.memory.headroom - left) / half, 0.0, 1.0);
}

}  // namespace

MemoryUse memory_use(const config::Machine& machine, const Job& job, const Layout& layout) {
    const double number = bytes_of(job.run.precision.compute);
    const auto t = static_cast<double>(layout.tensor);
    const auto dp = static_cast<double>(layout.data * layout.context);
    const double rows = static_cast<double>(layout.micro * job.run.batch.length) / static_cast<double>(layout.context);
    const bool mixed = job.run.precision.compute != config::Precision::fp32;
    const bool all_alike = std::all_of(job.models.begin(), job.models.end(),
                                       [](const ModelLoad& load) { return model::blocks_are_alike(load.shape); });
    const double gradient_bytes = mixed ? job.program.gradient_bytes : 4;
    MemoryUse most;
    for (std::int64_t stage = 0; stage < layout.pipeline; ++stage) {
        // Those between hold less and less, where all blocks are alike.
        if (all_alike && stage > 1 && stage + 1 < layout.pipeline) continue;
        MemoryUse use;
        use.stage = stage;
        const double flights = under_way(job, layout, stage);
        use.under_way = std::llround(flights);
        for (const ModelLoad& load : job.models) {
            const auto blocks = blocks_of_stages(job, load.shape, layout.pipeline * layout.interleave);
            double here = 0, trained = 0;
            std::size_t before = 0;  // blocks
            for (std::size_t piece = 0; piece < blocks.size(); ++piece) {
                const std::size_t end = before + static_cast<std::size_t>(blocks[piece]);
                if (static_cast<std::int64_t>(piece) % layout.pipeline == stage) {
                    here += blocks[piece];
                    trained += load.trained_before[end] - load.trained_before[before];
                }
                before = end;
            }
            const bool first = stage == 0, last = stage + 1 == layout.pipeline;
            double held = here * load.block;
            if (first) held += load.table, trained += load.table_trained;
            if (last) held += load.head, trained += load.head_trained;
            if (first && last) held = load.total, trained = load.trained;  // a tied table once
            held /= t;
            trained /= t;
            use.parameters += held * number / (layout.zero >= 3 ? dp : 1);
            use.gradients += trained * gradient_bytes / (layout.zero >= 2 ? dp : 1);
            const double owner = job.program.owner_bytes - (mixed ? 0 : 4);
            use.owner += trained * owner / (layout.zero >= 1 ? dp : 1);
            if (!load.trains()) continue;
            const Kept kept = kept_of_block(job, load, layout);
            const double input = rows * static_cast<double>(load.shape.width) * number / (layout.sequence ? t : 1);
            double stored = input;
            if (layout.recompute == config::Recompute::none) stored = kept.total();
            if (layout.recompute == config::Recompute::selective) stored = kept.stream + kept.inner;
            use.stored += flights * here * stored;
            // A block at work has what it keeps, and its gradients.
            double working = 2 * (kept.stream + kept.inner) + kept.scores;
            if (layout.zero >= 3) working += 2 * load.block / t * number;
            if (job.own_program() && layout.zero >= 2) {  // the larger end, and gradients of two blocks
                const double end = std::max(first ? load.table : 0, last ? load.head : 0) / t;
                working += (end + 2 * load.block / t) * gradient_bytes + (layout.zero >= 3 ? end * number : 0);
            }
            if (last) {
                const double vocabulary = static_cast<double>(load.shape.vocabulary) / t;
                double logits = rows * vocabulary * job.program.logit_bytes * number / 2;
                if (!job.program.logits_whole)
                    logits = std::min(logits, static_cast<double>(model::logits_bytes(DeviceKind::cuda)));
                working += logits;
            }
            use.working = std::max(use.working, working);
        }
        use.fixed = machine.memory.fixed_gb * 1e9;
        use.cached = (use.stored + use.working) * machine.memory.slack;
        use.pressure = pressure_of(machine, use);
        use.cached *= 1 - use.pressure / 2;
        if (use.total() > most.total()) most = use;
    }
    return most;
}

bool fits(const config::Machine& machine, const MemoryUse& use, double limit) {
    const double room = limit > 0 ? std::min(limit, machine.memory_bytes()) : machine.memory_bytes();
    return use.total() <= room;
}

std::string why_too_large(const config::Machine& machine, const Layout& layout, const MemoryUse& use, double limit) {
    const double room = limit > 0 ? std::min(limit, machine.memory_bytes()) : machine.memory_bytes();
    struct Term {
        double bytes;
        std::string text;
    };
    const std::vector<Term> terms = {
        {use.parameters, layout.zero < 3 ? "the parameters; shard them over more tensor or pipeline ranks"
                                         : "the parameters; shard them over more ranks"},
        {use.gradients, "the gradients; shard them over more tensor or pipeline ranks"},
        {use.owner, layout.zero == 0 ? "the optimizer's state; parallel.zero = 1 shards it over the replicas"
                                     : "the optimizer's state; use more replicas, tensor or pipeline ranks"},
        {use.stored,
         fmt::format("the activations of {} micro-batch{} in flight; {}", use.under_way, plural(use.under_way, "es"),
                     layout.recompute != config::Recompute::full
                         ? "parallel.recompute = \"full\" keeps only each block's input"
                     : layout.micro > 1 ? "lower batch.micro"
                                        : "use more tensor or pipeline ranks")},
        {use.working, layout.micro > 1 ? "the workspace of block and head; lower batch.micro"
                                       : "the workspace of block and head; use more tensor ranks"},
    };
    const auto largest =
        std::max_element(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.bytes < b.bytes; });
    return fmt::format("{} needed of {}: {} of it for {}", human_bytes(use.total()), human_bytes(room),
                       human_bytes(largest->bytes), largest->text);
}

}  // namespace lockstep::cost
