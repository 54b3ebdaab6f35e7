// What the tests of checkpoints share: a small set of tensors with known values, and a folder of its own for each test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "places.hpp"

namespace lockstep::checkpoint_tests {

using checkpoint::Contents;
using checkpoint::Entry;

// Tensors that own their memory. Values are a function of path and index, so that every rank and every run has the
// same.
class Tensors {
  public:
    struct Named {
        std::string path;
        Shape shape;
    };
    explicit Tensors(const std::vector<Named>& tensors, float factor = 1) {
        for (const auto& [path, shape] : tensors) {
            memory_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(element_count(shape))));
            const auto start = static_cast<float>(hash64(path.data(), path.size()) % 1000);
            for (std::size_t i = 0; i < memory_.back()->size(); ++i)
                (*memory_.back())[i] = factor * (start + static_cast<float>(i) * 0.25f);
            entries.push_back(checkpoint::whole(path, Tensor(memory_.back()->data(), Type::fp32, shape), nullptr));
        }
    }
    void fill(float value) {
        for (auto& values : memory_) std::fill(values->begin(), values->end(), value);
    }
    bool operator==(const Tensors& other) const {
        if (entries.size() != other.entries.size()) return false;
        for (std::size_t i = 0; i < entries.size(); ++i)
            if (entries[i].path != other.entries[i].path || *memory_[i] != *other.memory_[i]) return false;
        return true;
    }

    std::vector<Entry> entries;

  private:
    std::vector<std::unique_ptr<std::vector<float>>> memory_;
};

// One element, odd sizes, several blocks (a block is 4 MiB = 1 Mi elements), exactly one block.
inline std::vector<Tensors::Named> odd_sizes() {
    std::vector<Tensors::Named> tensors;
    for (const std::string group : {"parameters", "optimizer/first_moment", "optimizer/second_moment"}) {
        tensors.push_back({group + "/embedding/weight", {257, 3}});
        tensors.push_back({group + "/blocks/0/mixer/query/weight", {1}});
        tensors.push_back({group + "/blocks/0/mlp/weight", {3, 31, 7}});
        tensors.push_back({group + "/norm/weight", {13}});
    }
    tensors.push_back({"parameters/head/weight", {2621441}});
    tensors.push_back({"parameters/exact", {1024, 1024}});
    return tensors;
}
inline std::vector<Tensors::Named> few_small() {
    return {{"parameters/a/weight", {5, 3}}, {"parameters/b", {1}}, {"optimizer/first_moment/a/weight", {5, 3}}};
}

inline Contents some_contents(std::int64_t step) {
    Contents contents;
    auto& state = contents.state;
    state.step = step;
    state.tokens = step * 4096 + 1;
    state.samples = step * 8;
    state.optimizer_steps = std::max<std::int64_t>(step - 1, 0);
    state.seed = 0xfedcba9876543210u;
    state.data_cursor = step * 8 + 3;
    state.loss_scale = 65536.0 / 3;
    state.good_steps = 7;
    state.bad_steps = 2;
    state.skipped_steps = 1;
    state.ranks = 3;
    state.threads = 5;
    state.processor = "Some Processor 9000";
    state.commit = "0123456789ab+";
    state.finished = true;
    contents.run_description = "[run]\nname = \"täst\"\n";
    contents.tokenizer_kind = "sentencepiece";
    contents.tokenizer_files = {{"tokenizer.model", std::string("model\0with\xff zeros", 17)}};
    return contents;
}

inline bool same(const Contents& a, const Contents& b) {
    const auto fields = [](const checkpoint::State& s) {
        return std::tuple(s.optimizer, s.step, s.tokens, s.samples, s.optimizer_steps, s.seed, s.data_cursor,
                          s.loss_scale, s.good_steps, s.bad_steps, s.skipped_steps, s.ranks, s.threads, s.processor,
                          s.commit, s.finished);
    };
    return fields(a.state) == fields(b.state) && a.run_description == b.run_description &&
           a.tokenizer_kind == b.tokenizer_kind && a.tokenizer_files == b.tokenizer_files;
}

inline std::string test_folder(const std::string& name) {
    return tests::build_path("test-data/checkpoint/" + name);
}
inline std::string empty_test_folder(const std::string& name) {
    const std::string folder = test_folder(name);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return folder;
}

inline std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}
inline void flip_bit(const std::string& path, std::size_t byte, int bit) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(byte));
    const int value = file.get() ^ (1 << bit);
    file.seekp(static_cast<std::streamoff>(byte));
    file.put(static_cast<char>(value));
}
// The first place where `part` lies in the file.
inline std::size_t place_of(const std::string& path, const std::string& part) {
    return bytes_of(path).find(part);
}

inline checkpoint::Writer solo_writer(const std::string& folder, std::int64_t keep = 2) {
    return {folder, keep, cluster::make_solo_group()};
}
inline std::string in(const std::string& folder, std::int64_t step) {
    return folder + "/" + checkpoint::file_name(step);
}

}  // namespace lockstep::checkpoint_tests
