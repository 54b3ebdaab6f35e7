// Whole models: loss and every gradient of one training step on the device are those of the CPU backend in fp32.
#define BOOST_TEST_MODULE model
#include <algorithm>

#include "device/convert.hpp"
#include "model/decoder.hpp"
#include "operations/support.hpp"
#include "optim/adamw.hpp"
#include "unit/model/small_models.hpp"

using namespace lockstep;

namespace {

struct DeviceStep {
    double loss = 0;
    std::vector<std::vector<float>> gradients, updated;  // by parameter
};

std::vector<float> fetch(Tensor tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    operation_tests::backend().download(values.data(), tensor);
    return values;
}

// The same model, tokens and update as `cpu`, on the device; its activations are of type `compute`.
DeviceStep step_on_device(test::Fixture& cpu, const config::ModelDescription& description, Type compute) {
    kernels::Backend& backend = operation_tests::backend();
    model::ParameterSet parameters(backend.device(), cpu.parameters.descriptions(), true, compute);
    for (std::size_t i = 0; i < parameters.layout().size(); ++i) {
        const auto& parameter = parameters.descriptions()[i];
        const Tensor value = cpu.parameters.value(parameter.name);
        const Tensor kept = parameter.trained ? parameters.value(parameter.name) : parameters.frozen_value(i);
        std::vector<char> converted(kept.bytes());
        from_fp32(kept.type(), converted.data(), value.fp32(), value.count());
        backend.upload(kept, converted.data());
    }
    parameters.refresh_working(backend);
    model::StageOptions options;
    options.range = model::whole_model(description);
    options.shape = cpu.shape;
    model::Stage stage(backend, parameters, description, options);
    const std::int64_t rows = cpu.shape.rows();
    operation_tests::OnDevice ids(Type::int32, {rows}), targets(Type::int32, {rows}), losses(Type::fp32, {rows});
    operation_tests::OnDevice sum(Type::fp64, {1});
    backend.upload(ids, cpu.ids.data());
    backend.upload(targets, cpu.targets.data());
    operation_tests::OnDevice dropout_tokens(Type::int32, {rows, 2});
    if (!cpu.dropout_tokens.empty()) {
        backend.upload(dropout_tokens, cpu.dropout_tokens.data());
        stage.set_dropout_tokens(0, dropout_tokens);
    }
    stage.forward(0, ids);
    stage.loss(0, targets, 1.0f / static_cast<float>(rows), losses);
    stage.backward(0, ids);
    backend.sum(sum, losses, kernels::Accumulate::no);
    DeviceStep result;
    result.loss = sum.values()[0] / static_cast<double>(rows);
    for (const auto& parameter : parameters.descriptions())
        result.gradients.push_back(parameter.trained ? fetch(parameters.gradient(parameter.name))
                                                     : std::vector<float>());
    optim::AdamW optimizer({backend, parameters, {}, {parameters.owned()}});
    optimizer.update(1e-2, sum);
    for (const auto& parameter : parameters.descriptions())
        result.updated.push_back(parameter.trained ? fetch(parameters.value(parameter.name)) : std::vector<float>());
    return result;
}

double distance(const std::vector<float>& a, const float* b) {  // relative L2
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
        size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / std::max(size, 1e-20));
}

// The bias of the keys moves all scores of a query alike: its true gradient is zero, and what is computed is rounding.
bool has_no_gradient(const std::string& name) {
    return name.find("mixer/key/bias") != std::string::npos;
}

// DeltaNet brings queries and keys to norm 1, and the short ones of these models are turned by roundings.
bool norms_keys(const config::ModelDescription& description) {
    const auto& mixers = description.mixers;
    return std::find(mixers.begin(), mixers.end(), "gated-deltanet") != mixers.end();
}

