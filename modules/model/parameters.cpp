#include "model/parameters.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "device/parallel.hpp"

namespace lockstep::model {
namespace {

constexpr double convolution_bound = 0.5;  // 1/√4, of its kernel

Arena make_flat(Device device, std::int64_t count, Type type, const char* name, Tensor& all) {
    Arena arena(device, static_cast<std::size_t>(count) * type_bytes(type) + Arena::device_alignment, name);
    if (count > 0) all = arena.allocate(type, {count});
    return arena;
}

// Element `index` of the slice, as an element of the whole tensor.
std::uint64_t element_of_whole(const ParameterDescription& parameter, const Slice& slice, std::int64_t index) {
    std::int64_t behind = 1;  // elements of one step along the axis
    for (std::size_t axis = static_cast<std::size_t>(slice.axis) + 1; axis < parameter.shape.size(); ++axis)
        behind *= parameter.shape[axis];
    const std::int64_t in_slice = slice.extent * behind;
    const std::int64_t in_whole = parameter.shape[static_cast<std::size_t>(slice.axis)] * behind;
    return static_cast<std::uint64_t>(index / in_slice * in_whole + slice.offset * behind + index % in_slice);
}

float initial_value(const ParameterDescription& parameter, const RandomStream& random, std::uint64_t element) {
    switch (parameter.initial) {
        case Initial::normal:
            return static_cast<float>(parameter.deviation * random.normal(element));
        case Initial::zero:
            return 0;
        case Initial::one:
            return 1;
        case Initial::convolution:
            return static_cast<float>(convolution_bound * (2 * random.uniform(element) - 1));
    }
    throw fault_error("unknown initial value");
}

}  // namespace

ParameterSet::ParameterSet(Device device, std::vector<ParameterDescription> descriptions, bool with_gradients,
                           Type compute)
    : ParameterSet(device, ParameterLayout(std::move(descriptions), Part{}), with_gradients, compute) {}

ParameterSet::ParameterSet(Device device, ParameterLayout layout, bool with_gradients, Type compute,
                           std::vector<Piece> owned)
    : layout_(std::move(layout)), compute_(compute), owned_(std::move(owned)) {
    for (std::size_t i = 0; i < layout_.size(); ++i) index_[descriptions()[i].name] = i;
    const std::int64_t total = layout_.total();
    const bool divided = !owned_.empty();
    if (!divided) owned_ = {{0, total}};
    if (divided && compute_ != Type::fp32) {
        std::int64_t count = 0;
        for (const Piece& piece : owned_) count += piece.count;
        Tensor all_owned;
        values_ = make_flat(device, count, Type::fp32, "parameters", all_owned);
        std::int64_t first = 0;
        for (const Piece& piece : owned_) {
            owned_values_.push_back(piece.count > 0 ? all_owned.slice(first, piece.count) : Tensor());
            first += piece.count;
        }
    } else {
        values_ = make_flat(device, total, Type::fp32, "parameters", all_values_);
        for (const Piece& piece : owned_) owned_values_.push_back(all_values_.slice(piece.first, piece.count));
    }
    if (compute_ != Type::fp32) working_ = make_flat(device, total, compute_, "working parameters", all_working_);
    if (with_gradients) gradients_ = make_flat(device, total, Type::fp32, "gradients", all_gradients_);
    if (all_values_.empty()) {
        for (std::size_t i = 0; i < layout_.size(); ++i) {
            exact_offsets_.push_back(exact_offsets_.empty() ? 0 : exact_offsets_.back());
            if (i > 0 && descriptions()[i - 1].exact)
                exact_offsets_.back() += layout_.offset(i) - layout_.offset(i - 1);
        }
        exact_ = make_flat(device, exact_position(total), Type::fp32, "exact parameters", all_exact_);
        plan_exact();
    }
}

// How many elements of exact parameters lie before a position of the flat tensors.
std::int64_t ParameterSet::exact_position(std::int64_t position) const {
    if (layout_.size() == 0) return 0;
    const std::size_t index = layout_.at(position);
    return exact_offsets_[index] + (descriptions()[index].exact ? position - layout_.offset(index) : 0);
}

void ParameterSet::plan_exact() {
    for (std::size_t i = 0; i < layout_.size(); ++i) {
        if (!descriptions()[i].exact) continue;
        const std::int64_t begin = layout_.offset(i), end = begin + layout_.count(i);
        for (std::size_t p = 0; p < owned_.size(); ++p) {
            const std::int64_t first = std::max(begin, owned_[p].first);
            const std::int64_t last = std::min(end, owned_[p].first + owned_[p].count);
            if (first >= last) continue;
            exact_copies_.emplace_back(all_exact_.slice(exact_offsets_[i] + first - begin, last - first),
                                       owned_values_[p].slice(first - owned_[p].first, last - first));
        }
    }
}

std::size_t ParameterSet::at(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) throw fault_error("the model has no parameter named {}", name);
    return found->second;
}

