// The planned memory of a rank against what the same objects allocate.
#define BOOST_TEST_MODULE own_memory
#include "layout/memory_plan.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cmath>

#include "kernels/counting_backend.hpp"
#include "layout/pipeline_schedule.hpp"
#include "layout/rank_share.hpp"
#include "layout/run_layout.hpp"
#include "model/stage.hpp"
#include "optim/adamw.hpp"

using namespace lockstep;
using namespace lockstep::layout;

namespace {

config::RunDescription description_of(const std::vector<std::string>& mixers) {
    config::RunDescription description;
    auto& model = description.model;
    model.mixers = mixers;
    model.width = 64;
    model.layers = 7;
    model.heads = {4};
    model.mlp_width = 96;
    model.vocabulary = 259;
    model.context = 32;
    model.options.change("ttt").set("mini_batch", 4);
    description.batch.global = 24;
    description.batch.micro = 1;
    description.batch.length = 32;
    description.parallel.bucket_bytes = 40'000;
    return description;
}

// All blocks and all micro-batches, on a backend that may be real.
MemoryPlan allocated(const config::RunDescription& description, const config::Grid& grid,
                     const cluster::GridPlace& place, kernels::Backend& backend) {
    MemoryPlan sizes;
    const Type type = compute_type(description.precision.compute);
    const BatchShare batch = share_of_batch(description, grid, backend.device().kind);
    const auto chunks = share_of_model(description, grid, place.pipeline);
    const model::Part part{place.tensor, grid.tensor};
    const model::ParameterLayout layout(model::describe_parameters(description.model, chunks), part);
    const GradientPlan gradients = plan_gradients(description, grid, place, layout, chunks);
    model::ParameterSet parameters(backend.device(), layout, true, type,
                                   division_of(description, grid, gradients, place.replica(grid)));
    const optim::AdamW optimizer({backend, parameters, description.optimizer});
    sizes.parameters = parameters.value_bytes();
    sizes.gradients = parameters.gradient_bytes();
    sizes.optimizer_state = optimizer.bytes();
    const model::TensorGroup group(part, description.parallel.sequence);
    const model::ContextChain chain(static_cast<int>(place.context), static_cast<int>(grid.context));
    const model::Neighbours neighbours{group, chain};
    const auto steps = pipeline_schedule({grid.pipeline, static_cast<std::int64_t>(chunks.size()), batch.micro_batches},
                                         place.pipeline, begun_ahead(description, chain.last()));
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        model::StageOptions options;
        options.range = chunks[chunk];
        options.shape = {batch.micro, description.batch.length / grid.context};
        options.slots = slots_of(steps, static_cast<std::int64_t>(chunk));
        options.recompute = description.parallel.recompute;
        options.neighbours = &neighbours;
        options.restarts_positions = description.restarts_positions();
        const model::Stage stage(backend, parameters, description.model, options);
        sizes.activations += stage.activation_bytes();
        sizes.workspace += stage.workspace_bytes();
        sizes.under_way += options.slots;
    }
    return sizes;
}

int compared = 0;

void compare(const config::RunDescription& description, const config::Grid& grid, kernels::Backend& backend) {
    if (!why_impossible(description, grid).empty()) return;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
        const cluster::GridPlace place = cluster::grid_place(rank, grid);
        const MemoryPlan plan = plan_memory(description, grid, place, backend.device().kind);
        const MemoryPlan real = allocated(description, grid, place, backend);
        const bool equal = plan.parameters == real.parameters && plan.gradients == real.gradients &&
                           plan.optimizer_state == real.optimizer_state && plan.activations == real.activations &&
                           plan.workspace == real.workspace && plan.under_way == real.under_way;
        BOOST_TEST(equal, config::to_toml(description)
                              << "\nrank " << rank << " of " << grid.ranks() << ", pipeline " << grid.pipeline
                              << ": planned " << memory_text(plan) << "; allocated " << memory_text(real));
        ++compared;
    }
}

const std::vector<config::Grid> grids = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 3, 1}, {1, 1, 1, 3},
                                         {2, 2, 2, 1}, {2, 1, 1, 2}, {1, 2, 3, 2}, {4, 1, 2, 3}};

