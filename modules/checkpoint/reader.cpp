#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/layout.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr int whole_file = 1;  // "ranks" of a share that is everything

std::string group_of(const std::string& path) {
    if (path.starts_with("optimizer/")) return path.substr(0, path.find('/', sizeof "optimizer/"));
    return path.substr(0, path.find('/'));
}

// The places of `entries`, in file order; which entry each is goes to `entry_of_place`.
Layout selected(const std::string& path, const Layout& layout, const std::vector<Entry>& entries,
                std::vector<std::size_t>& entry_of_place) {
    std::map<std::string, std::size_t> wanted;
    std::set<std::string> groups;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        wanted[entries[i].path] = i;
        groups.insert(group_of(entries[i].path));
    }
    Layout chosen = layout;
    chosen.places.clear();
    for (const auto& place : layout.places) {
        const auto entry = wanted.find(place.path);
        if (entry == wanted.end()) {
            if (groups.contains(group_of(place.path)))
                throw usage_error("{} is a checkpoint of another model: it holds {}, which this model does not have",
                                  path, place.path);
            continue;
        }
        const Tensor& value = entries[entry->second].value;
        if (value.shape() != place.shape)
            throw usage_error("{} is a checkpoint of another model: {} is {} there and {} in this model", path,
                              place.path, shape_text(place.shape), shape_text(value.shape()));
        chosen.places.push_back(place);
        entry_of_place.push_back(entry->second);
        wanted.erase(entry);
    }
    // The first in the model's order, not in the map's.
    for (const auto& entry : entries)
        if (wanted.contains(entry.path))
            throw usage_error("{} is a checkpoint of another model: it does not hold {}", path, entry.path);
    return chosen;
}

}  // namespace

Contents read_contents(const std::string& path) {
    Header header = read_header(path);
    const OpenFile file = OpenFile::for_reading(path);
    std::string& model = header.contents.tokenizer_model;
    for (const auto& block : share_of_blocks(header.layout, 0, whole_file)) {
        const Place& place = header.layout.places[block.place];
        if (place.path != tokenizer_model_path) continue;
        model.resize(place.bytes);
        read_block(file, path, header.layout, block, model.data() + block.first);
    }
    return header.contents;
}

std::vector<TensorInfo> list_tensors(const std::string& path) {
    const Header header = read_header(path);
    std::vector<TensorInfo> tensors;
    for (const auto& place : header.layout.places)
        if (place.path != tokenizer_model_path) tensors.push_back({place.path, place.shape});
    return tensors;
}

void load(const std::string& path, const std::vector<Entry>& entries, cluster::Communicator& communicator) {
    for (const auto& entry : entries) LOCKSTEP_ASSERT(entry.value.type() == Type::fp32 && !entry.value.empty());
    std::string text;
    cluster::on_root(communicator, [&] { text = layout_to_text(read_header(path).layout); });
    text = communicator.broadcast_text(std::move(text), 0);
    Layout layout;
    std::vector<std::size_t> entry_of_place;
    const auto entry_of = [&](const Block& block) -> const Entry& { return entries[entry_of_place[block.place]]; };
    std::vector<char> own;  // this rank's share of what lies on a device
    cluster::together(communicator, [&] {
        layout = selected(path, layout_from_text(text), entries, entry_of_place);
        const OpenFile file = OpenFile::for_reading(path);
        const auto share = share_of_blocks(layout, communicator.rank(), communicator.size());
        std::uint64_t staged = 0;
        for (const auto& block : share) staged += entry_of(block).device ? block.bytes : 0;
        own.resize(staged);
        char* stage = own.data();
        for (const auto& block : share) {
            const bool on_device = entry_of(block).device != nullptr;
            read_block(file, path, layout, block,
                       on_device ? stage : static_cast<char*>(part_of(entry_of(block), block).data()));
            if (on_device) stage += block.bytes;
        }
    });
    const char* next_own = own.data();
    std::vector<char> received;
    for (int owner = 0; owner < communicator.size(); ++owner) {
        const auto share = share_of_blocks(layout, owner, communicator.size());
        for (std::size_t i = 0; i < share.size();) {
            // Neighbouring blocks of a tensor travel together.
            Block group = share[i];
            for (++i; i < share.size() && share[i].place == group.place; ++i) group.bytes += share[i].bytes;
            const Entry& entry = entry_of(group);
            if (!entry.device) {
                communicator.broadcast(part_of(entry, group).data(), group.bytes, owner);
                continue;
            }
            if (owner == communicator.rank()) {
                received.assign(next_own, next_own + group.bytes);
                next_own += group.bytes;
            } else {
                received.resize(group.bytes);
            }
            communicator.broadcast(received.data(), group.bytes, owner);
            entry.device->upload(part_of(entry, group), received.data());
        }
    }
}

std::uint64_t verify(const std::string& path, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    const Header header = read_header(path);
    const OpenFile file = OpenFile::for_reading(path);
    std::vector<char> buffer;
    std::uint64_t total = 0, checked = 0;
    for (const auto& place : header.layout.places) total += place.bytes;
    for (const auto& block : share_of_blocks(header.layout, 0, whole_file)) {
        buffer.resize(std::max<std::uint64_t>(buffer.size(), block.bytes));
        read_block(file, path, header.layout, block, buffer.data());
        checked += block.bytes;
        if (progress) progress(checked, total);
    }
    return checked;
}

}  // namespace lockstep::checkpoint
