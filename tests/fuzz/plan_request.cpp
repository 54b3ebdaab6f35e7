// The section [plan] of a run description, and its models.
#include "plan/plan_request.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string path = fuzz::write_file("plan.toml", fuzz::text_of(data, size));
    fuzz::judge(size, [&] {
        const plan::PlanRequest request = plan::read_plan_request(path);
        plan::counts_of(request.gpus, "plan.gpus");
        plan::words_of(request.recompute);
        if (!request.within.empty()) plan::seconds_of(request.within, "plan.within");
    });
    const auto read_models = [&] { plan::read_plan_models(path); };
    fuzz::judge(size, read_models, fuzz::listed_layers_floor);
    return 0;
}
