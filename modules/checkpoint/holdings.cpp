#include "checkpoint/holdings.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "cluster/agree.hpp"
#include "device/convert.hpp"

namespace lockstep::checkpoint {
namespace {

enum Kind : std::uint64_t { nothing, everything, piece, other_shape, not_there };

// Variable-length integers: seven bits per byte, lowest first; the eighth bit is set if more follow.
void put(std::string& bytes, std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>(number | 0x80));
    bytes.push_back(static_cast<char>(number));
}

void put(std::string& bytes, std::int64_t number) {
    put(bytes, static_cast<std::uint64_t>(number));
}

class Bytes {
  public:
    explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
    bool at_end() const { return bytes_.empty(); }
    std::uint64_t number() {
        std::uint64_t number = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<unsigned char>(text(1)[0]);
            number |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) return number;
        }
    }
    std::int64_t integer() { return static_cast<std::int64_t>(number()); }
    std::string_view text(std::size_t size) {
        LOCKSTEP_ASSERT(size <= bytes_.size());
        const auto text = bytes_.substr(0, size);
        bytes_.remove_prefix(size);
        return text;
    }

  private:
    std::string_view bytes_;
};

SliceRange whole_range(const Place& place) {
    return slice_range(place.shape, 0, 0, place.shape[0], 0, element_count(place.shape));
}

using Shapes = std::map<std::string, Shape>;

// What differs in `entries` from `known`, as one line; "" if nothing.
std::string news(const std::vector<Entry>& entries, const Shapes& known) {
    auto list = nlohmann::json::array();
    std::set<std::pair<std::string, Shape>> told;
    for (const auto& entry : entries) {
        const auto found = known.find(entry.path);
        if (found != known.end() && found->second == entry.shape) continue;
        if (told.emplace(entry.path, entry.shape).second) list.push_back({entry.path, entry.shape});
    }
    return list.empty() ? "" : list.dump() + "\n";
}

void learn(Shapes& known, std::string_view lines) {
    while (!lines.empty()) {
        const std::size_t end = lines.find('\n');
        for (const auto& told : nlohmann::json::parse(lines.substr(0, end))) {
            const auto [place, is_new] = known.emplace(told.at(0), told.at(1));
            const Shape shape = told.at(1);
            if (!is_new && place->second != shape)
                throw fault_error("ranks disagree on the shape of {}: {} on one, {} on another", place->first,
                                  shape_text(place->second), shape_text(shape));
        }
        lines.remove_prefix(end + 1);
    }
}

}  // namespace

Entry whole(std::string path, Tensor value, kernels::Backend* device) {
    Shape shape = value.shape();
    const std::int64_t extent = shape.empty() ? 0 : shape[0];
    return {std::move(path), std::move(shape), 0, 0, extent, 0, value, device};
}

Entry skipped(std::string path, const Shape& shape) {
    return {std::move(path), shape, 0, 0, shape[0], 0, {}, nullptr};
}

SliceRange slice_range(const Entry& entry) {
    const Type type = entry.value.type();
    LOCKSTEP_ASSERT(entry.value.empty() || type == Type::fp32 || type == Type::bf16 || type == Type::fp16);
    return slice_range(entry.shape, entry.axis, entry.offset, entry.extent, entry.first,
                       entry.value.empty() ? 0 : entry.value.count());
}

namespace {

Tensor part_of(const Entry& entry, std::int64_t first, std::int64_t count) {
    return entry.value.reshaped({entry.value.count()}).slice(first, count);
}

}  // namespace

float* fp32_of(const Entry& entry) {
    return entry.device || entry.value.type() != Type::fp32 ? nullptr : entry.value.fp32();
}

void copy_out(const Entry& entry, std::int64_t first, std::int64_t count, float* to) {
    const Tensor part = part_of(entry, first, count);
    if (!entry.device) return to_fp32(to, part.type(), part.data(), count);
    if (part.type() == Type::fp32) return entry.device->download(to, part);
    const auto values = std::make_unique_for_overwrite<char[]>(part.bytes());
    entry.device->download(values.get(), part);
    to_fp32(to, part.type(), values.get(), count);
}

