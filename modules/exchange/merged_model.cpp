#include "exchange/merged_model.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "cluster/agree.hpp"
#include "exchange/adapter_merge.hpp"
#include "exchange/stored_model.hpp"
#include "model/adapters.hpp"
#include "model/mixers/registry.hpp"
#include "model/parameter_description.hpp"
#include "optim/schedule.hpp"

namespace lockstep::exchange {

using checkpoint::averages_prefix, checkpoint::parameters_prefix;

MergedModel::MergedModel(std::string path, bool averages)
    : path_(std::move(path)),
      averages_(averages),
      contents_(checkpoint::read_contents(path_)),
      run_(config::parse_foreign_description(contents_.run_description, path_)),
      model_(run_.model) {
    config::check(model_);
    model_.adapters = {};
    // The warm-up is the run's. Mixers that share a section are settled once: what is settled has no warm-up.
    for (const model::MixerType* mixer : model::mixer_types(run_.model))
        mixer->settle_inner_rate(model_, optim::inner_rate_factor(model_, run_.schedule.warmup, contents_.state.step));
    if (averages_) check_has_averages(path_, run_);
    check_tensors();
}

// The checkpoint must hold just the parameters of its own description.
void MergedModel::check_tensors() const {
    std::map<std::string, Shape> missing;
    for (const auto& parameter : model::describe_parameters(run_.model, model::whole_model(run_.model))) {
        if (contents_.state.base.empty() || model::is_adapter(parameter.name))
            missing[parameter.name] = parameter.shape;
    }
    const std::map<std::string, Shape> wanted = missing;
    for (const checkpoint::TensorInfo& tensor : checkpoint::list_tensors(path_)) {
        if (tensor.path.starts_with(averages_prefix)) {
            const auto named = wanted.find(tensor.path.substr(averages_prefix.size()));
            if (named == wanted.end() || named->second != tensor.shape)
                throw damaged_error("{} is damaged: its run description has no {} of {}", path_, tensor.path,
                                    shape_text(tensor.shape));
        }
        if (!tensor.path.starts_with(parameters_prefix)) continue;
        const std::string name = tensor.path.substr(parameters_prefix.size());
        const auto named = wanted.find(name);
        if (named == wanted.end())
            throw damaged_error("{} is damaged: it holds {}, which its run description does not have", path_, name);
        if (named->second != tensor.shape)
            throw damaged_error("{} is damaged: {} is {}, but its run description says {}", path_, name,
                                shape_text(tensor.shape), shape_text(named->second));
        missing.erase(name);
    }
    if (!missing.empty())
        throw damaged_error("{} is damaged: it lacks {}, which its run description requires", path_,
                            missing.begin()->first);
}

checkpoint::Source MergedModel::stored(cluster::HostGroup& group) const {
    std::set<std::string> averaged;
    checkpoint::Source averages;
    if (averages_) {
        cluster::together(group, [&] {
            for (const checkpoint::TensorInfo& tensor : checkpoint::list_tensors(path_))
                if (tensor.path.starts_with(averages_prefix))
                    averaged.insert(tensor.path.substr(averages_prefix.size()));
        });
        averages = checkpoint::source_of(path_, averages_prefix, group);
    }
    return [path = path_, averaged = std::move(averaged), averages = std::move(averages),
            parameters = checkpoint::source_of(path_, parameters_prefix, group)](
               const std::string& tensor, std::int64_t first, std::int64_t count, float* to) {
        const std::string name = tensor.substr(parameters_prefix.size());
        const bool average = averaged.count(name) > 0;
        const std::string& from = average ? averages_prefix + name : tensor;
        (average ? averages : parameters)(from, first, count, to);
        checkpoint::check_finite(path, from, to, count);
    };
}

checkpoint::Source MergedModel::source(const std::string& base_path, cluster::HostGroup& group,
                                       const checkpoint::StreamProgress& progress) const {
    std::shared_ptr<const StoredModel> base;
    if (auto found = open_base(path_, contents_.state, base_path, group, progress))
        base = std::make_shared<const StoredModel>(std::move(*found));
    checkpoint::Source beside = base ? base->source(group) : stored(group);
    if (!has_adapters()) return beside;
    const auto adapters = std::make_shared<const AdapterMerge>(path_, run_.model, averages_, group);
    return [base, adapters, beside = std::move(beside)](const std::string& tensor, std::int64_t first,
                                                        std::int64_t count, float* to) {
        beside(tensor, first, count, to);
        adapters->add_to(tensor.substr(parameters_prefix.size()), first, count, to);
    };
}

void check_has_averages(const std::string& checkpoint, const config::RunDescription& description) {
    if (!description.optimizer.averages())
        throw usage_error("{} has no averages of its parameters: its run had optimizer.ema = 0; leave out --ema",
                          checkpoint);
}

}  // namespace lockstep::exchange
