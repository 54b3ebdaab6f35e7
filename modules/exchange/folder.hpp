// A model in a folder as Hugging Face's transformers writes it: config.json, safetensors, the tokenizer's files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/stream.hpp"
#include "exchange/architecture.hpp"
#include "exchange/tensor_files.hpp"

namespace lockstep::exchange {

constexpr const char* config_file_name = "config.json";

bool is_folder(const std::string& path);  // whether it is a folder with a config.json
// Usage error for a folder with safetensors and without config.json.
void check_has_config(const std::string& path);
std::string without_slash(std::string path);  // at its end

class Folder {
  public:
    // Opens and checks everything but the tensors' values. Usage errors for models that are not computed here, damaged
    // errors for files that are not what they should be.
    explicit Folder(const std::string& path);

    const std::string& path() const { return path_; }
    const Architecture& architecture() const { return *architecture_; }
    const config::ModelDescription& model() const { return model_; }
    const std::vector<Correspondence>& names() const { return names_; }
    const TensorFiles::Place& place(const Correspondence& names) const;
    const std::vector<std::string>& unknown_keys() const { return unknown_keys_; }  // of config.json
    const TensorFiles& files() const { return files_; }

    // What a checkpoint of this model, or of one with adapters beside it, has: step 0, a description of which only
    // [model] says anything, the tokenizer.
    checkpoint::Contents contents() const { return contents(model_); }
    checkpoint::Contents contents(const config::ModelDescription& model) const;
    // Elements of "parameters/NAME", for checkpoint::fill and write_from.
    checkpoint::Source source() const;

  private:
    void match_names();
    void check_passed_over(const std::string& name, const TensorFiles::Place& place) const;

    std::string path_;
    Json config_;
    const Architecture* architecture_;
    std::vector<std::string> unknown_keys_;
    config::ModelDescription model_;
    TensorFiles files_;
    std::vector<Correspondence> names_;
    std::map<std::string, std::size_t> number_of_;  // of ours in names_
};

// What the checkpoint of a model at step 0 has: a description of which only [model], the name and batch.length say
// anything; no tokenizer.
checkpoint::Contents contents_of(const config::ModelDescription& model, const std::string& name, std::int64_t length);

// Warns of keys of config.json that are not known. For one rank.
void warn_of_unknown_keys(const Folder& folder);

}  // namespace lockstep::exchange