void compare_layouts(config::RunDescription description, kernels::Backend& backend) {
    for (const config::Grid& grid : grids)
        for (const auto recompute :
             {config::Recompute::none, config::Recompute::cheap, config::Recompute::selective, config::Recompute::full})
            for (const int options : {0, 1, 2, 3}) {
                description.parallel.recompute = recompute;
                description.parallel.zero = options;
                description.parallel.sequence = options / 2 == 1;
                description.parallel.interleave = options == 3 && grid.pipeline > 1 ? 2 : 1;
                compare(description, grid, backend);
            }
}

void compare_models(kernels::Backend& backend, const std::vector<config::Precision>& precisions) {
    const std::vector<std::vector<std::string>> lists = {{"attention"},
                                                         {"ttt-linear"},
                                                         {"ttt-mlp"},
                                                         {"gated-deltanet"},
                                                         {"ttt-linear", "attention"},
                                                         {"attention", "ttt-mlp", "ttt-linear"}};
    for (const std::vector<std::string>& mixers : lists)
        for (const bool tied : {false, true})
            for (const config::Precision precision : precisions) {
                config::RunDescription description = description_of(mixers);
                const bool attention = mixers == lists.front();
                description.precision.compute = precision;
                description.model.tied_head = tied;
                description.model.mlp = tied ? config::MlpKind::gelu : config::MlpKind::swiglu;
                description.model.norm = tied ? config::NormKind::layer : config::NormKind::rms;
                description.model.bias = tied && attention ? config::Bias::all : config::Bias::none;
                description.model.position = tied && attention ? config::Position::learned : config::Position::rope;
                if (tied && precision == config::Precision::bf16)
                    description.data.documents = config::DocumentMode::separate;
                if (attention && !tied) {
                    description.model.heads = {4, 8};
                    description.model.kv_heads = {2, 4};
                    description.model.head_widths = {24};
                    description.model.qk_norm = true;
                }
                if (mixers.size() > 1) {
                    description.model.heads = {4, 8};
                    description.model.kv_heads = {2};
                    description.model.head_widths = {0};
                }
                // With divided attention a block's workspace depends on its window.
                if (attention)
                    description.model.windows =
                        tied ? std::vector<std::int64_t>{9, 0} : std::vector<std::int64_t>{0, 21};
                if (mixers.size() > 1) description.model.windows = {0, 0, 5};
                if (attention && tied) description.batch.micro = 2;
                description.model.options.change("ttt").set("share_qk", tied);
                description.model.options.change("ttt").set("pre_conv", !tied);
                config::resolve(description.model);
                compare_layouts(description, backend);
            }
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_planned_is_what_is_allocated) {
    const auto backend = kernels::make_cpu_backend();
    compare_models(*backend, {config::Precision::fp32, config::Precision::bf16});
    BOOST_TEST(compared > 1000);
}

// On a GPU alignments and the kept states of TTT differ; here the plan of few blocks is compared with that of all.
BOOST_AUTO_TEST_CASE(gpus_are_planned_without_one) {
    kernels::CountingBackend backend(DeviceKind::cuda);
    compared = 0;
    compare_models(backend, {config::Precision::bf16, config::Precision::fp16});
    BOOST_TEST(compared > 1000);
    const auto of_cpu = kernels::make_cpu_backend();
    const config::Grid grid;
    const config::RunDescription description = [] {
        config::RunDescription of = description_of({"attention"});
        config::resolve(of.model);
        return of;
    }();
    BOOST_TEST(plan_memory(description, grid, {}, DeviceKind::cuda).activations >
               plan_memory(description, grid, {}, DeviceKind::cpu).activations);
}

BOOST_AUTO_TEST_CASE(micro_batches_are_chosen_for_the_device) {
    config::RunDescription description = description_of({"attention"});
    config::resolve(description.model);
    description.batch.global = 512;
    description.batch.micro = 0;
    description.batch.length = 1024;
    BOOST_TEST(plan_memory(description, {}, {}, DeviceKind::cpu).micro == 8);
    BOOST_TEST(plan_memory(description, {}, {}, DeviceKind::cuda).micro == 32);
    const MemoryPlan plan = plan_memory(description, {1, 1, 2, 4}, {}, DeviceKind::cuda);
    BOOST_TEST(plan.micro == 16);
    BOOST_TEST(plan.micro_batches == 16);
    BOOST_TEST(plan.under_way == 4);
}

