#include "model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "device/convert.hpp"
#include "device/parallel.hpp"

namespace lockstep::model {
namespace {

constexpr double convolution_bound = 0.5;  // 1/√(kernel size 4)

Arena make_flat(Device device, std::int64_t count, Type type, const char* name, Tensor& all) {
    Arena arena(device, static_cast<std::size_t>(count) * type_bytes(type) + Arena::device_alignment, name);
    if (count > 0) all = arena.allocate(type, {count});
    return arena;
}

// Elements of the first pieces.
std::int64_t total_of(const std::vector<Piece>& pieces, std::size_t number) {
    std::int64_t count = 0;
    for (std::size_t piece = 0; piece < number; ++piece) count += pieces[piece].count;
    return count;
}

// Pieces one behind the other; a tensor of each.
Arena make_pieces(Device device, const std::vector<Piece>& pieces, Type type, const char* name,
                  std::vector<Tensor>& tensors) {
    Tensor all;
    Arena arena = make_flat(device, total_of(pieces, pieces.size()), type, name, all);
    for (std::size_t piece = 0; piece < pieces.size(); ++piece)
        tensors.push_back(pieces[piece].count > 0 ? all.slice(total_of(pieces, piece), pieces[piece].count) : Tensor());
    return arena;
}

// [first, last) of a flat tensor as far as it is in the piece; empty: last <= first.
struct Overlap {
    std::int64_t first, last;
    Overlap(const Piece& piece, std::int64_t begin, std::int64_t end)
        : first(std::max(begin, piece.first)), last(std::min(end, piece.first + piece.count)) {}
    explicit operator bool() const { return first < last; }
    std::int64_t count() const { return last - first; }
};

FlatWindows make_whole(Device device, Type type, std::int64_t count, const char* name, Tensor& all) {
    FlatWindows windows(device, type, {{{0, count}, 0}}, name);
    if (count > 0) all = windows.slice(0, count);
    return windows;
}

// Maps element `index` of the slice to the whole tensor.
std::uint64_t element_of_whole(const ParameterDescription& parameter, const Slice& slice, std::int64_t index) {
    std::int64_t behind = 1;  // stride of the axis
    for (std::size_t axis = static_cast<std::size_t>(slice.axis) + 1; axis < parameter.shape.size(); ++axis)
        behind *= parameter.shape[axis];
    const std::int64_t in_slice = slice.extent * behind;
    const std::int64_t in_whole = parameter.shape[static_cast<std::size_t>(slice.axis)] * behind;
    return static_cast<std::uint64_t>(index / in_slice * in_whole + slice.offset * behind + index % in_slice);
}

// "mixer_norm/weight" of "blocks/3/mixer_norm/weight"
std::string within_block(const std::string& name) {
    const std::string blocks = "blocks/";
    return name.starts_with(blocks) ? name.substr(name.find('/', blocks.size()) + 1) : name;
}

float initial_value(const ParameterDescription& parameter, const RandomStream& random, std::uint64_t element) {
    switch (parameter.initial) {
        case Initial::normal:
            return static_cast<float>(parameter.deviation * random.normal(element));
        case Initial::uniform:
            return static_cast<float>(parameter.deviation * (2 * random.uniform(element) - 1));
        case Initial::zero:
            return 0;
        case Initial::one:
            return 1;
        case Initial::convolution:
            return static_cast<float>(convolution_bound * (2 * random.uniform(element) - 1));
        case Initial::decay_rate:
            return static_cast<float>(std::log(16 * (1 - random.uniform(element))));
        case Initial::decay_bias:
            return static_cast<float>(std::log(std::expm1(0.001 * std::pow(100, random.uniform(element)))));
    }
    throw fault_error("unknown initial value");
}

}  // namespace

ParameterSet::ParameterSet(Device device, std::vector<ParameterDescription> descriptions, bool with_gradients,
                           Type compute)
    : ParameterSet(device, ParameterLayout(std::move(descriptions), Part{}), with_gradients, compute) {}

ParameterSet::ParameterSet(Device device, ParameterLayout layout, bool with_gradients, Type compute, Division division)
    : layout_(std::move(layout)),
      compute_(compute),
      owned_(std::move(division.owned)),
      offloaded_(division.offloaded),
      divides_gradients_(division.gradients),
      divides_values_(division.values) {
    for (std::size_t i = 0; i < layout_.size(); ++i) index_[descriptions()[i].name] = i;
    const std::int64_t total = layout_.total(), trained = layout_.trained_total();
    const bool divided = !owned_.empty();
    LOCKSTEP_ASSERT(divided || !(divides_gradients_ || divides_values_ || offloaded()));
    if (!divided) owned_ = {{0, trained}};
    // Whether values and what is computed with are two.
    const bool apart = compute_ != Type::fp32 || divides_values_ || offloaded();
    if (offloaded()) {
        values_ = make_pieces(host(), owned_, Type::fp32, "parameters in host memory", owned_values_);
        if (compute_ == Type::fp32)
            owned_sent_ = owned_values_;
        else
            sent_ = make_pieces(host(), owned_, compute_, "working parameters in host memory", owned_sent_);
        if (divides_values_) received_ = make_pieces(device, owned_, compute_, "gathered parameters", owned_received_);
    } else if (divided && apart) {
        values_ = make_pieces(device, owned_, Type::fp32, "parameters", owned_values_);
    } else {
        values_end_ = apart ? trained : total;
        values_ = make_flat(device, values_end_, Type::fp32, "parameters", all_values_);
        for (const Piece& piece : owned_)
            owned_values_.push_back(piece.count > 0 ? all_values_.slice(piece.first, piece.count) : Tensor());
    }
    if (divides_values_) {
        std::vector<Window> windows = division.windows;
        windows.insert(windows.end(), division.frozen_windows.begin(), division.frozen_windows.end());
        frozen_owned_ = std::move(division.frozen_owned);
        frozen_ = make_pieces(device, frozen_owned_, compute_, "frozen parameters", frozen_values_);
        working_ = FlatWindows(device, compute_, std::move(windows), "parameters");
    } else if (apart) {
        working_ = make_whole(device, compute_, total, "working parameters", all_working_);
    }
    if (with_gradients && divides_gradients_) {
        gradients_ = FlatWindows(device, Type::fp32, division.windows, "gradients");
        owned_gradients_ =
            make_flat(device, total_of(owned_, owned_.size()), Type::fp32, "gradient sums", all_owned_gradients_);
    } else if (with_gradients) {
        gradients_ = make_whole(device, Type::fp32, trained, "gradients", all_gradients_);
    }
    if (with_gradients) plan_spare(device);
    if (compute_ != Type::fp32 && values_end_ < total) {
        for (std::size_t i = 0; i < layout_.size(); ++i) {
            exact_offsets_.push_back(exact_offsets_.empty() ? 0 : exact_offsets_.back());
            if (i > 0 && is_kept_exactly(i - 1)) exact_offsets_.back() += layout_.offset(i) - layout_.offset(i - 1);
        }
        exact_ = make_flat(device, exact_position(total), Type::fp32, "exact parameters", all_exact_);
        plan_exact();
    }
}

bool ParameterSet::is_kept_exactly(std::size_t index) const {
    return compute_ != Type::fp32 && descriptions()[index].exact && layout_.offset(index) >= values_end_;
}

// Elements of all_exact_ before a position of the other flat tensors.
std::int64_t ParameterSet::exact_position(std::int64_t position) const {
    if (layout_.size() == 0) return 0;
    const std::size_t index = layout_.at(position);
    return exact_offsets_[index] + (is_kept_exactly(index) ? position - layout_.offset(index) : 0);
}

// Blocks run one at a time, so those of one name share this memory, which takes the largest.
void ParameterSet::plan_spare(Device device) {
    std::map<std::string, std::int64_t> largest;
    for (std::size_t i = 0; i < layout_.size(); ++i) {
        const ParameterDescription& parameter = descriptions()[i];
        if (parameter.trained || !parameter.exact) continue;
        std::int64_t& count = largest[within_block(parameter.name)];
        count = std::max(count, layout_.count(i));
    }
    const auto plan = [&](Arena& arena) {
        for (const auto& [name, count] : largest) spare_gradients_[name] = arena.allocate(Type::fp32, {count});
    };
    Arena measure(device);
    plan(measure);
    if (spare_gradients_.empty()) return;
    spare_ = Arena(device, measure.peak(), "unused gradients");
    plan(spare_);
}

void ParameterSet::plan_exact() {
    for (std::size_t i = 0; i < layout_.size(); ++i) {
        if (!is_kept_exactly(i) || !descriptions()[i].trained) continue;
        const std::int64_t begin = layout_.offset(i), end = begin + layout_.count(i);
        for (std::size_t p = 0; p < owned_.size(); ++p)
            if (const Overlap part(owned_[p], begin, end); part)
                exact_copies_.emplace_back(all_exact_.slice(exact_offsets_[i] + part.first - begin, part.count()),
                                           owned_values_[p].slice(part.first - owned_[p].first, part.count()));
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
    if (layout_.offset(index) < values_end_) return part(all_values_, index);
    if (compute_ == Type::fp32) return working(name);
    LOCKSTEP_ASSERT(is_kept_exactly(index));
    return all_exact_.slice(exact_offsets_[index], layout_.count(index)).reshaped(layout_.slice(index).shape);
}

Tensor ParameterSet::gradient(const std::string& name) const {
    const std::size_t index = at(name);
    if (!descriptions()[index].trained || gradients_.bytes() == 0) return {};
    return gradients_.slice(layout_.offset(index), layout_.count(index)).reshaped(layout_.slice(index).shape);
}

Tensor ParameterSet::owned_gradients(const Piece& range) const {
    if (range.count == 0) return {};
    if (!divides_gradients_) return gradients(range);
    for (std::size_t piece = 0; piece < owned_.size(); ++piece) {
        const std::int64_t begin = range.first - owned_[piece].first;
        if (begin >= 0 && begin < owned_[piece].count)
            return all_owned_gradients_.slice(total_of(owned_, piece) + begin, range.count);
    }
    throw fault_error("element {} of the flat gradients belongs to another rank", range.first);
}

void ParameterSet::fill_own_part(kernels::Backend& backend, const Piece& window) const {
    const auto fill = [&](const std::vector<Piece>& pieces, const std::vector<Tensor>& values) {
        for (std::size_t piece = 0; piece < pieces.size(); ++piece)
            if (const Overlap part(pieces[piece], window.first, window.first + window.count); part)
                backend.copy(working_.slice(part.first, part.count()),
                             values[piece].slice(part.first - pieces[piece].first, part.count()));
    };
    fill(owned_, offloaded() ? owned_received_ : owned_values_);
    fill(frozen_owned_, frozen_values_);
}

Tensor ParameterSet::gradient_or_spare(const std::string& name) const {
    const std::size_t index = at(name);
    const auto spare = spare_gradients_.find(within_block(name));
    if (descriptions()[index].trained || spare == spare_gradients_.end()) return gradient(name);
    return spare->second.slice(0, layout_.count(index)).reshaped(layout_.slice(index).shape);
}

Tensor ParameterSet::frozen_value(std::size_t index) const {
    LOCKSTEP_ASSERT(!descriptions()[index].trained && (frozen_owned_.empty() || is_kept_exactly(index)));
    const std::string& name = descriptions()[index].name;
    return compute_ == Type::fp32 || descriptions()[index].exact ? value(name) : working(name);
}

std::vector<ParameterSet::KeptPart> ParameterSet::frozen_parts(std::size_t index) const {
    if (frozen_owned_.empty() || is_kept_exactly(index)) return {{0, frozen_value(index)}};
    const std::int64_t begin = layout_.offset(index), end = begin + layout_.count(index);
    std::vector<KeptPart> parts;
    for (std::size_t piece = 0; piece < frozen_owned_.size(); ++piece)
        if (const Overlap part(frozen_owned_[piece], begin, end); part)
            parts.push_back({part.first - begin,
                             frozen_values_[piece].slice(part.first - frozen_owned_[piece].first, part.count())});
    return parts;
}

void ParameterSet::overwrite_in_first_pass(const std::string& name) const {
    if (!gradient(name).empty()) passes_->overwritten.insert(at(name));
}

// What lies between the overwritten ones, alignment included.
std::vector<Tensor> ParameterSet::gradients_to_clear(const Piece& range) const {
    std::vector<Tensor> tensors;
    std::int64_t cleared = range.first;
    const auto clear_until = [&](std::int64_t end) {
        end = std::min(end, range.first + range.count);
        if (end > cleared) tensors.push_back(gradients({cleared, end - cleared}));
    };
    for (const std::size_t index : passes_->overwritten) {
        clear_until(layout_.offset(index));
        cleared = std::max(cleared, layout_.offset(index) + layout_.count(index));
    }
    clear_until(range.first + range.count);
    return tensors;
}

void ParameterSet::clear_gradients(kernels::Backend& backend) {
    if (!all_gradients_.empty()) clear_gradients(backend, {0, all_gradients_.count()});
}

void ParameterSet::clear_gradients(kernels::Backend& backend, const Piece& range) {
    backend.clear(gradients_to_clear(range));
}

bool ParameterSet::trains(const std::string& prefix) const {
    return std::any_of(descriptions().begin(), descriptions().end(), [&](const ParameterDescription& parameter) {
        return parameter.trained && parameter.name.starts_with(prefix);
    });
}

Tensor ParameterSet::working(const std::string& name) const {
    const std::size_t index = at(name);
    if (working_.bytes() == 0) return part(all_values_, index);
    return working_.slice(layout_.offset(index), layout_.count(index)).reshaped(layout_.slice(index).shape);
}

std::vector<ParameterSet::Shared> ParameterSet::shared(const Piece& range,
                                                       const std::vector<std::int64_t>& cuts) const {
    std::vector<Shared> list;
    if (!divides_values_) {
        const Tensor computed_with = all_working_.empty() ? all_values_ : all_working_;
        list.push_back({computed_with.slice(range.first, range.count), cuts});
    }
    if (all_exact_.empty() || !all_values_.empty()) return list;
    const std::int64_t first = exact_position(range.first), last = exact_position(range.first + range.count);
    if (last == first) return list;
    Shared exact{all_exact_.slice(first, last - first), {}};
    for (const std::int64_t cut : cuts) exact.cuts.push_back(exact_position(range.first + cut) - first);
    list.push_back(std::move(exact));
    return list;
}

void ParameterSet::initialize(kernels::Backend& backend, std::uint64_t seed,
                              const std::function<bool(const ParameterDescription&)>& of) {
    for (std::size_t i = 0; i < layout_.size(); ++i) {
        if (of && !of(descriptions()[i])) continue;
        if (!descriptions()[i].trained) {
            for (const KeptPart& part : frozen_parts(i))
                initialize(backend, seed, i, part.first, part.value.reshaped({part.value.count()}));
            continue;
        }
        // Where this rank keeps the parameter: whole, or the pieces it owns.
        const std::int64_t begin = layout_.offset(i), end = begin + layout_.count(i);
        if (begin < values_end_) {
            initialize(backend, seed, i, 0, all_values_.slice(begin, end - begin));
            continue;
        }
        for (std::size_t p = 0; p < owned_.size(); ++p)
            if (const Overlap part(owned_[p], begin, end); part)
                initialize(backend, seed, i, part.first - begin,
                           owned_values_[p].slice(part.first - owned_[p].first, part.count()));
    }
    refresh_working(backend);
}

// Writes elements of parameter `index` from `first` on to `to`.
void ParameterSet::initialize(kernels::Backend& backend, std::uint64_t seed, std::size_t index, std::int64_t first,
                              Tensor to) const {
    constexpr std::int64_t at_a_time = std::int64_t{1} << 20;  // elements generated on the host
    const ParameterDescription& parameter = descriptions()[index];
    const RandomStream random(seed, "parameter/" + parameter.name);
    std::vector<float> values;
    std::vector<char> converted;
    for (std::int64_t done = 0; done < to.count(); done += at_a_time) {
        const std::int64_t count = std::min(at_a_time, to.count() - done);
        values.resize(static_cast<std::size_t>(count));
        parallel_for(count, 4096, [&](std::int64_t from, std::int64_t until, int) {
            for (std::int64_t e = from; e < until; ++e)
                values[static_cast<std::size_t>(e)] = initial_value(
                    parameter, random, element_of_whole(parameter, layout_.slice(index), first + done + e));
        });
        const void* upload = values.data();
        if (to.type() != Type::fp32) {
            converted.resize(static_cast<std::size_t>(count) * type_bytes(to.type()));
            from_fp32(to.type(), converted.data(), values.data(), count);
            upload = converted.data();
        }
        const Tensor part = to.slice(done, count);
        if (offloaded() && parameter.trained)
            std::memcpy(part.data(), upload, part.bytes());
        else
            backend.upload(part, upload);
    }
}

void ParameterSet::send(kernels::Backend& backend, std::size_t piece) const {
    const Piece& owned = owned_[piece];
    if (owned.count == 0) return;
    const Tensor to = divides_values_ ? owned_received_[piece] : all_working_.slice(owned.first, owned.count);
    backend.copy(to, owned_sent_[piece]);
}

void ParameterSet::refresh_working(kernels::Backend& backend) {
    if (offloaded()) {
        for (std::size_t p = 0; p < owned_.size(); ++p) {
            if (owned_[p].count == 0) continue;
            if (compute_ != Type::fp32)
                from_fp32(compute_, owned_sent_[p].data(), owned_values_[p].fp32(), owned_[p].count);
            send(backend, p);
        }
    } else if (!all_working_.empty()) {
        for (std::size_t p = 0; p < owned_.size(); ++p)
            if (owned_[p].count > 0)
                backend.copy(all_working_.slice(owned_[p].first, owned_[p].count), owned_values_[p]);
    }
    refresh_exact(backend);
}

void ParameterSet::refresh_exact(kernels::Backend& backend) {
    for (const auto& [to, from] : exact_copies_) backend.copy(to, from);
}

}  // namespace lockstep::model
