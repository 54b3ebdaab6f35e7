#include "train/checkpoint_contents.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "base/version.hpp"
#include "device/parallel.hpp"
#include "exchange/stored_model.hpp"

namespace lockstep::train {
namespace {

class EntryList {
  public:
    EntryList(const model::ParameterSet& parameters, kernels::Backend* device)
        : parameters_(parameters), layout_(parameters.layout()), device_(device) {}

    // Elements of parameter `index`, from `first` on within this rank's slice.
    void add(const std::string& group, std::size_t index, std::int64_t first, Tensor value, bool updated = true) {
        const model::Slice& slice = layout_.slice(index);
        checkpoint::Entry entry;
        entry.path = group + layout_.descriptions()[index].name;
        entry.shape = layout_.descriptions()[index].shape;
        entry.axis = slice.axis;
        entry.offset = slice.offset;
        entry.extent = slice.extent;
        entry.first = first;
        entry.value = value;
        entry.device = updated ? of_updated() : device_;
        entries_.push_back(std::move(entry));
    }
    // The parts of all parameters within the pieces this rank owns; `of_piece` is the flat tensor of a piece.
    void add_owned(const std::string& group, const std::function<Tensor(std::size_t)>& of_piece) {
        for (std::size_t index = 0; index < layout_.size(); ++index) {
            const std::int64_t begin = layout_.offset(index), end = begin + layout_.count(index);
            for (std::size_t piece = 0; piece < parameters_.owned().size(); ++piece) {
                const model::Piece& owned = parameters_.owned()[piece];
                const std::int64_t first = std::max(begin, owned.first),
                                   last = std::min(end, owned.first + owned.count);
                if (first < last)
                    add(group, index, first - begin, of_piece(piece).slice(first - owned.first, last - first));
            }
        }
    }
    void add(const optim::StatePart& part) {
        entries_.push_back({"optimizer/" + part.path, part.shape, part.slice.axis, part.slice.offset, part.slice.extent,
                            part.first, part.value, of_updated()});
    }
    std::vector<checkpoint::Entry> take() { return std::move(entries_); }

  private:
    // Of what an update changes: the device, unless that is done in host memory.
    kernels::Backend* of_updated() const { return parameters_.offloaded() ? nullptr : device_; }
    const model::ParameterSet& parameters_;
    const model::ParameterLayout& layout_;
    kernels::Backend* device_;
    std::vector<checkpoint::Entry> entries_;
};

}  // namespace

std::vector<checkpoint::Entry> checkpoint_entries(const TrainingState& state, const layout::Devices& devices) {
    const model::ParameterSet& parameters = *state.parameters;
    const model::ParameterLayout& layout = parameters.layout();
    EntryList list(parameters, devices.on_gpu() ? devices.backend.get() : nullptr);
    const Tensor values = parameters.all_values();
    if (values.empty())
        list.add_owned(checkpoint::parameters_prefix, [&](std::size_t piece) { return parameters.owned_value(piece); });
    for (std::size_t index = 0; index < layout.size(); ++index) {
        if (layout.count(index) == 0) continue;
        if (!layout.descriptions()[index].trained)
            for (const auto& part : parameters.frozen_parts(index))
                list.add(checkpoint::parameters_prefix, index, part.first, part.value, false);
        else if (!values.empty())
            list.add(checkpoint::parameters_prefix, index, 0, parameters.part(values, index));
    }
    for (const optim::StatePart& part : state.optimizer->state().parts()) list.add(part);
    return list.take();
}

std::vector<checkpoint::Entry> saved_entries(const Launch& launch, const TrainingState& state) {
    std::vector<checkpoint::Entry> entries = checkpoint_entries(state, launch.devices);
    if (launch.description.checkpoint.adapters_alone) std::erase_if(entries, exchange::is_of_base);
    return entries;
}

checkpoint::Contents checkpoint_contents(const Launch& launch, const TrainingState& state, std::int64_t step) {
    checkpoint::Contents contents;
    contents.state = state.counters;
    contents.state.optimizer = state.optimizer->type().name();
    contents.state.step = step;
    contents.state.seed = launch.description.run.seed;
    contents.state.data_checksum = launch.data.training->checksum();
    contents.state.length = launch.description.batch.length;
    contents.state.ranks = launch.session.size();
    contents.state.threads = threads();
    contents.state.processor = launch.computes_on();
    contents.state.commit = commit();
    contents.state.finished = step >= launch.data.steps;
    contents.run_description = config::to_toml(launch.resolved());
    contents.tokenizer_kind = launch.data.tokenizer_kind;
    contents.tokenizer_files = launch.data.tokenizer_files;
    return contents;
}

}  // namespace lockstep::train
