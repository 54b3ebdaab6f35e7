#include "cost/job.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "layout/run_layout.hpp"
#include "model/frozen.hpp"
#include "model/parameter_description.hpp"
#include "optim/registry.hpp"

namespace lockstep::cost {
namespace {

// Megatron-DeepSpeed of 2022: scores in memory, fp16 gradients, every owner keeps fp32 master, moments and a copy of
// its gradients; replicas reduce after the backward pass.
Program megatron_deepspeed() {
    Program program;
    program.name = "megatron-deepspeed";
    program.own = false;
    program.attention_scores = true;
    program.layers_even = true;
    program.gradient_bytes = 2;
    program.owner_bytes = 16;
    program.reduced_bytes = 2;
    program.accumulated_bytes = 6;
    program.forward_kernels = 25;
    program.backward_kernels = 50;
    program.stream_passes_forward = 10;
    program.stream_passes_backward = 14;
    program.score_passes_forward = 4;
    program.score_passes_backward = 5;
    program.logit_bytes = 12;
    program.logit_moved_bytes = 22;
    program.logits_whole = true;
    program.hidden_reduction = 0;
    return program;
}

const std::vector<Program>& programs() {
    static const std::vector<Program> list = {Program{}, megatron_deepspeed()};
    return list;
}

}  // namespace

std::vector<std::string> program_names() {
    std::vector<std::string> names;
    for (const Program& program : programs()) names.push_back(program.name);
    return names;
}

const Program& program_named(const std::string& name) {
    for (const Program& program : programs())
        if (program.name == name) return program;
    throw usage_error("unknown program \"{}\"; the programs are {}", name, fmt::join(program_names(), ", "));
}

void measure(ModelLoad& load) {
    const config::ModelDescription& model = load.shape;
    double blocks = 0, blocks_trained = 0;
    load.table = load.table_trained = load.head = load.head_trained = 0;
    std::vector<double> of_block(static_cast<std::size_t>(model.layers),
                                 load.adapters / static_cast<double>(model.layers));
    for (const auto& parameter : model::describe_parameters(model, model::whole_model(model))) {
        const auto count = static_cast<double>(element_count(parameter.shape));
        const double trained = model::is_frozen(model, parameter.name) ? 0 : count;
        const bool embedding = parameter.name == "embedding/weight";
        if (parameter.name.rfind("blocks/", 0) == 0) {
            blocks += count;
            blocks_trained += trained;
            of_block[std::stoul(parameter.name.substr(7))] += trained;  // "blocks/12/…"
        } else if (embedding || parameter.name == "position/weight") {
            load.table += count;
            load.table_trained += trained;
        } else {
            load.head += count;
            load.head_trained += trained;
        }
        if (embedding && model.tied_head) {
            load.head += count;
            load.head_trained += trained;
        }
    }
    load.trained_before = {0};
    for (const double trained : of_block) load.trained_before.push_back(load.trained_before.back() + trained);
    const auto layers = static_cast<double>(model.layers);
    load.block = (blocks + load.adapters) / layers;
    load.block_trained = (blocks_trained + load.adapters) / layers;
    const double tied = model.tied_head ? static_cast<double>(model.vocabulary * model.width) : 0;
    const double tied_trained = model::is_frozen(model, "embedding/weight") ? 0 : tied;
    load.total = blocks + load.adapters + load.table + load.head - tied;
    load.trained = blocks_trained + load.adapters + load.table_trained + load.head_trained - tied_trained;
}

Job job_of(const config::RunDescription& run) {
    Job job;
    job.run = run;
    if (job.run.batch.length == 0) job.run.batch.length = run.model.context;
    ModelLoad model;
    model.name = run.model.preset.empty() ? run.run.name : run.model.preset;
    model.shape = run.model;
    measure(model);
    job.models.push_back(std::move(model));
    job.program = program_named("lockstep");
    const auto parameters = model::describe_parameters(run.model, model::whole_model(run.model));
    const auto state = static_cast<double>(
        optim::state_count(optim::optimizer_of(run.optimizer), parameters, run.optimizer.averages()));
    if (job.models.front().trains()) job.program.owner_bytes = sizeof(float) * (1 + state / job.models.front().trained);
    const bool fp32 = run.precision.compute == config::Precision::fp32;
    job.update_products = optim::products_of_update(run.optimizer, optim::optimizer_of(run.optimizer), parameters,
                                                    fp32 ? Type::fp32 : Type::bf16, DeviceKind::cuda);
    job.steps = static_cast<double>(run.schedule.steps);
    return job;
}

std::string layout_text(const Layout& layout) {
    std::string text = fmt::format("data {} x tensor {} x pipeline {}", layout.data, layout.tensor, layout.pipeline);
    if (layout.context > 1) text += fmt::format(" x context {}", layout.context);
    if (layout.interleave > 1) text += fmt::format(" (interleaved {})", layout.interleave);
    text += fmt::format(", micro-batch {}", layout.micro);
    if (layout.zero > 0) text += fmt::format(", zero {}", layout.zero);
    if (layout.sequence) text += ", sequence parallel";
    if (layout.recompute != config::Recompute::none)
        text += fmt::format(", recompute {}", config::word_of(layout.recompute));
    return text;
}

std::int64_t micro_batches(const Job& job, const Layout& layout) {
    return job.run.batch.global / layout.data / layout.micro;
}

config::RunDescription laid_out(const Job& job, const Layout& layout) {
    config::RunDescription run = job.run;
    run.batch.micro = layout.micro;
    run.parallel = layout;
    return run;
}

std::vector<double> blocks_of_stages(const Job& job, const config::ModelDescription& model, std::int64_t stages) {
    const Program& program = job.program;
    const std::int64_t layers = model.layers;
    const auto count = static_cast<std::size_t>(stages);
    if (program.layers_even && layers % stages == 0)
        return std::vector<double>(count, static_cast<double>(layers / stages));
    if (program.own && stages <= model.layers) {  // measured tables may have others
        std::vector<double> blocks;
        for (const model::StageRange& range : layout::cut_model(model, job.run.batch.length, stages))
            blocks.push_back(static_cast<double>(range.last_block - range.first_block));
        return blocks;
    }
    // The head counts as the blocks whose arithmetic it has: 6·V·d against 72·d² a block, or 96·d² with full
    // recomputation; the embedding as what the head is to a program that divides by counting layers.
    const auto width = static_cast<double>(model.width);
    const double head = std::max(0.25, static_cast<double>(model.vocabulary) / (14 * width));
    std::vector<double> blocks(count, 0), work(count, 0);
    work.front() += program.layers_even ? 1 : 0.1;
    work.back() += program.layers_even ? 1 : head;
    for (std::int64_t left = layers; left > 0; --left) {
        const auto least = static_cast<std::size_t>(std::min_element(work.begin(), work.end()) - work.begin());
        ++work[least];
        ++blocks[least];
    }
    return blocks;
}

}  // namespace lockstep::cost
