// Whole TTT models in fp32 and bf16 against cases computed in double precision: loss, logits and every gradient. Tries
// the files given on the command line, or every .h5 file of $LOCKSTEP_GOLDEN (default: this folder).
#define BOOST_TEST_MODULE golden
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "device/parallel.hpp"
#include "hdf5/hdf5.hpp"
#include "model/stage.hpp"
#include "places.hpp"

using namespace lockstep;

namespace {

// Relative L2, per tensor. bf16: some hundred roundings between the tokens and a gradient, of 2^-9 each.
double tolerance_in(Type compute) {
    return compute == Type::fp32 ? 1e-4 : 2e-2;
}

// What a checkpoint calls a tensor of a golden file.
std::string parameter_name(const std::string& golden) {
    static const std::map<std::string, std::string> names = {{"embed", "embedding/weight"},
                                                             {"lm_head", "head/weight"},
                                                             {"norm", "final_norm/weight"},
                                                             {"seq_norm", "mixer_norm/weight"},
                                                             {"ffn_norm", "mlp_norm/weight"},
                                                             {"q_proj", "mixer/query/weight"},
                                                             {"k_proj", "mixer/key/weight"},
                                                             {"v_proj", "mixer/value/weight"},
                                                             {"o_proj", "mixer/output/weight"},
                                                             {"g_proj", "mixer/gate/weight"},
                                                             {"W1", "mixer/inner/weight1"},
                                                             {"b1", "mixer/inner/bias1"},
                                                             {"W2", "mixer/inner/weight2"},
                                                             {"b2", "mixer/inner/bias2"},
                                                             {"ln_w", "mixer/inner_norm/weight"},
                                                             {"ln_b", "mixer/inner_norm/bias"},
                                                             {"lr_w", "mixer/step_size/weight"},
                                                             {"lr_b", "mixer/step_size/bias"},
                                                             {"token_idx", "mixer/token_step"},
                                                             {"post_w", "mixer/post_norm/weight"},
                                                             {"post_b", "mixer/post_norm/bias"},
                                                             {"conv_q/w", "mixer/query_convolution/weight"},
                                                             {"conv_q/b", "mixer/query_convolution/bias"},
                                                             {"conv_k/w", "mixer/key_convolution/weight"},
                                                             {"conv_k/b", "mixer/key_convolution/bias"},
                                                             {"conv_norm", "pre_convolution_norm/weight"},
                                                             {"conv/w", "pre_convolution/weight"},
                                                             {"conv/b", "pre_convolution/bias"},
                                                             {"gate_proj", "mlp/gate/weight"},
                                                             {"up_proj", "mlp/up/weight"},
                                                             {"down_proj", "mlp/down/weight"}};
    std::string prefix, name = golden;
    if (golden.rfind("layers/", 0) == 0) {
        const std::size_t slash = golden.find('/', 7);
        prefix = "blocks/" + golden.substr(7, slash - 7) + "/";
        name = golden.substr(slash + 1);
    }
    const auto found = names.find(name);
    BOOST_TEST_REQUIRE((found != names.end()), "unknown tensor " << golden);
    return prefix + found->second;
}

config::ModelDescription read_model(const hdf5::File& file) {
    config::ModelDescription model;
    model.mixers = {"ttt-" + file.read_string("/", "kind")};
    model.vocabulary = file.read_integer("/", "vocab");
    model.width = file.read_integer("/", "d");
    model.mlp_width = file.read_integer("/", "inter");
    model.layers = file.read_integer("/", "layers");
    model.heads = {file.read_integer("/", "heads")};
    model.rope_theta = file.read_number("/", "rope_theta");
    model.tied_head = file.read_integer("/", "tie") != 0;
    model.position = config::Position::none;
    config::Options& ttt = model.options.change("ttt");
    ttt.set("mini_batch", file.read_integer("/", "mini_batch"));
    ttt.set("base_lr", file.read_number("/", "base_lr"));
    ttt.set("gate", file.read_integer("/", "gate") != 0);
    ttt.set("share_qk", file.read_integer("/", "share_qk") != 0);
    ttt.set("pre_conv", file.read_integer("/", "pre_conv") != 0);
    model.context = 4096;
    config::resolve(model);
    return model;
}

std::vector<float> read_values(const hdf5::File& file, const std::string& path) {
    std::vector<float> values(file.info(path).bytes / file.info(path).element_bytes);
    file.read_as(path, hdf5::ElementType::fp32, values.data());
    return values;
}

double relative_error(const float* computed, const std::vector<float>& expected) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double e = expected[i], c = computed[i];
        difference += (c - e) * (c - e);
        size += e * e;
    }
    return std::sqrt(difference / std::max(size, 1e-30));
}