Tensor ParameterSet::part(Tensor all, std::size_t index) const {
    if (all.empty()) return {};
    return all.slice(layout_.offset(index), layout_.count(index)).reshaped(layout_.slice(index).shape);
}

Tensor ParameterSet::value(const std::string& name) const {
    const std::size_t index = at(name);
    if (!all_values_.empty()) return part(all_values_, index);
    LOCKSTEP_ASSERT(descriptions()[index].exact);
    return all_exact_.slice(exact_offsets_[index], layout_.count(index)).reshaped(layout_.slice(index).shape);
}
Tensor ParameterSet::gradient(const std::string& name) const {
    return part(all_gradients_, at(name));
}

Tensor ParameterSet::working(const std::string& name) const {
    return part(compute_ == Type::fp32 ? all_values_ : all_working_, at(name));
}

std::vector<ParameterSet::Shared> ParameterSet::shared(const Piece& range,
                                                       const std::vector<std::int64_t>& cuts) const {
    if (compute_ == Type::fp32) return {{all_values_.slice(range.first, range.count), cuts}};
    std::vector<Shared> list = {{all_working_.slice(range.first, range.count), cuts}};
    if (!all_values_.empty()) return list;
    const std::int64_t first = exact_position(range.first), last = exact_position(range.first + range.count);
    if (last == first) return list;
    Shared exact{all_exact_.slice(first, last - first), {}};
    for (const std::int64_t cut : cuts) exact.cuts.push_back(exact_position(range.first + cut) - first);
    list.push_back(std::move(exact));
    return list;
}

void ParameterSet::initialize(kernels::Backend& backend, std::uint64_t seed) {
    constexpr std::int64_t at_a_time = std::int64_t{1} << 20;  // elements made on the host
    std::vector<float> values;
    for (std::size_t i = 0; i < layout_.size(); ++i) {
        const RandomStream random(seed, "parameter/" + descriptions()[i].name);
        // Where this rank keeps the parameter: in whole, or in the pieces it owns.
        const std::int64_t begin = layout_.offset(i), end = begin + layout_.count(i);
        for (std::size_t p = 0; p < owned_.size(); ++p) {
            const Piece kept = all_values_.empty() ? owned_[p] : Piece{0, layout_.total()};
            const Tensor to = all_values_.empty() ? owned_values_[p] : all_values_;
            const std::int64_t last = std::min(end, kept.first + kept.count);
            for (std::int64_t first = std::max(begin, kept.first); first < last; first += at_a_time) {
                const std::int64_t count = std::min(at_a_time, last - first);
                values.resize(static_cast<std::size_t>(count));
                parallel_for(count, 4096, [&](std::int64_t from, std::int64_t until, int) {
                    for (std::int64_t e = from; e < until; ++e)
                        values[static_cast<std::size_t>(e)] =
                            initial_value(descriptions()[i], random,
                                          element_of_whole(descriptions()[i], layout_.slice(i), first - begin + e));
                });
                backend.upload(to.slice(first - kept.first, count), values.data());
            }
            if (!all_values_.empty()) break;
        }
    }
    refresh_working(backend);
}

void ParameterSet::refresh_working(kernels::Backend& backend) {
    if (compute_ != Type::fp32)
        for (std::size_t p = 0; p < owned_.size(); ++p)
            if (owned_[p].count > 0)
                backend.copy(all_working_.slice(owned_[p].first, owned_[p].count), owned_values_[p]);
    refresh_exact(backend);
}

void ParameterSet::refresh_exact(kernels::Backend& backend) {
    for (const auto& [to, from] : exact_copies_) backend.copy(to, from);
}

}  // namespace lockstep::model