void compare(const config::ModelDescription& description, const model::PassShape& shape, Type compute,
             double tolerance) {
    if (compute != Type::fp32 && norms_keys(description)) tolerance *= 4;
    test::Fixture cpu(description, shape);
    const double loss = cpu.loss(true);
    const DeviceStep device = step_on_device(cpu, description, compute);
    BOOST_TEST(std::abs(device.loss - loss) <= tolerance * loss, "loss " << device.loss << ", on the CPU " << loss);
    for (std::size_t i = 0; i < device.gradients.size(); ++i) {
        const std::string& name = cpu.parameters.descriptions()[i].name;
        if (has_no_gradient(name) || device.gradients[i].empty()) continue;
        const double error = distance(device.gradients[i], cpu.parameters.gradient(name).fp32());
        BOOST_TEST(error <= tolerance, name << ": the gradient differs by " << error);
    }
    if (compute != Type::fp32) return;
    double sum = 1;
    optim::AdamW optimizer({*cpu.backend, cpu.parameters, {}, {cpu.parameters.owned()}});
    optimizer.update(1e-2, Tensor(&sum, Type::fp64, {1}));
    for (std::size_t i = 0; i < device.updated.size(); ++i) {
        const std::string& name = cpu.parameters.descriptions()[i].name;
        if (has_no_gradient(name) || device.updated[i].empty()) continue;
        // AdamW's first step is the sign of a gradient, also of one that is next to nothing.
        const double allowed = norms_keys(description) ? 1e-2 : 1e-3;
        BOOST_TEST(distance(device.updated[i], cpu.parameters.value(name).fp32()) <= allowed,
                   name << " after the update");
    }
}

}  // namespace

#if !defined(LOCKSTEP_TEST_CPU)  // which would be compared with itself
BOOST_AUTO_TEST_CASE(a_step_in_fp32_is_that_of_the_cpu) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            compare(model, {2, 21}, Type::fp32, 2e-5);
        }
}

BOOST_AUTO_TEST_CASE(a_step_with_adapters_is_that_of_the_cpu) {
    std::int64_t rank = 1;
    for (auto [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name << ", rank " << rank) {
            model.adapters.rank = rank;
            model.adapters.alpha = 2.5;
            compare(model, {2, 21}, Type::fp32, 5e-5);
            compare(model, {2, 21}, Type::bf16, 6e-2);
            model.adapters.dropout = 0.25;
            compare(model, {2, 21}, Type::fp32, 5e-5);
            rank = rank % 4 + 1;
        }
}
#endif

// Of every kind of layer something is frozen, above, between and below what is trained.
BOOST_AUTO_TEST_CASE(a_step_with_frozen_parameters_is_that_of_the_cpu) {
    for (const auto& [name, kind] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            config::ModelDescription model = kind;
            model.frozen = {"embedding/*", "blocks/0/m*_norm/*", "blocks/1/mixer/*", "blocks/0/mlp/*"};
            if (kind.options.at("ttt").flag("pre_conv")) model.frozen.push_back("blocks/1/pre_convolution*");
            compare(model, {2, 21}, Type::bf16, 5e-2);
#if !defined(LOCKSTEP_TEST_CPU)
            compare(model, {2, 21}, Type::fp32, 2e-5);
#endif
        }
}

// Each of some hundred roundings of a step adds about 2^-9 of its value.
BOOST_AUTO_TEST_CASE(a_step_in_bf16_is_near_that_of_the_cpu_in_fp32) {
    for (const char* mixer : {"attention", "ttt-linear", "ttt-mlp"}) BOOST_TEST_CONTEXT(mixer) {
            compare(test::small_model(mixer), {2, 21}, Type::bf16, 5e-2);
        }
}

BOOST_AUTO_TEST_CASE(decoding_gives_the_tokens_of_the_cpu) {
    for (const auto& [name, model] : test::all_kinds()) BOOST_TEST_CONTEXT(name) {
            test::Fixture cpu(model, {1, 9}, false);
            kernels::Backend& backend = operation_tests::backend();
            model::ParameterSet parameters(backend.device(), cpu.parameters.descriptions(), false);
            for (const auto& parameter : parameters.descriptions())
                backend.upload(parameters.value(parameter.name), cpu.parameters.value(parameter.name).data());
            model::Decoder on_cpu(*cpu.backend, cpu.parameters, model, 9), on_device(backend, parameters, model, 9);
            const std::vector<std::int32_t> prompt(cpu.ids.begin(), cpu.ids.begin() + 6);
            for (const auto& piece : {prompt, {cpu.ids[6]}, {cpu.ids[7], cpu.ids[8]}}) {
                const std::vector<float>& expected = on_cpu.feed(piece);
                BOOST_TEST(distance(on_device.feed(piece), expected.data()) < 1e-4);
            }
        }
}