void copy_in(const Entry& entry, std::int64_t first, std::int64_t count, const float* from) {
    const Tensor part = part_of(entry, first, count);
    if (!entry.device) return from_fp32(part.type(), part.data(), from, count);
    if (part.type() == Type::fp32) return entry.device->upload(part, from);
    const auto values = std::make_unique_for_overwrite<char[]>(part.bytes());
    from_fp32(part.type(), values.get(), from, count);
    entry.device->upload(part, values.get());
}

std::vector<TensorInfo> union_of_tensors(const std::vector<Entry>& entries, cluster::HostGroup& group) {
    // Most ranks name what the first one does: gather only the differences.
    Shapes known;
    const std::string first = group.broadcast_text(group.rank() == 0 ? news(entries, known) : "", 0);
    std::optional<Error> contradiction = cluster::caught([&] { learn(known, first); });
    const std::string more = contradiction ? "" : news(entries, known);
    const auto all = group.all_gather_bytes(more.data(), more.size());
    if (contradiction) throw *contradiction;
    learn(known, {all.data(), all.size()});
    std::vector<TensorInfo> tensors;
    for (const auto& [path, shape] : known) tensors.push_back({path, shape});
    return tensors;
}

std::string holdings_to_bytes(const std::vector<Place>& places, const std::vector<Entry>& entries) {
    std::unordered_map<std::string_view, std::size_t> place_of_path;
    for (std::size_t place = 0; place < places.size(); ++place) place_of_path.emplace(places[place].path, place);
    std::string bytes;
    put(bytes, entries.size());
    for (const auto& entry : entries) {
        const auto place = place_of_path.find(entry.path);
        if (place == place_of_path.end()) {
            put(bytes, Kind::not_there);
            put(bytes, entry.path.size());
            bytes += entry.path;
            continue;
        }
        if (entry.shape != places[place->second].shape) {
            put(bytes, Kind::other_shape);
            put(bytes, place->second);
            put(bytes, entry.shape.size());
            for (const auto size : entry.shape) put(bytes, size);
            continue;
        }
        const SliceRange own = slice_range(entry);
        const bool all = own == whole_range(places[place->second]);
        put(bytes, own.count == 0 ? Kind::nothing : all ? Kind::everything : Kind::piece);
        put(bytes, place->second);
        if (own.count == 0 || all) continue;
        for (const auto number : {own.row, own.start, own.width, own.first, own.count}) put(bytes, number);
    }
    return bytes;
}

Holdings holdings_from_bytes(const std::vector<Place>& places, std::string_view all) {
    Holdings holdings(places.size());
    Bytes bytes(all);
    for (int rank = 0; !bytes.at_end(); ++rank) {
        const auto entries = static_cast<int>(bytes.number());
        for (int entry = 0; entry < entries; ++entry) {
            const std::uint64_t kind = bytes.number();
            if (kind == Kind::not_there) {
                holdings.not_there.emplace_back(bytes.text(bytes.number()));
                continue;
            }
            const std::size_t place = bytes.number();
            holdings.named.at(place) = true;
            if (kind == Kind::other_shape) {
                Shape shape(bytes.number());
                for (auto& size : shape) size = bytes.integer();
                holdings.other_shapes.emplace(place, std::move(shape));
            } else if (kind == Kind::everything) {
                add(holdings.spreads[place], whole_range(places[place]), {rank, entry});
            } else if (kind == Kind::piece) {
                SliceRange held;
                for (auto* number : {&held.row, &held.start, &held.width, &held.first, &held.count})
                    *number = bytes.integer();
                add(holdings.spreads[place], held, {rank, entry});
            }
        }
    }
    return holdings;
}

Holdings gather_holdings(const std::vector<Place>& places, const std::vector<Entry>& entries,
                         cluster::HostGroup& group) {
    std::string own;
    cluster::together(group, [&] { own = holdings_to_bytes(places, entries); });
    const auto all = group.all_gather_bytes(own.data(), own.size());
    return holdings_from_bytes(places, {all.data(), all.size()});
}

}  // namespace lockstep::checkpoint
