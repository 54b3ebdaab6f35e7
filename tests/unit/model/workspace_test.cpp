// The temporaries of a block are planned to the byte: what a pass takes at its peak is what was planned for it.
#include <boost/test/unit_test.hpp>

#include "model/block.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;
using namespace lockstep::model;
using lockstep::test::all_kinds;

namespace {

constexpr std::size_t plenty = std::size_t{1} << 24;
const PassShape shape{2, 15};

struct OneBlock {
    OneBlock(const config::ModelDescription& description, Recompute recompute_)
        : recompute(recompute_),
          backend(kernels::make_cpu_backend()),
          parameters({}, describe_parameters(description, whole_model(description)), true),
          block(start(), parameters, 0, description) {
        const Shape rows = {shape.rows(), description.width};
        saved = block.plan(memory, shape, true, recompute);
        kept = block.plan_kept(memory, shape);
        input = memory.allocate(Type::fp32, rows);
        gradient = memory.allocate(Type::fp32, rows);
        backend->fill(input, 0.5f);
        backend->fill(gradient, 0.5f);
    }

    std::size_t planned(Direction direction, bool to_below) const {
        Arena measure;
        block.plan_workspace(measure, shape, recompute, direction, to_below);
        BOOST_TEST(measure.used() == 0U);
        return measure.peak();
    }
    std::size_t taken_forward() {
        Arena workspace({}, plenty, "workspace");
        block.forward(*backend, workspace, saved, kept, input, shape);
        return workspace.peak();
    }
    std::size_t taken_backward(bool to_below) {
        Arena workspace({}, plenty, "workspace");
        block.backward(*backend, workspace, gradient, saved, kept, input, shape, to_below);
        return workspace.peak();
    }

    Recompute recompute;
    std::unique_ptr<kernels::Backend> backend;
    ParameterSet parameters;
    Block block;
    Arena memory{{}, plenty, "memory"};
    Block::Saved saved;
    Block::Kept kept;
    Tensor input, gradient;

  private:
    kernels::Backend& start() {
        parameters.initialize(*backend, 3);
        return *backend;
    }
};

void check_passes(const config::ModelDescription& model, bool to_below) {
    for (const Recompute recompute : {Recompute::none, Recompute::cheap, Recompute::selective, Recompute::full}) {
        OneBlock one(model, recompute);
        BOOST_TEST(one.taken_forward() == one.planned(Direction::forward, to_below));
        BOOST_TEST(one.taken_backward(to_below) == one.planned(Direction::backward, to_below));
    }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_pass_takes_what_was_planned) {
    for (const auto& [name, model] : all_kinds()) BOOST_TEST_CONTEXT(name) check_passes(model, true);
}

BOOST_AUTO_TEST_CASE(a_pass_that_ends_at_frozen_layers_takes_what_was_planned) {
    for (auto [name, model] : all_kinds())
        for (const char* pattern : {"blocks/0/mixer*", "blocks/0/mlp_norm/*", "blocks/0/pre*"}) {
            model.frozen = {"embedding/*", "position/*", "blocks/0/mixer_norm/*", pattern};
            BOOST_TEST_CONTEXT(name << ", frozen " << pattern) check_passes(model, false);
        }
}

BOOST_AUTO_TEST_CASE(decoding_takes_what_was_planned) {
    for (const auto& [name, model] : all_kinds()) BOOST_TEST_CONTEXT(name) {
            OneBlock one(model, Recompute::none);
            Block::State state = one.block.plan_state(one.memory, shape.length, shape.length);
            one.block.start_sequence(*one.backend, state);
            Arena measure, workspace({}, plenty, "workspace");
            one.block.plan_decoding(measure, shape.length);
            one.block.decode(*one.backend, workspace, one.input.slice(0, shape.length), state, 0);
            BOOST_TEST(workspace.peak() == measure.peak());
        }
}
