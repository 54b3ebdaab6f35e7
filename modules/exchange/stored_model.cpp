#include "exchange/stored_model.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "cluster/agree.hpp"
#include "device/parallel.hpp"
#include "model/adapters.hpp"

namespace lockstep::exchange {
namespace {

using checkpoint::parameters_prefix;

constexpr std::uint64_t bytes_at_once = std::uint64_t{32} << 20;

// The last step of SplitMix64 (Steele et al. 2014).
std::uint64_t mixed(std::uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    return bits ^ (bits >> 31);
}

// A sum over elements, so that their order does not matter; each counts with its tensor and its place there.
std::uint64_t sum_of(const std::string& name, std::int64_t first, std::int64_t count, const float* values) {
    const std::uint64_t seed = hash64(name.data(), name.size());
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads()), 0);
    parallel_for(count, 1 << 16, [&](std::int64_t from, std::int64_t until, int thread) {
        std::uint64_t sum = 0;
        for (std::int64_t i = from; i < until; ++i)
            sum += mixed(mixed(seed + static_cast<std::uint64_t>(first + i)) + std::bit_cast<std::uint32_t>(values[i]));
        sums[static_cast<std::size_t>(thread)] += sum;
    });
    std::uint64_t sum = 0;
    for (const std::uint64_t part : sums) sum += part;
    return sum;
}

}  // namespace

bool is_of_base(const checkpoint::Entry& entry) {
    return entry.path.starts_with(parameters_prefix) && !model::is_adapter(entry.path);
}

StoredModel::StoredModel(std::string path) : path_(std::move(path)) {
    if (is_folder(path_)) folder_.emplace(path_);
    contents_ = folder_ ? folder_->contents() : checkpoint::read_contents(path_);
}

void StoredModel::load(const std::vector<checkpoint::Entry>& entries, cluster::HostGroup& group) const {
    if (folder_) return cluster::together(group, [&] { checkpoint::fill(entries, folder_->source()); });
    checkpoint::load(path_, entries, group);
    cluster::together(group, [&] { checkpoint::check_finite(path_, entries); });
}

void StoredModel::load_as_base(std::vector<checkpoint::Entry> entries, cluster::HostGroup& group) const {
    if (!folder_)
        cluster::together(group, [&] {
            for (const checkpoint::TensorInfo& tensor : checkpoint::list_tensors(path_))
                if (tensor.path.starts_with(parameters_prefix) && model::is_adapter(tensor.path))
                    entries.push_back(checkpoint::skipped(tensor.path, tensor.shape));
        });
    load(entries, group);
}

std::vector<checkpoint::TensorInfo> StoredModel::base_tensors() const {
    std::vector<checkpoint::TensorInfo> tensors;
    if (folder_) {
        for (const Correspondence& each : folder_->names())
            tensors.push_back({parameters_prefix + each.ours, each.shape});
        return tensors;
    }
    for (checkpoint::TensorInfo& tensor : checkpoint::list_tensors(path_))
        if (tensor.path.starts_with(parameters_prefix) && !model::is_adapter(tensor.path))
            tensors.push_back(std::move(tensor));
    return tensors;
}

checkpoint::Source StoredModel::source(cluster::HostGroup& group) const {
    if (folder_) return folder_->source();
    return [this, source = checkpoint::source_of(path_, parameters_prefix, group)](
               const std::string& path, std::int64_t first, std::int64_t count, float* to) {
        source(path, first, count, to);
        checkpoint::check_finite(path_, path, to, count);
    };
}

void StoredModel::read_through(const ParameterSink& sink, cluster::HostGroup& group,
                               const checkpoint::StreamProgress& progress) const {
    const checkpoint::Source source = this->source(group);
    cluster::together(group, [&] {
        checkpoint::pass_through(
            base_tensors(), source, bytes_at_once,
            [&](const checkpoint::TensorInfo& tensor, std::int64_t first, std::int64_t count, const float* values) {
                sink(tensor.path.substr(parameters_prefix.size()), first, count, values);
            },
            group, progress);
    });
}

std::string StoredModel::checksum(cluster::HostGroup& group, const checkpoint::StreamProgress& progress) const {
    std::uint64_t own = 0;
    read_through([&](const std::string& name, std::int64_t first, std::int64_t count,
                     const float* values) { own += sum_of(name, first, count, values); },
                 group, progress);
    const std::vector<char> bytes = group.all_gather_bytes(&own, sizeof own);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    std::uint64_t sum = 0;
    for (const std::uint64_t part : all) sum += part;
    return hash_text(sum);
}

std::vector<checkpoint::Entry> take_base_entries(std::vector<checkpoint::Entry>& entries) {
    std::vector<checkpoint::Entry> taken;
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(taken), is_of_base);
    std::erase_if(entries, is_of_base);
    return taken;
}

void check_base(const std::string& checkpoint, const checkpoint::State& state, const std::string& given,
                cluster::HostGroup& group) {
    cluster::on_root(group, [&] {
        if (state.base.empty() && given.empty()) return;
        if (state.base.empty())
            throw usage_error("{} holds its whole model; leave out the base, {} (--base, init.base)", checkpoint,
                              given);
        const std::string& path = given.empty() ? state.base : given;
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored))
            throw usage_error(
                "{} holds adapters alone, and their model, {}, does not exist; name it with --base (for train: --set "
                "init.base=PATH)",
                checkpoint, path);
        if (StoredModel(path).has_adapters_alone())
            throw usage_error("{} holds adapters alone, as {} does; name the model they were trained on", path,
                              checkpoint);
    });
}

std::optional<StoredModel> open_base(const std::string& checkpoint, const checkpoint::State& state,
                                     const std::string& given, cluster::HostGroup& group,
                                     const checkpoint::StreamProgress& progress) {
    check_base(checkpoint, state, given, group);
    std::optional<StoredModel> base;
    if (state.base.empty()) return base;
    cluster::together(group, [&] { base.emplace(given.empty() ? state.base : given); });
    if (const std::string found = base->checksum(group, progress); found != state.base_checksum)
        throw usage_error(
            "{} is not the model that the adapters of {} were trained on: its parameters have the checksum {}, not "
            "{}",
            base->path(), checkpoint, found, state.base_checksum);
    return base;
}

}  // namespace lockstep::exchange
