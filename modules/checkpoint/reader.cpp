#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/part_files.hpp"
#include "checkpoint/read_ahead.hpp"
#include "checkpoint/transfer.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr int whole_file = 1;  // number of "ranks" when one reads everything

std::string group_of(const std::string& path) {
    if (path.starts_with("optimizer/")) return path.substr(0, path.find('/', sizeof "optimizer/"));
    return path.substr(0, path.find('/'));
}

}  // namespace

Layout selected(const std::string& path, const Layout& layout, Holdings holdings, std::vector<Spread>& spreads) {
    std::set<std::string> groups;
    for (std::size_t place = 0; place < layout.places.size(); ++place)
        if (holdings.named[place]) groups.insert(group_of(layout.places[place].path));
    for (const auto& missing : holdings.not_there) groups.insert(group_of(missing));
    Layout chosen = layout;
    chosen.places.clear();
    for (std::size_t i = 0; i < layout.places.size(); ++i) {
        const Place& place = layout.places[i];
        if (!holdings.named[i]) {
            if (groups.contains(group_of(place.path)))
                throw usage_error("{} is a checkpoint of another model: it holds {}, which this model does not have",
                                  path, place.path);
            continue;
        }
        const auto other = holdings.other_shapes.find(i);
        if (other != holdings.other_shapes.end())
            throw usage_error("{} is a checkpoint of another model: {} is {} there and {} in this model", path,
                              place.path, shape_text(place.shape), shape_text(other->second));
        chosen.places.push_back(place);
        spreads.push_back(std::move(holdings.spreads[i]));
    }
    if (!holdings.not_there.empty())
        throw usage_error("{} is a checkpoint of another model: it does not hold {}", path, holdings.not_there[0]);
    return chosen;
}

Contents read_contents(const std::string& path) {
    Header header = read_header(path);
    const OpenFile file = OpenFile::for_reading(path);
    std::map<std::size_t, std::string> files;  // by place
    for (std::size_t place = 0; place < header.layout.places.size(); ++place)
        if (is_tokenizer_file(header.layout.places[place])) files[place].resize(header.layout.places[place].bytes);
    for (const auto& block : share_of_blocks(header.layout, 0, whole_file))
        if (const auto found = files.find(block.place); found != files.end())
            read_block(file, path, header.layout, block, found->second.data() + block.first);
    for (auto& [place, contents] : files)
        header.contents.tokenizer_files.push_back(
            {data::tokenizer_file_name(header.layout.places[place].path), std::move(contents)});
    std::sort(header.contents.tokenizer_files.begin(), header.contents.tokenizer_files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return header.contents;
}

std::vector<TensorInfo> list_tensors(const std::string& path) {
    const Header header = read_header(path);
    std::vector<TensorInfo> tensors;
    for (const auto& place : header.layout.places)
        if (!is_tokenizer_file(place)) tensors.push_back({place.path, place.shape});
    return tensors;
}

void load(const std::string& path, const std::vector<Entry>& entries, cluster::HostGroup& group) {
    std::string text;
    cluster::on_root(group, [&] { text = layout_to_text(read_whole_header(path).layout); });
    const Layout all = layout_from_text(group.broadcast_text(std::move(text), 0));
    std::vector<Spread> spreads;
    const Layout layout = selected(path, all, gather_holdings(all.places, entries, group), spreads);
    Reading reading;
    cluster::together(group,
                      [&] { reading = reading_of(OpenFile::for_reading(path), layout, group.rank(), group.size()); });
    Distributor(reading, layout, spreads, entries, group, elements_a_round(reading.readers())).distribute();
}

std::uint64_t verify(const std::string& path, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    Header header = read_header(path);
    std::vector<ChecksumBlock> blocks;
    if (header.of_parts.parts == 0) {
        blocks = share_of_blocks(header.layout, 0, whole_file);
    } else {
        const auto part = part_of(path);
        if (!part || part->parts != header.of_parts.parts)
            throw usage_error(
                "{} is one of the {} parts of a local checkpoint, but its name no longer says which one; "
                "restore its original name",
                path, header.of_parts.parts);
        header.layout = without_tokenizer(std::move(header.layout));
        blocks = share_of_blocks(header.layout, part->part, part->parts);
    }
    const OpenFile file = OpenFile::for_reading(path);
    ReadAhead reader(file, path, header.layout, blocks);
    std::uint64_t total = 0, checked = 0;
    for (const auto& block : blocks) total += block.bytes;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        reader.forget_before(i);
        static_cast<void>(reader.block(i));
        checked += blocks[i].bytes;
        if (progress) progress(checked, total);
    }
    return checked;
}

}  // namespace lockstep::checkpoint
