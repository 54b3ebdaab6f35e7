// The tensors of a folder in the Hugging Face layout: model.safetensors, or the shards that
// model.safetensors.index.json names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "exchange/safetensors.hpp"

namespace lockstep::exchange {

constexpr const char* single_file_name = "model.safetensors";
constexpr const char* index_file_name = "model.safetensors.index.json";
std::string shard_file_name(std::size_t shard, std::size_t shards);  // from 0; "model-00001-of-00003.safetensors"

class TensorFiles {
  public:
    // Opens and checks all files. Usage error for a folder that has none; damaged errors as SafetensorsFile's, for an
    // index that does not fit the files, and for a tensor that lies in two of them.
    explicit TensorFiles(const std::string& folder);

    struct Place {
        const SafetensorsFile* file = nullptr;
        const StoredTensor* tensor = nullptr;
    };
    const std::map<std::string, Place>& places() const { return places_; }
    std::uint64_t bytes() const;  // of all tensors

  private:
    std::vector<SafetensorsFile> files_;
    std::map<std::string, Place> places_;
};

// Elements [first, first + count) of a tensor, as fp32.
void read_elements(const TensorFiles::Place& place, std::int64_t first, std::int64_t count, float* to);

}  // namespace lockstep::exchange
