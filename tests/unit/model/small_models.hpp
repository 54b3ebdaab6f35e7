// Small models of every kind, and one pass of loss and gradients through them.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "model/stage.hpp"

namespace lockstep::test {

inline config::ModelDescription small_model(const std::string& mixer) {
    config::ModelDescription model;
    model.mixers = {mixer};
    model.width = 48;
    model.layers = 2;
    model.heads = {3};
    model.mlp_width = 40;
    model.vocabulary = 37;
    model.context = 64;
    model.position = mixer == "attention" ? config::Position::rope : config::Position::none;
    config::resolve(model);
    return model;
}

struct NamedModel {
    std::string name;
    config::ModelDescription model;
};

// Every choice of a model at least once, in a list short enough for finite differences.
inline std::vector<NamedModel> all_kinds() {
    std::vector<NamedModel> list;
    auto add = [&](const std::string& name, const std::string& mixer, auto change) {
        config::ModelDescription model = small_model(mixer);
        change(model);
        config::resolve(model);
        list.push_back({name, model});
    };
    add("gpt2: layer norm, gelu, learned positions, all biases", "attention", [](auto& model) {
        model.norm = config::NormKind::layer;
        model.mlp = config::MlpKind::gelu;
        model.position = config::Position::learned;
        model.bias = config::Bias::all;
    });
    add("llama: grouped heads, own head, stretched rotation", "attention", [](auto& model) {
        model.width = 64;
        model.heads = {4};
        model.kv_heads = {2};
        model.tied_head = false;
        model.rope_scaling = config::RopeScaling::llama3;
    });
    add("qwen: query, key and value biases", "attention", [](auto& model) { model.bias = config::Bias::qkv; });
    add("qwen3: heads of their own width, norms of queries and keys", "attention", [](auto& model) {
        model.heads = {4};
        model.kv_heads = {2};
        model.head_widths = {20};
        model.qk_norm = true;
    });
    add("windows of some blocks, caps of scores and logits", "attention", [](auto& model) {
        model.windows = {5, 0};
        model.score_cap = 0.5;
        model.logit_cap = 1;
    });
    add("attention without positions, swiglu with biases", "attention", [](auto& model) {
        model.position = config::Position::none;
        model.bias = config::Bias::all;
    });
    add("ttt-linear", "ttt-linear", [](auto&) {});
    add("ttt-linear: gate, shared query and key, convolution", "ttt-linear", [](auto& model) {
        for (const char* name : {"gate", "share_qk", "pre_conv"}) model.options.change("ttt").set(name, true);
    });
    add("ttt-linear: mini-batch 5, own head, gelu, layer norm", "ttt-linear", [](auto& model) {
        model.options.change("ttt").set("mini_batch", 5);
        model.tied_head = false;
        model.mlp = config::MlpKind::gelu;
        model.norm = config::NormKind::layer;
    });
    add("ttt-mlp", "ttt-mlp", [](auto&) {});
    add("ttt-mlp: gate, shared query and key, convolution", "ttt-mlp", [](auto& model) {
        for (const char* name : {"gate", "share_qk", "pre_conv"}) model.options.change("ttt").set(name, true);
    });
    add("ttt-mlp: learned positions", "ttt-mlp", [](auto& model) { model.position = config::Position::learned; });
    add("gated-deltanet", "gated-deltanet", [](auto&) {});
    add("gated-deltanet: keys for two heads, widths of their own", "gated-deltanet", [](auto& model) {
        config::Options& deltanet = model.options.change("deltanet");
        deltanet.set("heads", std::int64_t{4});
        deltanet.set("key_heads", std::int64_t{2});
        deltanet.set("key_width", std::int64_t{9});
        deltanet.set("value_width", std::int64_t{7});
        model.mlp = config::MlpKind::gelu;
    });
    add("hybrid: gated-deltanet, attention that rotates", "gated-deltanet", [](auto& model) {
        model.mixers = {"gated-deltanet", "attention"};
        model.position = config::Position::rope;
    });
    add("hybrid: ttt-linear, grouped attention that rotates", "ttt-linear", [](auto& model) {
        model.mixers = {"ttt-linear", "attention"};
        model.position = config::Position::rope;
        model.heads = {4};
        model.kv_heads = {2};
        model.qk_norm = true;
        model.bias = config::Bias::qkv;
        model.head_widths = {0};
    });
    add("hybrid: heads by layer", "attention", [](auto& model) {
        model.mixers = {"attention", "gated-deltanet", "ttt-linear", "attention"};
        model.layers = 4;
        model.position = config::Position::rope;
        model.heads = {4, 4, 3, 2};
        model.kv_heads = {2, 0, 0, 1};
        model.head_widths = {10, 0, 0, 0};
        model.qk_norm = true;
        model.windows = {0, 0, 0, 5};
    });
    add("hybrid: attention, both ttt mixers, convolutions", "ttt-mlp", [](auto& model) {
        model.mixers = {"attention", "ttt-linear", "ttt-mlp"};
        model.windows = {7};
        model.layers = 3;
        model.options.change("ttt").set("base_lr", 0.0);
        model.options.change("ttt").set("pre_conv", true);
    });
    return list;
}

// A model with its parameters moved off their special values (zeros and ones hide mistakes), and one batch of tokens.
struct Fixture {
    Fixture(const config::ModelDescription& description, const model::PassShape& pass_shape, bool training = true,
            model::Recompute recompute = model::Recompute::none, bool restarts_positions = false)
        : shape(pass_shape),
          backend(kernels::make_cpu_backend()),
          parameters({}, model::describe_parameters(description, model::whole_model(description)), training),
          stage(start(description), parameters, description,
                options(description, pass_shape, training, recompute, restarts_positions)) {
        const RandomStream random(5, "tokens");
        for (std::int64_t i = 0; i < shape.rows(); ++i) {
            ids.push_back(token(random, 2 * i, description.vocabulary));
            targets.push_back(token(random, 2 * i + 1, description.vocabulary));
        }
        losses.resize(ids.size());
        if (description.adapters.dropout == 0 || !training) return;
        for (std::int64_t i = 0; i < 2 * shape.rows(); ++i)
            dropout_tokens.push_back(token(RandomStream(6, "dropout"), i, std::int64_t{1} << 32));
        stage.set_dropout_tokens(0, Tensor(dropout_tokens.data(), Type::int32, {shape.rows(), 2}));
    }

