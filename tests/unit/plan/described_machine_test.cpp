// Time and memory of a step on described machines: numbers that can be computed by hand, what must grow with what, and
// the fit to measured steps.
#define BOOST_TEST_MODULE described_machine
#include <boost/test/unit_test.hpp>

#include "base/error.hpp"
#include "cost/described_prices.hpp"
#include "cost/product_time.hpp"
#include "cost/time_model.hpp"
#include "places.hpp"
#include "plan/fit.hpp"

using namespace lockstep;
using namespace lockstep::config;
using namespace lockstep::cost;
using namespace lockstep::plan;

namespace {

const auto near = boost::test_tools::tolerance(1e-9);

// 1 TFLOP/s at once, memory and links without limits, so that a step is its arithmetic.
Machine arithmetic_only() {
    Machine machine;
    machine.name = "arithmetic";
    machine.device.units = 1;
    machine.device.peak_tflops = 1;
    machine.device.memory_gb_per_second = 1e6;
    machine.device.memory_efficiency = 1;
    machine.device.kernel_us = 0;
    machine.products.efficiency = 1;
    machine.node_link = {1e6, 0, 1};
    machine.network = {1000, 1e6, 0, 1};
    return machine;
}

Job small_job(const std::string& program, std::int64_t layers = 8) {
    config::RunDescription run;
    config::ModelDescription& model = run.model;
    model.width = 1024;
    model.layers = layers;
    model.heads = {16};
    model.vocabulary = 1024;
    model.context = 512;
    model.mlp = config::MlpKind::gelu;
    model.position = config::Position::none;
    config::resolve(model);
    run.batch.global = 64;
    run.batch.length = 512;
    run.precision.compute = config::Precision::bf16;
    Job job = job_of(run);
    job.program = program_named(program);
    return job;
}

double step_seconds(const Machine& machine, const Job& job, const Layout& layout) {
    return described_step_time(machine, job, layout, memory_use(machine, job, layout)).total();
}

const std::string measured_table = tests::source_path("tests/plan/a100_3d_topologies.csv");

}  // namespace

BOOST_AUTO_TEST_SUITE(described_machine)

BOOST_AUTO_TEST_CASE(tiles_and_waves) {
    Machine machine = arithmetic_only();
    machine.device.units = 100;
    const auto seconds = [&](double rows, double columns, double depth, std::int64_t inner = 0) {
        return product_seconds(machine, config::Precision::bf16, {rows, columns, depth, 1, inner});
    };
    const double wave = 2.0 * 256 * 128 * 100 * 4096 / 1e12;  // a hundred tiles at once
    BOOST_TEST(seconds(2560, 1280, 4096) == wave, near);
    BOOST_TEST(seconds(2561, 1280, 4096) > 1.3 * wave);  // a row more begins a wave, of smaller tiles if need be
    machine.products.unaligned_tflops = 0.01;
    BOOST_TEST(product_seconds(machine, config::Precision::bf16, {2560, 640, 4096, 2, 150}) == 100 * wave,
               near);  // 300 bytes a row
    BOOST_TEST(seconds(2560, 1280, 4096, 150) > 2 * seconds(2560, 1280, 4096, 152));
    BOOST_TEST(seconds(2560, 1280, 4096, 152) == wave, near);
    BOOST_TEST(!is_aligned(config::Precision::bf16, 12));
    BOOST_TEST(is_aligned(config::Precision::fp32, 12));
}

BOOST_AUTO_TEST_CASE(a_step_is_its_arithmetic) {
    const Machine machine = arithmetic_only();
    Job job = small_job("megatron-deepspeed");
    job.program.gradient_bytes = job.program.accumulated_bytes = job.program.owner_bytes = 0;
    Layout layout;
    layout.micro = 4;
    layout.recompute = config::Recompute::full;
    // A block's products and attention, four times with recomputation; the head three times (6 V d a token).
    const double d = 1024, s = 512, tokens = 64 * s;
    const double block = tokens * (2 * 12 * d * d + 4 * s * d), head = 6 * tokens * 1024 * d;
    // Memory is not free of time altogether: 1e15 bytes/s.
    BOOST_TEST(step_seconds(machine, job, layout) == (8 * 4 * block + head) / 1e12, boost::test_tools::tolerance(1e-3));
    layout.recompute = config::Recompute::none;
    BOOST_TEST(step_seconds(machine, job, layout) == (8 * 3 * block + head) / 1e12, boost::test_tools::tolerance(1e-3));
}

