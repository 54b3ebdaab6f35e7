#include "exchange/shards.hpp"

#include <array>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/float16.hpp"
#include "device/convert.hpp"
#include "exchange/json.hpp"
#include "exchange/tensor_files.hpp"

namespace lockstep::exchange {
namespace {

constexpr std::size_t most_open = 64;  // files of a rank at once; a process may often have 1024

// A finite value from here on becomes infinite when it is rounded to nearest.
struct Range {
    Type type;
    float first_lost;
    const char *largest, *wider;
};
constexpr std::array<Range, 2> ranges = {
    {{Type::fp16, 65520, "65504", "bf16 or fp32"}, {Type::bf16, 0x1.FFp127f, "3.3895e38", "fp32"}}};

void check_range(const std::string& ours, Type type, const float* values, std::int64_t count) {
    for (const Range& range : ranges) {
        if (range.type != type) continue;
        for (std::int64_t i = 0; i < count; ++i)
            if (std::isfinite(values[i]) && std::abs(values[i]) >= range.first_lost)
                throw usage_error("{} holds {}, which {} cannot hold (at most {}); choose --dtype {}", ours, values[i],
                                  type_name(type), range.largest, range.wider);
    }
}

}  // namespace

std::vector<Shard> plan_shards(const std::vector<Correspondence>& names, Type type, std::uint64_t most_bytes) {
    std::vector<Shard> shards;
    std::set<std::string> planned;  // several of ours may be joined in one
    std::uint64_t bytes = 0;
    for (const Correspondence& each : names) {
        if (!planned.insert(each.theirs).second) continue;
        StoredTensor tensor;
        tensor.name = each.theirs;
        tensor.type = file_type(type).word;
        tensor.shape = each.their_shape();
        tensor.bytes = static_cast<std::uint64_t>(element_count(tensor.shape)) * type_bytes(type);
        if (shards.empty() || (bytes > 0 && tensor.bytes > most_bytes - std::min(bytes, most_bytes))) {
            shards.emplace_back();
            bytes = 0;
        }
        bytes += tensor.bytes;
        shards.back().tensors.push_back(std::move(tensor));
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
        Shard& shard = shards[i];
        shard.name = shard_file_name(i, shards.size());
        shard.beginning = safetensors_beginning(shard.tensors);
        shard.file_bytes = shard.beginning.size();
        for (const StoredTensor& tensor : shard.tensors) shard.file_bytes += tensor.bytes;
    }
    return shards;
}

std::string index_text(const std::vector<Shard>& shards) {
    std::uint64_t total = 0;
    std::map<std::string, std::string> files;
    for (const Shard& shard : shards)
        for (const StoredTensor& tensor : shard.tensors) {
            total += tensor.bytes;
            files.emplace(tensor.name, shard.name);
        }
    return Json{{"metadata", {{"total_size", total}}}, {"weight_map", files}}.dump(2) + "\n";
}

ShardWriter::ShardWriter(std::string folder, const std::vector<Correspondence>& names, const std::vector<Shard>& shards,
                         Type type)
    : folder_(std::move(folder)), shards_(shards), type_(type), files_(shards.size()) {
    std::map<std::string, Target> places;  // by their name
    for (std::size_t shard = 0; shard < shards_.size(); ++shard)
        for (const StoredTensor& tensor : shards_[shard].tensors)
            places.emplace(tensor.name, Target{nullptr, shard, shards_[shard].beginning.size() + tensor.first});
    for (const Correspondence& each : names) {
        Target target = places.at(each.theirs);
        target.names = &each;
        targets_.emplace(each.ours, target);
    }
}

void ShardWriter::make_files() const {
    for (const Shard& shard : shards_) {
        OpenFile file = OpenFile::create(folder_ + "/" + shard.name);
        file.reserve(shard.file_bytes);
        file.write(shard.beginning.data(), shard.beginning.size(), 0);
        file.sync();
        file.close();
    }
}

void ShardWriter::write(const std::string& ours, std::int64_t first, std::int64_t count, const float* values) {
    const Target& target = targets_.at(ours);
    OpenFile& file = files_[target.shard];
    if (!file.is_open()) {
        if (open_ == most_open) finish();
        file = OpenFile::for_writing(folder_ + "/" + shards_[target.shard].name);
        ++open_;
    }
    check_range(ours, type_, values, count);
    const std::size_t size = type_bytes(type_);
    write_theirs(*target.names, first, count, values, [&](std::int64_t at, std::int64_t run, const float* of_run) {
        converted_.resize(static_cast<std::size_t>(run) * size);
        from_fp32(type_, converted_.data(), of_run, run);
        file.write(converted_.data(), converted_.size(), target.offset + static_cast<std::uint64_t>(at) * size);
    });
    written_ += count;
}

void ShardWriter::finish() {
    for (OpenFile& file : files_) {
        if (!file.is_open()) continue;
        file.sync();
        file.close();
    }
    open_ = 0;
}

}  // namespace lockstep::exchange
