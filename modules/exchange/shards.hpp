// The safetensors files that a model is written to: which tensor lies where, and writing them by many ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/open_file.hpp"
#include "exchange/correspondence.hpp"
#include "exchange/safetensors.hpp"

namespace lockstep::exchange {

struct Shard {
    std::string name;       // of the file
    std::string beginning;  // all before the data
    std::vector<StoredTensor> tensors;
    std::uint64_t file_bytes = 0;
};

// In the order of the names; a shard ends where the next tensor would make its tensors larger than `most_bytes`.
std::vector<Shard> plan_shards(const std::vector<Correspondence>& names, Type type, std::uint64_t most_bytes);
// model.safetensors.index.json
std::string index_text(const std::vector<Shard>& shards);

// One rank's part in writing them.
class ShardWriter {
  public:
    ShardWriter(std::string folder, const std::vector<Correspondence>& names, const std::vector<Shard>& shards,
                Type type);
    // On one rank, before the others write: makes the files, with their space reserved.
    void make_files() const;
    // Elements [first, first + count) of ours. Usage error for a finite value that the type cannot hold.
    void write(const std::string& ours, std::int64_t first, std::int64_t count, const float* values);
    void finish();                                     // syncs and closes what this rank has open
    std::int64_t written() const { return written_; }  // elements, by this rank

  private:
    struct Target {
        const Correspondence* names;
        std::size_t shard;
        std::uint64_t offset;  // in the file
    };
    std::string folder_;
    const std::vector<Shard>& shards_;
    Type type_;
    std::map<std::string, Target> targets_;  // by our name
    std::vector<OpenFile> files_;            // by shard, opened when needed
    std::size_t open_ = 0;                   // of them
    std::int64_t written_ = 0;
    std::vector<char> converted_;
};

}  // namespace lockstep::exchange