    Tensor id_tensor() { return {ids.data(), Type::int32, {shape.rows()}}; }

    double loss(bool with_gradients) {
        const float scale = with_gradients ? 1.0f / static_cast<float>(shape.rows()) : 0;
        stage.forward(0, id_tensor());
        stage.loss(0, Tensor(targets.data(), Type::int32, {shape.rows()}), scale,
                   Tensor(losses.data(), Type::fp32, {shape.rows()}));
        if (with_gradients) stage.backward(0, id_tensor());
        double sum = 0;
        for (const float value : losses) sum += value;
        return sum / static_cast<double>(shape.rows());
    }

    model::PassShape shape;
    std::unique_ptr<kernels::Backend> backend;
    model::ParameterSet parameters;
    model::Stage stage;
    std::vector<std::int32_t> ids, targets, dropout_tokens;
    std::vector<float> losses;

  private:
    static std::int32_t token(const RandomStream& random, std::int64_t index, std::int64_t vocabulary) {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(random.bits(static_cast<std::uint64_t>(index)) %
                                                                    static_cast<std::uint64_t>(vocabulary)));
    }
    static model::StageOptions options(const config::ModelDescription& description, const model::PassShape& shape,
                                       bool training, model::Recompute recompute, bool restarts_positions) {
        model::StageOptions made;
        made.recompute = recompute;
        made.range = model::whole_model(description);
        made.shape = shape;
        made.training = training;
        made.restarts_positions = restarts_positions;
        return made;
    }
    kernels::Backend& start(const config::ModelDescription&) {
        parameters.initialize(*backend, 3);
        for (const auto& parameter : parameters.descriptions()) {
            const Tensor value = parameters.value(parameter.name);
            const RandomStream random(9, parameter.name);
            for (std::int64_t i = 0; i < value.count(); ++i)
                value.fp32()[i] += static_cast<float>(0.1 * random.normal(static_cast<std::uint64_t>(i)));
        }
        return *backend;
    }
};

}  // namespace lockstep::test
