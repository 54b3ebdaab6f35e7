// The layer of Gated DeltaNet in fp32 against transformers' Qwen3-Next in double precision: output, gradient of the
// input, and that of every parameter. mixers/record_gated_deltanet.py has recorded it.
#define BOOST_TEST_MODULE gated_deltanet
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "hdf5/hdf5.hpp"
#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"
#include "places.hpp"

using namespace lockstep;

namespace {

std::vector<float> read(const hdf5::File& file, const std::string& name) {
    std::vector<float> values(file.info(name).bytes / file.info(name).element_bytes);
    file.read_as(name, hdf5::ElementType::fp32, values.data());
    return values;
}

void check_near(const Tensor& actual, const std::vector<float>& expected, double allowed, const std::string& what) {
    BOOST_TEST_REQUIRE(actual.count() == static_cast<std::int64_t>(expected.size()), what);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference += std::pow(actual.fp32()[i] - expected[i], 2);
        size += std::pow(expected[i], 2);
    }
    BOOST_TEST(std::sqrt(difference / size) < allowed, what << ": relative error " << std::sqrt(difference / size));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_layer_agrees_with_qwen3_next) {
    const hdf5::File file = hdf5::File::open(tests::source_path("tests/golden/mixers/gated_deltanet.h5"));
    config::ModelDescription model;
    model.mixers = {"gated-deltanet"};
    model.vocabulary = 16;
    model.context = file.read_integer("/", "length");
    model.width = model.mlp_width = file.read_integer("/", "width");
    model.layers = 1;
    model.heads = {1};
    model.norm_epsilon = 1e-6;
    config::Options& deltanet = model.options.change("deltanet");
    for (const char* key : {"heads", "key_heads", "key_width", "value_width"})
        deltanet.set(key, file.read_integer("/", key));
    config::resolve(model);

    const auto backend = kernels::make_cpu_backend();
    model::ParameterSet parameters({}, model::describe_parameters(model, {0, 1, false, false}), true);
    for (const std::string& name : file.datasets("parameters")) {
        const std::vector<float> values = read(file, name);
        const Tensor parameter = parameters.value("blocks/0/mixer/" + name.substr(std::string("parameters/").size()));
        BOOST_TEST_REQUIRE(parameter.count() == static_cast<std::int64_t>(values.size()), name);
        std::copy(values.begin(), values.end(), parameter.fp32());
    }
    const auto mixer =
        model::mixer_type(model.mixer(0)).make(*backend, parameters, model, model.layer(0), model::no_neighbours());
    const model::PassShape shape{file.read_integer("/", "batch"), model.context};
    Arena memory({}, std::size_t{1} << 24, "a layer");
    Tensor x, dy, y, dx;
    for (Tensor* tensor : {&x, &dy, &y, &dx}) *tensor = memory.allocate(Type::fp32, {shape.rows(), model.width});
    backend->upload(x, read(file, "x").data());
    backend->upload(dy, read(file, "dy").data());
    for (const model::Recompute recompute : {model::Recompute::none, model::Recompute::cheap}) {
        parameters.clear_gradients(*backend);
        backend->fill(parameters.all_gradients(), 0);
        const auto saved = mixer->plan(memory, shape, true, recompute);
        mixer->forward(*backend, memory, y, *saved, nullptr, x, shape, false);
        check_near(y, read(file, "y"), 1e-5, "y");
        model::InputGradient to_input(dx);
        mixer->backward(*backend, memory, to_input, dy, *saved, nullptr, x, shape);
        check_near(dx, read(file, "dx"), 1e-4, "dx");
        for (const std::string& name : file.datasets("gradients")) {
            const std::string parameter = name.substr(std::string("gradients/").size());
            check_near(parameters.gradient("blocks/0/mixer/" + parameter), read(file, name), 1e-4, parameter);
        }
    }
}