BOOST_AUTO_TEST_CASE(a_pipeline_fills_and_drains) {
    const Machine machine = arithmetic_only();
    Job job = small_job("megatron-deepspeed");
    job.models.front().shape.vocabulary = 1;  // no head to speak of
    measure(job.models.front());
    Layout layout;
    layout.pipeline = 4;
    layout.micro = 4;  // 16 micro-batches
    const StepTime time = described_step_time(machine, job, layout, memory_use(machine, job, layout));
    // (p - 1) / (m + p - 1), Narayanan et al. 2021.
    BOOST_TEST(time.idle / time.total() == 3.0 / 19, boost::test_tools::tolerance(0.01));
    layout.interleave = 2;
    const StepTime interleaved = described_step_time(machine, job, layout, memory_use(machine, job, layout));
    BOOST_TEST(interleaved.idle == time.idle / 2, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(replicas_and_layers_talk) {
    Machine machine = arithmetic_only();
    machine.node_link.gb_per_second = 100;
    const Job job = small_job("megatron-deepspeed");
    Layout layout;
    layout.tensor = 4;
    // A ring: 2 (t - 1) / t of the bytes.
    BOOST_TEST(tensor_reduction_seconds(machine, layout, 8e9) == 2 * 0.75 * 8e9 / 100e9, near);
    layout.tensor = 8;
    layout.data = 2;  // on two nodes: eight rings share the node's cards
    machine.network = {4, 12.5, 0, 0.5};
    const StepTime time = described_step_time(machine, job, layout, memory_use(machine, job, layout));
    const double held = (8 * 12.0 * 1024 * 1024 + 1024.0 * 1024 + 8 * 2 * 1024 + 1024) / 8;  // and norms
    BOOST_TEST(time.data == 0.5 * 2 * 2 * held / (50e9 * 0.5 / 8), boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(memory_of_a_described_program) {
    Machine machine = arithmetic_only();
    machine.memory = {0, 0, 0.3, 0};
    const Job job = small_job("megatron-deepspeed");
    Layout layout;
    layout.zero = 0;
    MemoryUse use = memory_use(machine, job, layout);
    const double total = job.models.front().total;
    BOOST_TEST(use.parameters == 2 * total, near);
    BOOST_TEST(use.gradients == 2 * total, near);
    BOOST_TEST(use.owner == 16 * total, near);
    layout.data = 4;
    layout.zero = 1;
    BOOST_TEST(memory_use(machine, job, layout).owner == 4 * total, near);
    layout.zero = 3;
    use = memory_use(machine, job, layout);
    BOOST_TEST(use.parameters + use.gradients == total, near);
    // The first of four stages has four micro-batches under way, each with the inputs of two blocks.
    layout = Layout{};
    layout.pipeline = 4;
    layout.recompute = config::Recompute::full;
    Job headless = job;
    headless.models.front().shape.vocabulary = 1;
    measure(headless.models.front());
    use = memory_use(machine, headless, layout);
    BOOST_TEST(use.stage == 0);
    BOOST_TEST(use.stored == 4 * 2 * 512.0 * 1024 * 2, near);
}

BOOST_AUTO_TEST_CASE(frozen_models_have_no_gradients) {
    const Machine machine = arithmetic_only();
    Job job = small_job("megatron-deepspeed");
    const double trained = step_seconds(machine, job, Layout{});
    job.models.front().shape.frozen = {"*"};
    job.models.front().adapters = 8000;
    measure(job.models.front());
    BOOST_TEST(job.models.front().trained == 8000, near);
    const MemoryUse use = memory_use(machine, job, Layout{});
    BOOST_TEST(use.gradients == 2 * 8000, near);
    const double frozen = step_seconds(machine, job, Layout{});
    // Forward and the input's gradient of three products; the scores have no weights to freeze.
    BOOST_TEST(frozen < 0.75 * trained);
    BOOST_TEST(frozen > 0.65 * trained);
}

BOOST_AUTO_TEST_CASE(better_machines_are_never_slower) {
    const Job job = small_job("megatron-deepspeed");
    Layout layout;
    layout.tensor = 4;
    layout.data = 4;
    layout.pipeline = 2;
    layout.zero = 1;
    const Machine before = read_machine("a100-80-4x100g");
    const double slow = step_seconds(before, job, layout);
    for (const char* path : {"device.peak_tflops", "device.memory_gb_per_second", "node_link.gb_per_second",
                             "network.gb_per_second", "network.cards_per_node", "products.efficiency"}) {
        Machine machine = before;
        for (const Key& key : machine.keys())
            if (key.path == path) *std::get<double*>(key.member) *= 1.25;
        BOOST_TEST(step_seconds(machine, job, layout) < slow, path);
    }
}

// The line of the issue: mean error at most 3 %, worst 8 %, rank correlation 0.95; memory within 10 % but for one row
// that contradicts another (305 needs more with half the micro-batch of 306).
BOOST_AUTO_TEST_CASE(cross_validation_on_measured_steps) {
    const auto rows = read_measured_table(measured_table);
    BOOST_TEST_REQUIRE(rows.size() == 39U);
    BOOST_TEST(fitted_time_keys().size() + fitted_memory_keys().size() < 12U);
    Machine start = read_machine("a100-80-4x100g");
    start.products.efficiency = 0.6;  // the fit finds its way from elsewhere, too
    start.device.kernel_us = 10;
    start.network.efficiency = 0.5;
    const Judgement judgement = cross_validate(start, rows, 5);
    BOOST_TEST(judgement.mean_absolute_error < 0.03);
    BOOST_TEST(judgement.worst_error < 0.08);
    BOOST_TEST(judgement.rank_correlation > 0.95);
    BOOST_TEST(judgement.wrong_outcomes == 0);
    for (std::size_t i = 0; i < rows.size(); ++i)
        if (rows[i].memory_gb && rows[i].source_line != 305)
            BOOST_TEST(std::abs(judgement.rows[i].memory_gb / *rows[i].memory_gb - 1) < 0.1, rows[i].source_line);
    // What is shipped is what the fit gives.
    const Judgement shipped = judge(read_machine("a100-80-4x100g"), rows);
    BOOST_TEST(shipped.mean_absolute_error < 0.02);
    const Machine fitted = fit(read_machine("a100-80-4x100g"), rows);
    BOOST_TEST(judge(fitted, rows).mean_absolute_error == shipped.mean_absolute_error,
               boost::test_tools::tolerance(0.02));
}

// An allocator that gives back under pressure must not make a larger layout smaller, nor a larger memory too small.
BOOST_AUTO_TEST_CASE(memory_grows_with_the_layout_and_fits_once_it_fits) {
    const auto rows = read_measured_table(measured_table);
    for (const MeasuredRow& row : rows) {
        Machine machine = read_machine("a100-80-4x100g");
        Layout layout = row.layout;
        double before = 0;
        for (layout.micro = 1; layout.micro <= 16; ++layout.micro) {
            const MemoryUse use = memory_use(machine, row.job, layout);
            BOOST_TEST(use.total() > before, row.source_line << ", micro-batch " << layout.micro);
            BOOST_TEST(use.cached >= (use.stored + use.working) * machine.memory.slack / 2 * 0.999);
            before = use.total();
        }
        bool fitted = false;
        for (machine.device.memory_gib = 20; machine.device.memory_gib < 150; machine.device.memory_gib += 0.25) {
            const bool now = fits(machine, memory_use(machine, row.job, row.layout), 0);
            BOOST_TEST((now || !fitted), row.source_line << " with " << machine.device.memory_gib << " GiB");
            fitted = now;
        }
        BOOST_TEST(fitted);
    }
}

// Rows made by the model itself give back the numbers that made them.
BOOST_AUTO_TEST_CASE(the_fit_recovers_invented_numbers) {
    auto rows = read_measured_table(measured_table);
    Machine truth = read_machine("a100-80-4x100g");
    truth.products.efficiency = 0.62;
    truth.node_link.efficiency = 0.4;
    truth.network.efficiency = 0.5;
    truth.memory.fixed_gb = 9;
    for (MeasuredRow& row : rows) {
        const Prediction made = predict(truth, row);
        if (row.seconds) row.seconds = made.seconds;
        if (row.memory_gb) row.memory_gb = made.memory_gb;
    }
    const Machine fitted = fit(read_machine("a100-80-4x100g"), rows);
    BOOST_TEST(fitted.products.efficiency == 0.62, boost::test_tools::tolerance(0.02));
    BOOST_TEST(fitted.node_link.efficiency == 0.4, boost::test_tools::tolerance(0.05));
    BOOST_TEST(fitted.network.efficiency == 0.5, boost::test_tools::tolerance(0.1));
    BOOST_TEST(fitted.memory.fixed_gb == 9, boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(a_description_reads_back) {
    Machine machine = read_machine("h100-80-8x400g");
    machine.products.inner_efficiency = 0.0625;
    Machine again;
    read_keys(to_toml(machine), "text", again.keys());
    BOOST_TEST(to_toml(again) == to_toml(machine));
    const auto refused = [](const std::string& toml) {
        Machine read;
        try {
            read_keys(toml, "m.toml", read.keys());
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    BOOST_TEST(refused("name = \"x\"\n[device]\nkind = \"gpu\"\nper_nodes = 8\n")
                   .find("m.toml:4: unknown key device.per_nodes (did you mean device.per_node?)") !=
               std::string::npos);
    BOOST_TEST(refused("name = 3").find("m.toml:1: name must be text, not the integer 3") != std::string::npos);
    // What is missing is told together.
    for (const char* part : {"keys are missing: ", "device.kind (", "device.per_node ("})
        BOOST_TEST(refused("name = \"x\"").find(part) != std::string::npos, part);
    BOOST_TEST(refused("name = ").find("not valid TOML") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
