// The architectures of Hugging Face's transformers that compute what a model here computes: their configurations and
// the names of their tensors.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_description.hpp"
#include "exchange/config_reader.hpp"
#include "exchange/correspondence.hpp"
#include "exchange/json.hpp"

namespace lockstep::exchange {

// A row of the table of names; # stands for the number of a block.
struct NamePair {
    std::string_view ours, theirs;
    bool transposed = false;
    int part = 0, parts = 1;  // of a tensor in which several of ours are joined, one below the other
};

struct Architecture {
    std::string_view name, model_type;  // "LlamaForCausalLM", "llama"
    std::string_view base_prefix;       // "model.": of all names but the head's; a bare base model's lack it
    std::span<const NamePair> names;
    std::span<const std::string_view> constants;  // tensors that hold no parameters
    // The description, resolved. Usage error for whatever is asked for and not computed here.
    config::ModelDescription (*read)(ConfigReader& reader);
    // What read() makes this model of, where the architecture fits it. Null: models are not written as this one.
    Json (*write)(const config::ModelDescription& model);
};

const std::vector<Architecture>& architectures();
// Usage error that names those known.
const Architecture& architecture_of(const Json& config, const std::string& path);

// The model that a config.json describes, checked. `unknown` gets the keys that mean nothing here.
config::ModelDescription read_model(const Architecture& architecture, const Json& config, const std::string& path,
                                    std::vector<std::string>& unknown);

// The architecture that a model is written as, and its config.json. Usage error that says why none fits.
struct Written {
    const Architecture* architecture;
    Json config;
};
Written write_model(const config::ModelDescription& model);

// Of all parameters, in the model's order.
std::vector<Correspondence> correspondences(const Architecture& architecture, const config::ModelDescription& model);

// architectures(), in parts.
Architecture gpt2_architecture();
Architecture llama_architecture();
Architecture mistral_architecture();
Architecture qwen2_architecture();
Architecture qwen3_architecture();
Architecture ttt_architecture();

// Keys of any config.json that change nothing in what a model computes.
void pass_over_common_keys(ConfigReader& reader);

}  // namespace lockstep::exchange
