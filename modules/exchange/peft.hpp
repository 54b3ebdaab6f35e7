// Adapters in the layout of PEFT (github.com/huggingface/peft): a folder with adapter_config.json and
// adapter_model.safetensors, beside the model that they belong to.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "exchange/folder.hpp"
#include "exchange/safetensors.hpp"

namespace lockstep::exchange {

constexpr const char *adapter_config_name = "adapter_config.json", *adapter_file_name = "adapter_model.safetensors";

bool is_adapter_folder(const std::string& path);

// Of a model's adapters, A and B of each layer in the model's order. Usage error where their layers are one there.
std::vector<Correspondence> adapter_correspondences(const Architecture& architecture,
                                                    const config::ModelDescription& model);
// adapter_config.json; `base` is where PEFT looks for the model.
Json adapter_config(const Architecture& architecture, const config::ModelDescription& model, const std::string& base);

// Adapters and their model, as one model with adapters.
class AdapterFolder {
  public:
    // `base`: a folder in the Hugging Face layout; "": the one that adapter_config.json names. Errors as Folder's, and
    // usage errors for adapters that compute otherwise than those here.
    explicit AdapterFolder(const std::string& path, const std::string& base = "");

    const Folder& base() const { return base_; }
    const config::ModelDescription& model() const { return model_; }
    checkpoint::Contents contents() const { return base_.contents(model_); }
    checkpoint::Source source() const;  // outlived by this

  private:
    void read_layers();
    void match_names();

    std::string path_;
    Json config_;
    Folder base_;
    SafetensorsFile file_;
    config::ModelDescription model_;
    std::map<std::string, const StoredTensor*> stored_;  // by our name
};

}  // namespace lockstep::exchange
