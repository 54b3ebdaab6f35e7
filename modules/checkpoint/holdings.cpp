#include "checkpoint/holdings.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_map>

#include "cluster/agree.hpp"
#include "device/convert.hpp"

namespace lockstep::checkpoint {
namespace {

// What an entry is called: a path that the file lacks, a place with another shape there, or (from `at_place` on, added
// to it) a place.
enum Name : std::uint64_t { not_there, other_shape, at_place };
// What of it a rank holds. A run of entries of which it holds all or nothing is one number; a piece is followed by its
// range.
enum Part : std::uint64_t { nothing, everything, piece, parts };

constexpr std::size_t entries_a_text = 256;

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
    std::vector<std::string> more;
    if (!contradiction) more.push_back(news(entries, known));
    const cluster::DistinctTexts all = cluster::gather_distinct_texts(more, group);
    if (contradiction) throw *contradiction;
    for (const std::string& text : all.texts) learn(known, text);
    std::vector<TensorInfo> tensors;
    for (const auto& [path, shape] : known) tensors.push_back({path, shape});
    return tensors;
}

std::vector<std::string> holdings_to_texts(const std::vector<Place>& places, const std::vector<Entry>& entries) {
    std::unordered_map<std::string_view, std::size_t> place_of_path;
    for (std::size_t place = 0; place < places.size(); ++place) place_of_path.emplace(places[place].path, place);
    std::vector<std::string> texts(1 + (entries.size() + entries_a_text - 1) / entries_a_text);
    put(texts[0], entries.size());
    std::uint64_t run_of = Part::nothing, run = 0;
    const auto end_run = [&](std::string& text) {
        if (run > 0) put(text, run * Part::parts + run_of);
        run = 0;
    };
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const Entry& entry = entries[i];
        std::string& names = texts[0];
        std::string& text = texts[1 + i / entries_a_text];
        std::uint64_t part = Part::nothing;
        SliceRange own;
        const auto place = place_of_path.find(entry.path);
        if (place == place_of_path.end()) {
            put(names, Name::not_there);
            put(names, entry.path.size());
            names += entry.path;
        } else if (entry.shape != places[place->second].shape) {
            put(names, Name::other_shape);
            put(names, place->second);
            put(names, entry.shape.size());
            for (const auto size : entry.shape) put(names, size);
        } else {
            put(names, Name::at_place + place->second);
            own = slice_range(entry);
            if (own.count > 0) part = own == whole_range(places[place->second]) ? Part::everything : Part::piece;
        }
        if (part != run_of || part == Part::piece) end_run(text);
        run_of = part;
        ++run;
        if (part == Part::piece) {
            end_run(text);
            for (const auto number : {own.row, own.start, own.width, own.first, own.count}) put(text, number);
        }
        if ((i + 1) % entries_a_text == 0 || i + 1 == entries.size()) end_run(text);
    }
    return texts;
}

namespace {

constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

// Of each entry its place, or `nowhere`; what there is to say of them is noted.
std::vector<std::size_t> places_of_entries(std::string_view names, Holdings& holdings) {
    Bytes bytes(names);
    std::vector<std::size_t> places(bytes.number());
    for (std::size_t& of_entry : places) {
        of_entry = nowhere;
        const std::uint64_t name = bytes.number();
        if (name == Name::not_there) {
            holdings.not_there.emplace_back(bytes.text(bytes.number()));
            continue;
        }
        const std::size_t place = name == Name::other_shape ? bytes.number() : name - Name::at_place;
        holdings.named.at(place) = true;
        if (name == Name::other_shape) {
            Shape shape(bytes.number());
            for (auto& size : shape) size = bytes.integer();
            holdings.other_shapes.emplace(place, std::move(shape));
        } else {
            of_entry = place;
        }
    }
    LOCKSTEP_ASSERT(bytes.at_end());
    return places;
}

}  // namespace

Holdings holdings_from_texts(const std::vector<Place>& places, const cluster::DistinctTexts& all) {
    Holdings holdings(places.size());
    std::unordered_map<std::uint32_t, std::vector<std::size_t>> known;  // places of entries, by the text of names
    for (int rank = 0; rank < static_cast<int>(all.of_rank.size()); ++rank) {
        const auto& texts = all.of_rank[static_cast<std::size_t>(rank)];
        const auto [found, is_new] = known.try_emplace(texts.at(0));
        if (is_new) found->second = places_of_entries(all.texts.at(texts[0]), holdings);
        const std::vector<std::size_t>& place_of = found->second;
        std::size_t entry = 0;
        for (std::size_t i = 1; i < texts.size(); ++i) {
            Bytes bytes(all.texts.at(texts[i]));
            while (!bytes.at_end()) {
                const std::uint64_t number = bytes.number(), part = number % Part::parts;
                const std::size_t last = entry + number / Part::parts;
                LOCKSTEP_ASSERT(last <= place_of.size());
                if (part == Part::nothing) {
                    entry = last;
                    continue;
                }
                SliceRange held;
                if (part == Part::piece)
                    for (auto* of : {&held.row, &held.start, &held.width, &held.first, &held.count})
                        *of = bytes.integer();
                for (; entry < last; ++entry) {
                    const std::size_t place = place_of[entry];
                    holdings.spreads.at(place).add(part == Part::piece ? held : whole_range(places[place]),
                                                   {rank, static_cast<int>(entry)});
                }
            }
        }
        LOCKSTEP_ASSERT(entry == place_of.size());
    }
    return holdings;
}

Holdings gather_holdings(const std::vector<Place>& places, const std::vector<Entry>& entries,
                         cluster::HostGroup& group) {
    std::vector<std::string> own;
    cluster::together(group, [&] { own = holdings_to_texts(places, entries); });
    return holdings_from_texts(places, cluster::gather_distinct_texts(own, group));
}

}  // namespace lockstep::checkpoint
