#include "exchange/tensor_files.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "device/convert.hpp"
#include "exchange/json.hpp"

namespace lockstep::exchange {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_index = 16 << 20;  // bytes; 100,000 tensors have about half of it

bool exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

Error no_tensors(const std::string& folder) {
    if (exists(folder + "/pytorch_model.bin") || exists(folder + "/pytorch_model.bin.index.json"))
        return usage_error(
            "{} has its tensors in pytorch_model.bin, whose format can run code and is not supported; save it again "
            "with save_pretrained of transformers, which writes {}",
            folder, single_file_name);
    return usage_error("{} has neither {} nor {}", folder, single_file_name, index_file_name);
}

// The files by name, in order, and what is to be in each.
std::map<std::string, std::vector<std::string>> read_index(const std::string& path) {
    const Json index = read_json_object(path, largest_index);
    const auto map = index.find("weight_map");
    if (map == index.end() || !map->is_object()) throw damaged_error("{} is damaged: it has no weight_map", path);
    std::map<std::string, std::vector<std::string>> files;
    for (const auto& [tensor, file] : map->items()) {
        const std::string name = file.is_string() ? file.get<std::string>() : "";
        if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos)
            throw damaged_error("{} is damaged: the file of {} is {}, not a .safetensors file in the same folder", path,
                                shown_name(tensor), shown(file));
        files[name].push_back(tensor);
    }
    if (files.empty()) throw damaged_error("{} is damaged: its weight_map is empty", path);
    return files;
}

}  // namespace

std::string shard_file_name(std::size_t shard, std::size_t shards) {
    return shards == 1 ? single_file_name : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

TensorFiles::TensorFiles(const std::string& folder) {
    const std::string single = folder + "/" + single_file_name, index = folder + "/" + index_file_name;
    std::map<std::string, std::vector<std::string>> indexed;
    if (exists(single)) {
        files_.emplace_back(single);
    } else if (exists(index)) {
        indexed = read_index(index);
        for (const auto& [name, tensors] : indexed)
            if (!exists(folder + "/" + name))
                throw damaged_error("{} lacks {}, which {} names", folder, shown_name(name), index_file_name);
        for (const auto& [name, tensors] : indexed) files_.emplace_back(folder + "/" + name);
    } else {
        throw no_tensors(folder);
    }
    for (const SafetensorsFile& file : files_)
        for (const StoredTensor& tensor : file.tensors()) {
            const auto [place, is_new] = places_.emplace(tensor.name, Place{&file, &tensor});
            if (!is_new)
                throw damaged_error("{} is in {} and in {}", shown_name(tensor.name), place->second.file->path(),
                                    file.path());
        }
    for (const auto& [name, tensors] : indexed)
        for (const std::string& tensor : tensors) {
            const auto place = places_.find(tensor);
            if (place == places_.end() || place->second.file->path() != folder + "/" + name)
                throw damaged_error("{} says that {} is in {}, which does not hold it", index, shown_name(tensor),
                                    shown_name(name));
        }
}

std::uint64_t TensorFiles::bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [name, place] : places_) bytes += place.tensor->bytes;
    return bytes;
}

void read_elements(const TensorFiles::Place& place, std::int64_t first, std::int64_t count, float* to) {
    if (count == 0) return;
    const Type type = compute_type(*place.tensor, place.file->path());
    const std::size_t size = type_bytes(type);
    const std::byte* from = place.file->data(*place.tensor) + static_cast<std::size_t>(first) * size;
    if (type == Type::fp32) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * size);
        return;
    }
    // The format does not promise aligned data.
    std::array<std::uint16_t, 4096> aligned;
    for (std::int64_t done = 0; done < count;) {
        const auto part = std::min<std::int64_t>(count - done, aligned.size());
        std::memcpy(aligned.data(), from + static_cast<std::size_t>(done) * size,
                    static_cast<std::size_t>(part) * size);
        to_fp32(to + done, type, aligned.data(), part);
        done += part;
    }
}

}  // namespace lockstep::exchange
