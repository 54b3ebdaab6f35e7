#include "exchange/folder.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/version.hpp"
#include "config/run_description.hpp"
#include "exchange/tokenizer.hpp"

namespace lockstep::exchange {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_config = 1 << 20;  // bytes; theirs have some thousand
// Of a batch of evaluation, where nothing says how long the sequences were in training.
constexpr std::int64_t usual_length = 2048;
constexpr std::size_t most_keys_named = 20;  // in a warning

// The name with its first number between dots replaced: "model.layers.#.mlp.up_proj.weight".
std::string pattern_of(const std::string& name) {
    for (std::size_t first = 0, end; first < name.size(); first = end + 1) {
        end = std::min(name.find('.', first), name.size());
        const std::string part = name.substr(first, end - first);
        if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos)
            return name.substr(0, first) + "#" + name.substr(end);
    }
    return name;
}

}  // namespace

bool is_folder(const std::string& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored) && fs::is_regular_file(path + "/" + config_file_name, ignored);
}

void check_has_config(const std::string& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored) || is_folder(path)) return;
    if (fs::is_regular_file(path + "/adapter_config.json", ignored))
        throw usage_error(
            "{} holds adapters without their model; make a checkpoint of both: lockstep convert {} OUT.h5 --base "
            "FOLDER",
            path, path);
    const fs::directory_iterator entries(path, ignored);
    if (std::any_of(begin(entries), end(entries),
                    [](const fs::directory_entry& entry) { return entry.path().extension() == ".safetensors"; }))
        throw usage_error("{} has safetensors but no {}, which describes their model; copy it there", path,
                          config_file_name);
}

std::string without_slash(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

Folder::Folder(const std::string& path)
    : path_(without_slash(path)),
      config_(read_json_object(path_ + "/" + config_file_name, largest_config)),
      architecture_(&architecture_of(config_, path_ + "/" + config_file_name)),
      model_(read_model(*architecture_, config_, path_ + "/" + config_file_name, unknown_keys_)),
      files_(path_) {
    // Before a list of the parameters is made: a number in config.json may be anything.
    if (model_.layers > static_cast<std::int64_t>(files_.places().size()))
        throw damaged_error("{} has {} tensors, too few for the {} layers of its {}", path_, files_.places().size(),
                            model_.layers, config_file_name);
    names_ = correspondences(*architecture_, model_);
    match_names();
}

// Every parameter must have its tensor, of the right shape, and every tensor must be known.
void Folder::match_names() {
    const std::string prefix(architecture_->base_prefix);
    const auto& places = files_.places();
    // A base model saved alone lacks the prefix.
    const bool bare =
        std::none_of(places.begin(), places.end(), [&](const auto& place) { return place.first.starts_with(prefix); });
    std::set<std::string> wanted;
    for (std::size_t i = 0; i < names_.size(); ++i) {
        Correspondence& names = names_[i];
        if (bare && names.theirs.starts_with(prefix)) names.theirs.erase(0, prefix.size());
        const auto found = places.find(names.theirs);
        if (found == places.end())
            throw damaged_error("{} has no tensor {}, which the {} in its {} needs", path_, names.theirs,
                                architecture_->name, config_file_name);
        const StoredTensor& tensor = *found->second.tensor;
        if (tensor.shape != names.their_shape())
            throw damaged_error("{}: {} has shape {}; {} requires {}", found->second.file->path(), names.theirs,
                                shape_text(tensor.shape), config_file_name, shape_text(names.their_shape()));
        static_cast<void>(compute_type(tensor, found->second.file->path()));
        wanted.insert(names.theirs);
        number_of_.emplace(names.ours, i);
    }
    for (const auto& [name, place] : places)
        if (!wanted.contains(name)) check_passed_over((bare ? prefix : "") + name, place);
}

void Folder::check_passed_over(const std::string& name, const TensorFiles::Place& place) const {
    const auto& constants = architecture_->constants;
    if (std::find(constants.begin(), constants.end(), pattern_of(name)) != constants.end()) return;
    const std::string& file = place.file->path();
    if (!name.ends_with("lm_head.weight") || !model_.tied_head)
        throw usage_error("{} holds {}, which the {} described by {} does not have", file,
                          shown_name(place.tensor->name), architecture_->name, config_file_name);
    // A tied head that is stored beside the embedding.
    const TensorFiles::Place& embedding = this->place(names_.at(number_of_.at("embedding/weight")));
    const StoredTensor &head = *place.tensor, &table = *embedding.tensor;
    if (head.type != table.type || head.shape != table.shape ||
        std::memcmp(place.file->data(head), embedding.file->data(table), table.bytes) != 0)
        throw usage_error(
            "{}: {} is not {}, though tie_word_embeddings is true; set that to false in {} if the head has its "
            "own weights",
            file, shown_name(head.name), table.name, config_file_name);
}

const TensorFiles::Place& Folder::place(const Correspondence& names) const {
    return files_.places().at(names.theirs);
}

checkpoint::Source Folder::source() const {
    return [this](const std::string& path, std::int64_t first, std::int64_t count, float* to) {
        const std::string& prefix = checkpoint::parameters_prefix;
        const auto number = path.starts_with(prefix) ? number_of_.find(path.substr(prefix.size())) : number_of_.end();
        if (number == number_of_.end()) throw fault_error("{} has no {}", path_, path);
        const Correspondence& names = names_[number->second];
        read_ours(names, place(names), first, count, to);
        checkpoint::check_finite(place(names).file->path(), names.theirs, to, count);
    };
}

checkpoint::Contents Folder::contents(const config::ModelDescription& model) const {
    std::error_code nowhere;
    const std::string whole_path = without_slash(fs::absolute(path_, nowhere).lexically_normal().string());
    checkpoint::Contents contents =
        contents_of(model, fs::path(whole_path).filename().string(), std::min(model_.context, usual_length));
    read_tokenizer(path_, contents);
    return contents;
}

checkpoint::Contents contents_of(const config::ModelDescription& model, const std::string& name, std::int64_t length) {
    config::RunDescription description;
    description.model = model;
    description.run.name = config::plain_name(name);
    description.batch.length = length;
    checkpoint::Contents contents;
    contents.run_description = config::to_toml(description);
    contents.state.length = length;
    contents.state.seed = description.run.seed;
    contents.state.commit = commit();
    return contents;
}

void warn_of_unknown_keys(const Folder& folder) {
    const std::vector<std::string>& keys = folder.unknown_keys();
    if (keys.empty()) return;
    std::vector<std::string> list;
    for (std::size_t i = 0; i < std::min(keys.size(), most_keys_named); ++i) list.push_back(shown_name(keys[i]));
    if (keys.size() > list.size()) list.push_back(fmt::format("and {} more", keys.size() - list.size()));
    log::warning("{}/{} has unknown keys: {}; they are ignored, so results may differ if one of them matters",
                 folder.path(), config_file_name, fmt::join(list, ", "));
}

}  // namespace lockstep::exchange