// A search plans many layouts: a large model takes no more than a few milliseconds, and no memory of its size.
BOOST_AUTO_TEST_CASE(a_large_model_is_planned_at_once) {
    config::RunDescription description = description_of({"attention"});
    auto& model = description.model;
    model.width = 12288;
    model.layers = 96;
    model.heads = {96};
    model.mlp_width = 49152;
    model.vocabulary = 50257;
    model.context = 8192;
    config::resolve(model);
    description.batch.global = 1536;
    description.batch.length = 2048;
    description.parallel.zero = 1;
    description.precision.compute = config::Precision::bf16;
    const auto begin = std::chrono::steady_clock::now();
    constexpr int times = 100;
    MemoryPlan plan;
    for (int i = 0; i < times; ++i) plan = plan_memory(description, {8, 1, 2, 1}, {}, DeviceKind::cuda);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    BOOST_TEST_MESSAGE(seconds.count() / times * 1e3 << " ms a plan");
    BOOST_TEST(seconds.count() < 5);
    BOOST_TEST(plan.planned() > std::size_t{100} << 30);
    BOOST_TEST(process_memory().peak < std::uint64_t{1} << 30);
}

BOOST_AUTO_TEST_CASE(advice_names_the_largest_part_and_what_helps) {
    config::RunDescription description = description_of({"attention"});
    config::resolve(description.model);
    MemoryPlan plan;
    plan.activations = std::size_t{3} << 30;
    plan.parameters = std::size_t{1} << 30;
    plan.micro = 4;
    plan.under_way = 1;
    BOOST_TEST(
        memory_advice(plan, description) ==
        "activations are the largest part (3.00 GiB); try: batch.micro below 4, a leaner parallel.recompute (cheap, "
        "selective, full), a smaller batch.length or a larger parallel.context");
    // Two micro-batches in flight are those of a pipeline, or of a chain along the sequence.
    plan.under_way = 2;
    plan.chunks = {{0, 7, true, false}};
    BOOST_TEST(memory_advice(plan, description).find("fewer stages of parallel.pipeline") != std::string::npos);
    plan.chunks = {{0, 7, true, true}};
    BOOST_TEST(memory_advice(plan, description).find("parallel.pipeline") == std::string::npos);
    plan.activations = 0;
    BOOST_TEST(
        memory_advice(plan, description) ==
        "parameters are the largest part (1.00 GiB); try: parallel.zero = 1, 2 or 3 with several replicas, a larger "
        "parallel.pipeline or parallel.tensor or a smaller model");
}

// Peaks of runs, from their traces' /memory, with a checkpoint every second step: batch.micro = 1, batch.length = 256.
// LOCKSTEP_FAULT=checkpoint_gather:*:*:late lets them copy as much as they ever do. Runs with a pipeline, tensor ranks
// or ZeRO are from when a share was copied whole, as it is still planned for them; they take up to 11 % less now.
BOOST_AUTO_TEST_CASE(the_process_takes_what_runs_took) {
    config::RunDescription description;
    description.batch.micro = 1;
    description.batch.length = 256;
    const auto within = [&](const config::Grid& grid, int rank, double measured) {
        description.batch.global = 2 * grid.ranks();
        const auto bytes =
            static_cast<double>(process_bytes(description, grid, cluster::grid_place(rank, grid), {}, 1));
        const double error = 100 * (bytes / measured - 1);
        BOOST_TEST_MESSAGE(description.model.preset << " " << config::word_of(description.precision.compute)
                                                    << ", rank " << rank << " of " << grid.ranks() << ": " << error
                                                    << " %");
        BOOST_TEST(std::abs(error) < 10);
    };
    description.model = config::preset("gpt2-124m");
    within({1, 1, 1, 1}, 0, 2568994816);
    description.precision.compute = config::Precision::bf16;
    within({1, 1, 1, 1}, 0, 2719285248);
    within({1, 1, 2, 1}, 0, 2721554432);
    within({2, 1, 1, 1}, 0, 2018631680);
    within({1, 1, 1, 2}, 0, 2800738304);
    within({1, 1, 1, 2}, 1, 1940905984);
    within({1, 1, 1, 4}, 0, 1619652608);
    within({1, 1, 1, 4}, 1, 1031987200);
    within({1, 1, 1, 4}, 2, 1005961216);
    within({1, 1, 1, 4}, 3, 1287802880);
    description.parallel.zero = 1;
    within({1, 1, 2, 1}, 0, 2468065280);
    description.parallel.zero = 0;
    description.model = config::preset("ttt-linear-125m");
    within({1, 1, 1, 1}, 0, 2466000896);
    description.precision.compute = config::Precision::fp32;
    within({1, 1, 1, 1}, 0, 2339958784);
}