void try_file(const std::string& path, Type compute) {
    const double tolerance = tolerance_in(compute);
    const hdf5::File file = hdf5::File::open(path);
    const config::ModelDescription model = read_model(file);
    const auto token_dimensions = file.info("tokens").dimensions;
    const model::PassShape shape{static_cast<std::int64_t>(token_dimensions[0]),
                                 static_cast<std::int64_t>(token_dimensions[1]) - 1};

    const auto backend = kernels::make_cpu_backend();
    model::ParameterSet parameters({}, model::describe_parameters(model, model::whole_model(model)), true, compute);
    std::size_t loaded = 0;
    for (const auto& golden : file.datasets("parameters")) {
        const Tensor value = parameters.value(parameter_name(golden.substr(std::string("parameters/").size())));
        const std::vector<float> values = read_values(file, golden);
        BOOST_TEST_REQUIRE(static_cast<std::int64_t>(values.size()) == value.count());
        std::copy(values.begin(), values.end(), value.fp32());
        ++loaded;
    }
    BOOST_TEST_REQUIRE(loaded == parameters.descriptions().size());
    parameters.refresh_working(*backend);

    model::StageOptions options;
    options.range = model::whole_model(model);
    options.shape = shape;
    model::Stage stage(*backend, parameters, model, options);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.batch * (shape.length + 1))), ids, targets;
    file.read_as("tokens", hdf5::ElementType::int32, tokens.data());
    for (std::int64_t s = 0; s < shape.batch; ++s)
        for (std::int64_t t = 0; t < shape.length; ++t) {
            ids.push_back(tokens[static_cast<std::size_t>(s * (shape.length + 1) + t)]);
            targets.push_back(tokens[static_cast<std::size_t>(s * (shape.length + 1) + t + 1)]);
        }
    std::vector<float> losses(ids.size()), logits(ids.size() * static_cast<std::size_t>(model.vocabulary));
    const Tensor id_tensor(ids.data(), Type::int32, {shape.rows()}),
        target_tensor(targets.data(), Type::int32, {shape.rows()});
    const Tensor loss_tensor(losses.data(), Type::fp32, {shape.rows()});
    stage.forward(0, id_tensor);
    stage.logits(0, Tensor(logits.data(), Type::fp32, {shape.rows(), model.vocabulary}));
    stage.loss(0, target_tensor, 1.0f / static_cast<float>(shape.rows()), loss_tensor);
    stage.backward(0, id_tensor);

    double sum = 0;
    for (const float loss : losses) sum += loss;
    const double expected = file.read_number("/", "loss");
    BOOST_TEST(std::abs(sum / static_cast<double>(shape.rows()) - expected) < tolerance * expected);
    BOOST_TEST(relative_error(logits.data(), read_values(file, "logits")) < tolerance);
    double worst = 0;
    std::string worst_name;
    for (const auto& golden : file.datasets("gradients")) {
        const std::string name = golden.substr(std::string("gradients/").size());
        const double error =
            relative_error(parameters.gradient(parameter_name(name)).fp32(), read_values(file, golden));
        BOOST_TEST(error < tolerance, name << " differs by " << error);
        if (error > worst) {
            worst = error;
            worst_name = name;
        }
    }
    BOOST_TEST_MESSAGE(path << " in " << type_name(compute) << ": worst gradient " << worst_name << ", " << worst);
}

std::vector<std::string> files_to_try() {
    const auto& suite = boost::unit_test::framework::master_test_suite();
    std::vector<std::string> files(suite.argv + 1, suite.argv + suite.argc);
    if (files.empty()) {
        const char* folder = std::getenv("LOCKSTEP_GOLDEN");
        for (const auto& entry :
             std::filesystem::directory_iterator(folder ? std::string(folder) : tests::source_path("tests/golden")))
            if (entry.path().extension() == ".h5") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    BOOST_TEST_REQUIRE(!files.empty());
    return files;
}

void try_all_files(Type compute) {
    for (const auto& file : files_to_try()) BOOST_TEST_CONTEXT(file << " in " << type_name(compute)) {
            try_file(file, compute);
        }
}

}  // namespace

BOOST_AUTO_TEST_CASE(models_agree_with_double_precision) {
    try_all_files(Type::fp32);
}

BOOST_AUTO_TEST_CASE(models_in_bf16_are_near_double_precision) {
    try_all_files(Type::bf16);
}
