#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.hpp"
#include "base/plural.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/local.hpp"
#include "checkpoint/transfer.hpp"
#include "cluster/agree.hpp"
#include "cluster/nodes.hpp"
#include "cluster/rank_list.hpp"

namespace lockstep::checkpoint {

using cluster::caught;

namespace {

constexpr std::size_t none = static_cast<std::size_t>(-1);

std::size_t index(int number) {
    return static_cast<std::size_t>(number);
}

int node_of(const LocalPlace& place, const cluster::HostGroup& group) {
    return place.nodes[index(group.rank())];
}

std::string path_in(const LocalPlace& place, const PartSet& set, int part, const PartSource& source) {
    return (std::filesystem::path(place.folder) / part_file_name({set.step, part, set.parts, source.copy})).string();
}

// What one node has, as text.
std::string list_folder(const LocalPlace& place, const std::vector<Course>& courses, int node) {
    auto list = nlohmann::json::array();
    const auto problem = caught([&] {
        for (const std::string& path : list_parts(place.folder)) {
            const PartName name = *part_of(path);
            const auto unreadable = caught([&] {
                const Header header = read_header(path);
                if (header.of_parts.parts != name.parts || header.contents.state.step != name.step)
                    throw damaged_error("{} is damaged: it holds a different part than its name says", path);
                if (counts(courses, header.of_parts.course, name.step))
                    list.push_back({name.step, name.part, name.parts, name.copy, header.checksum, node});
            });
            if (unreadable) log::warning("skipped: {}", unreadable->what());
        }
    });
    if (problem) log::warning("no local checkpoints from this node: {}", problem->what());
    return list.empty() ? "" : list.dump() + "\n";
}

// Of a newer local checkpoint than the one that will be taken.
void warn_of_missing_parts(const PartSets& sets) {
    for (const PartSet& set : sets.incomplete) {
        if (!sets.complete.empty() && set.step <= sets.complete.front().step) return;
        std::vector<int> missing;
        for (int part = 0; part < set.parts; ++part)
            if (set.sources[index(part)].empty()) missing.push_back(part);
        log::warning("the local checkpoint of step {} is skipped: of its parts 0 to {}, none of these nodes has {}",
                     set.step, set.parts - 1, cluster::rank_list_text(missing));
    }
}

// Which rank reads which blocks of which part: those of the parts of a node are divided among the ranks there, about
// equal in bytes.
struct PartBlock {
    int part;
    ChecksumBlock block;
};
std::vector<std::vector<PartBlock>> divide(const std::vector<std::vector<ChecksumBlock>>& blocks, const PartSet& set,
                                           const std::vector<std::size_t>& chosen, const std::vector<int>& nodes) {
    std::vector<std::vector<PartBlock>> shares(nodes.size());
    const auto ranks = cluster::ranks_of_nodes(nodes);
    for (std::size_t node = 0; node < ranks.size(); ++node) {
        std::vector<PartBlock> here;
        std::uint64_t total = 0, start = 0;
        for (int part = 0; part < set.parts; ++part) {
            if (chosen[index(part)] == none) continue;
            if (set.sources[index(part)][chosen[index(part)]].node != static_cast<int>(node)) continue;
            for (const ChecksumBlock& block : blocks[index(part)]) {
                here.push_back({part, block});
                total += block.bytes;
            }
        }
        for (const PartBlock& one : here) {
            shares[index(ranks[node][static_cast<std::size_t>(start * ranks[node].size() / total)])].push_back(one);
            start += one.block.bytes;
        }
    }
    return shares;
}

// The parts' blocks, of which only those of the places of `chosen` and numbered as there.
std::vector<std::vector<ChecksumBlock>> blocks_of_parts(const Layout& all, const Layout& chosen, int parts) {
    std::vector<std::size_t> places;
    std::size_t next = 0;
    for (const Place& place : all.places) {
        const bool is_chosen = next < chosen.places.size() && chosen.places[next].path == place.path;
        places.push_back(is_chosen ? next++ : none);
    }
    std::vector<std::vector<ChecksumBlock>> blocks = shares_of_blocks(all, parts);
    for (std::vector<ChecksumBlock>& of_part : blocks) {
        std::erase_if(of_part, [&](const ChecksumBlock& block) { return places[block.place] == none; });
        for (ChecksumBlock& block : of_part) block.place = places[block.place];
    }
    return blocks;
}

// The header of the first part, from a rank of the node where it lies.
struct Description {
    Layout layout;
    State state;
    std::string run_description;
};
Description read_description(const LocalPlace& place, const PartSet& set, std::size_t source,
                             cluster::HostGroup& group) {
    const PartSource& from = set.sources[0][source];
    const int root = cluster::ranks_of_nodes(place.nodes)[index(from.node)][0];
    std::string layout, state, run_description;
    cluster::together(group, [&] {
        if (group.rank() != root) return;
        const Header header = read_header(path_in(place, set, 0, from));
        layout = layout_to_text(without_tokenizer(header.layout));
        state = state_to_text(header.contents.state);
        run_description = header.contents.run_description;
    });
    Description description;
    description.layout = layout_from_text(group.broadcast_text(std::move(layout), root));
    description.state = state_from_text(group.broadcast_text(std::move(state), root));
    description.run_description = group.broadcast_text(std::move(run_description), root);
    return description;
}

// Reads this rank's blocks. Parts that are not whole are marked in `bad`.
void verify_blocks(const LocalPlace& place, const PartSet& set, const Layout& layout,
                   const std::vector<PartBlock>& share, const std::vector<std::size_t>& chosen,
                   std::vector<std::int64_t>& bad) {
    std::vector<char> buffer;
    OpenFile file;
    for (const PartBlock& one : share) {
        if (bad[index(one.part)] != 0) continue;
        const PartSource& source = set.sources[index(one.part)][chosen[index(one.part)]];
        const std::string path = path_in(place, set, one.part, source);
        const auto problem = caught([&] {
            buffer.resize(layout.block_bytes);
            if (file.path() != path) file = OpenFile::for_reading(path);
            read_block(file, path, layout, one.block, buffer.data());
        });
        if (!problem) continue;
        bad[index(one.part)] = 1;
        log::warning("skipped: {}", problem->what());
    }
}

}  // namespace

int LocalCheckpoint::own() const {
    return set.parts - copies();
}

int LocalCheckpoint::copies() const {
    int copies = 0;
    for (std::size_t part = 0; part < chosen.size(); ++part) copies += set.sources[part][chosen[part]].copy ? 1 : 0;
    return copies;
}

std::vector<PartSet> find_local(const LocalPlace& place, const std::vector<Course>& courses,
                                cluster::HostGroup& group) {
    std::string own;
    const int node = node_of(place, group);
    if (cluster::ranks_of_nodes(place.nodes)[index(node)][0] == group.rank()) own = list_folder(place, courses, node);
    const std::vector<char> all = group.all_gather_bytes(own.data(), own.size());
    std::vector<PartFile> files;
    for (auto at = all.begin(); at != all.end();) {
        const auto end = std::find(at, all.end(), '\n');
        for (const auto& one : nlohmann::json::parse(std::string(at, end)))
            files.push_back({{one.at(0), one.at(1), one.at(2), one.at(3)}, one.at(4), one.at(5)});
        at = end + 1;
    }
    PartSets sets = part_sets(files);
    if (group.rank() == 0) warn_of_missing_parts(sets);
    return std::move(sets.complete);
}

std::optional<LocalCheckpoint> open_local(const LocalPlace& place, const PartSet& set, cluster::HostGroup& group) {
    LocalCheckpoint checkpoint;
    checkpoint.set = set;
    checkpoint.path = (std::filesystem::path(place.folder) / file_name(set.step)).string();
    Description description;
    for (std::size_t source = 0;; ++source) try {
            if (source == set.sources[0].size()) return std::nullopt;
            description = read_description(place, set, source, group);
            break;
        } catch (const Error& error) {  // the same on every rank
            if (group.rank() == 0) log::warning("skipped: {}", error.what());
        }
    checkpoint.state = description.state;
    checkpoint.run_description = description.run_description;
    const Layout& layout = description.layout;
    const auto blocks = blocks_of_parts(layout, layout, set.parts);
    checkpoint.chosen.assign(index(set.parts), 0);
    std::vector<std::size_t> unread = checkpoint.chosen;  // sources yet to be read; none: a part that is whole
    for (bool again = true; again;) {
        const auto shares = divide(blocks, set, unread, place.nodes);
        std::vector<std::int64_t> bad(index(set.parts));
        verify_blocks(place, set, layout, shares[index(group.rank())], unread, bad);
        group.all_reduce(bad, cluster::Reduce::maximum);
        again = false;
        for (std::size_t part = 0; part < bad.size(); ++part) {
            if (bad[part] == 0) {
                unread[part] = none;
                continue;
            }
            again = true;
            unread[part] = ++checkpoint.chosen[part];
            if (unread[part] < set.sources[part].size()) continue;
            if (group.rank() == 0)
                log::warning("the local checkpoint of step {} is skipped: part {} of {} is damaged{}", set.step, part,
                             set.parts, set.sources[part].size() > 1 ? ", and so is its copy" : ", and has no copy");
            return std::nullopt;
        }
    }
    return checkpoint;
}

void load_local(const LocalPlace& place, const LocalCheckpoint& checkpoint, const std::vector<Entry>& entries,
                cluster::HostGroup& group) {
    const PartSet& set = checkpoint.set;
    const Layout all = read_description(place, set, checkpoint.chosen[0], group).layout;
    std::vector<Spread> spreads;
    const Layout layout = selected(checkpoint.path, all, gather_holdings(all.places, entries, group), spreads);
    const auto shares = divide(blocks_of_parts(all, layout, set.parts), set, checkpoint.chosen, place.nodes);
    Reading reading;
    for (const auto& share : shares) {
        reading.shares.emplace_back();
        for (const PartBlock& one : share) reading.shares.back().push_back(one.block);
    }
    cluster::together(group, [&] {
        int open = -1;
        for (const PartBlock& one : shares[index(group.rank())]) {
            const PartSource& source = set.sources[index(one.part)][checkpoint.chosen[index(one.part)]];
            if (one.part != open) reading.files.push_back(OpenFile::for_reading(path_in(place, set, one.part, source)));
            open = one.part;
            reading.file_of_block.push_back(reading.files.size() - 1);
        }
    });
    Distributor(reading, layout, spreads, entries, group, elements_a_round(reading.readers())).distribute();
}

}  // namespace lockstep::checkpoint
