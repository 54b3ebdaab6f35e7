// What the CUDA runtime has handed out for a stage of a model, against the plan, and what of it is a block's.
#define BOOST_TEST_MODULE memory
#include "layout/memory_plan.hpp"

#include <boost/test/unit_test.hpp>

#include "device/gpu.hpp"
#include "kernels/cuda.hpp"
#include "model/stage.hpp"

using namespace lockstep;
using model::Recompute;

namespace {

config::RunDescription run_of(const std::string& preset, std::int64_t layers, Recompute recompute) {
    config::RunDescription run;
    run.model = config::preset(preset);
    run.model.layers = layers;
    run.model.vocabulary = 512;  // what is measured is the blocks'
    run.precision.compute = config::Precision::bf16;
    run.parallel.recompute = recompute;
    run.batch.global = 2;
    run.batch.micro = 2;
    run.batch.length = 256;
    return run;
}

struct Bytes {
    std::size_t planned = 0, activations = 0, seen = 0;
};

Bytes bytes_of(const config::RunDescription& run) {
    const layout::MemoryPlan plan = layout::plan_memory(run, {}, {}, DeviceKind::cuda);
    const auto gpu = open_gpu(0);
    const auto backend = kernels::make_cuda_backend(gpu);
    model::ParameterSet parameters(backend->device(), model::describe_parameters(run.model, plan.chunks[0]), true,
                                   Type::bf16);
    const std::uint64_t free = free_gpu_memory(*gpu);
    model::StageOptions options;
    options.range = plan.chunks[0];
    options.shape = {plan.micro, run.batch.length};
    options.recompute = run.parallel.recompute;
    const model::Stage stage(*backend, parameters, run.model, options);
    const std::size_t tables = stage.table_bytes();
    return {plan.activations + plan.workspace, plan.activations, free - free_gpu_memory(*gpu) - tables};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_runtime_hands_out_what_is_planned) {
    setenv("LOCKSTEP_EMULATED_GPUS", "1", 1);
    for (const std::string preset : {"gpt2-124m", "llama-3.2-1b", "ttt-linear-125m", "ttt-mlp-125m"}) {
        std::size_t more = 0;  // than with the next choice, of a block
        for (const Recompute recompute : {Recompute::full, Recompute::selective, Recompute::cheap, Recompute::none}) {
            const Bytes two = bytes_of(run_of(preset, 2, recompute)), three = bytes_of(run_of(preset, 3, recompute));
            BOOST_TEST(two.seen == two.planned);
            BOOST_TEST(three.seen == three.planned);
            // The workspace is shared by the blocks, so what one more takes is kept.
            const std::size_t kept = three.activations - two.activations;
            BOOST_TEST(three.seen - two.seen == kept);
            BOOST_TEST(kept > more);
            more = kept;
            const double tokens = 2 * 256;
            BOOST_TEST_MESSAGE(preset << ", recompute " << config::word_of(recompute) << ": "
                                      << static_cast<double>(kept) / tokens << " bytes a token and layer; workspace "
                                      << static_cast<double>(three.planned - three.activations) / tokens
                                      << " bytes a token");
        }
    }
}
