#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/local.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/share.hpp"
#include "checkpoint/transfer.hpp"
#include "checkpoint/unfinished.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {

using cluster::agree;
using cluster::caught;
using cluster::Failure;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_kept = 2;  // so that one is left when a part of the newest and its copy are lost
constexpr int nobody = -1;
constexpr std::int64_t failures_a_warning = 100;

// A part that this rank writes: its own, or the copy of another rank's.
struct Writing {
    std::string path;
    int owner = 0;  // the rank whose share it is
    std::unique_ptr<Share> share;
};

// The space of the blocks, so that a full disk is known before training has paused for long.
void reserve_blocks(const std::string& path, const Share& share) {
    if (share.blocks().empty()) return;
    const std::uint64_t first = offset_of(share.layout(), share.blocks().front());
    const ChecksumBlock& last = share.blocks().back();
    OpenFile file = OpenFile::for_writing(path);
    file.reserve(offset_of(share.layout(), last) + last.bytes - first, first);
    file.close();
}

}  // namespace

struct LocalWriter::Implementation {
    LocalPlace place;
    std::string course;
    std::vector<std::int64_t> complete;  // steps, ascending
    std::unique_ptr<cluster::HostGroup> group;
    int partner = nobody;
    std::vector<int> wards;  // the ranks whose parts are copied here

    std::vector<Writing> writings;  // of the pending checkpoint; the own part first
    std::int64_t step = 0;
    std::int64_t failures = 0;   // of the last ones in a row
    double begun = 0, left = 0;  // when begin() for the last one was called and returned, seconds_now()
    Writer::Cost cost;

    int rank() const { return group->rank(); }
    bool first_of_node() const {
        const int node = place.nodes[static_cast<std::size_t>(rank())];
        return std::find(place.nodes.begin(), place.nodes.end(), node) - place.nodes.begin() == rank();
    }
    std::string path_of(int owner) const {
        return (fs::path(place.folder) / part_file_name({step, owner, group->size(), owner != rank()})).string();
    }

    void give_up(const Failure& failure) {
        for (const Writing& one : writings) {
            remove_quietly(unfinished_name(one.path));
            remove_quietly(one.path);
        }
        writings.clear();
        if (rank() == 0 && failures % failures_a_warning == 0)
            log::warning(
                "the local checkpoint of step {} was not written{} (rank {}): {}; training continues, and the next one "
                "will be attempted as usual",
                step, failures > 0 ? fmt::format(", nor were the {} before it", failures) : "", failure.rank,
                failure.error.what());
        ++failures;
    }

    void make_files(const std::string& image) const {
        std::error_code error;
        fs::create_directories(place.folder, error);
        if (error) throw fault_error("cannot create the folder {}: {}", place.folder, error.message());
        for (const Writing& one : writings) {
            const std::string unfinished = unfinished_name(one.path);
            fail_if_injected("local_reserve", unfinished);
            write_image(unfinished, image);
            reserve_blocks(unfinished, *one.share);
        }
    }

    // Each rank's blocks to its partner, which has memory for them; nothing is held twice on the way.
    void send_to_partners() {
        constexpr std::uint64_t most_a_round = std::uint64_t{64} << 20;
        const auto blocks_a_round = static_cast<std::size_t>(
            std::max<std::uint64_t>(1, most_a_round / writings.front().share->layout().block_bytes));
        std::size_t most = 0;
        for (const Writing& one : writings) most = std::max(most, one.share->blocks().size());
        // As many rounds on every rank: the watchdog compares how far each is.
        most = static_cast<std::size_t>(group->all_maximum(static_cast<std::int64_t>(most)));
        for (std::size_t first = 0; first < most; first += blocks_a_round) {
            std::vector<cluster::HostMessage> receives, sends;
            for (const Writing& one : writings) {
                const bool own = one.owner == rank();
                if (own && partner == nobody) continue;
                for (std::size_t i = first; i < std::min(first + blocks_a_round, one.share->blocks().size()); ++i)
                    (own ? sends : receives)
                        .push_back({own ? partner : one.owner, one.share->block(i), one.share->blocks()[i].bytes});
            }
            group->exchange(receives, sends);
        }
    }

    std::optional<Error> failure() const {
        for (const Writing& one : writings)
            if (one.share->failure()) return one.share->failure();
        return std::nullopt;
    }

    // What a copy holds is what its owner wrote.
    std::optional<Failure> compare_with_owners() const {
        const std::uint64_t own = writings.front().share->digest();
        const std::vector<char> bytes = group->all_gather_bytes(&own, sizeof own);
        std::vector<std::uint64_t> all(static_cast<std::size_t>(group->size()));
        std::memcpy(all.data(), bytes.data(), bytes.size());
        return agree(caught([&] {
                         for (const Writing& one : writings) {
                             one.share->verify_borders();
                             if (one.share->digest() != all[static_cast<std::size_t>(one.owner)])
                                 throw fault_error("{}: the copy is not what rank {} wrote", one.path, one.owner);
                         }
                     }),
                     *group);
    }

    // On one rank of each node, while nothing is being written: what was left unfinished goes, and parts that do not
    // stay. The number of files that went.
    template <class Stays>
    std::int64_t remove_parts(const Stays& stays) const {
        std::int64_t removed = 0, kept = 0;
        if (!first_of_node()) return removed;
        std::string why;
        const auto problem = caught([&] {
            std::vector<std::string> paths = list_parts(place.folder);
            std::erase_if(paths, stays);
            for (std::string& path : list_unfinished_parts(place.folder)) paths.push_back(std::move(path));
            for (const std::string& path : paths) {
                std::error_code error;
                if (fs::remove(path, error)) ++removed;
                if (error && kept++ == 0) why = fmt::format("{} cannot be removed: {}", path, error.message());
            }
        });
        if (problem) log::warning("{}", problem->what());
        if (kept > 0) log::warning("{}{}", why, kept > 1 ? fmt::format("; nor can {} more", kept - 1) : "");
        return removed;
    }

    void log_removed(std::int64_t removed, const char* which) const {
        const auto all = static_cast<std::int64_t>(group->all_sum(static_cast<double>(removed)));
        if (all > 0 && rank() == 0)
            log::info("removed {} part{} of local checkpoints from {}: {}", all, plural(all), place.folder, which);
    }
};

LocalWriter::LocalWriter(LocalPlace place, std::vector<Course> courses, std::vector<std::int64_t> complete,
                         std::unique_ptr<cluster::HostGroup> group)
    : implementation_(std::make_unique<Implementation>()) {
    auto& self = *implementation_;
    self.place = std::move(place);
    self.course = courses.back().name;
    self.complete = std::move(complete);
    self.group = std::move(group);
    if (self.place.partner) {
        const std::vector<int> all = partners(self.place.nodes);
        self.partner = all[static_cast<std::size_t>(self.rank())];
        for (int rank = 0; rank < self.group->size(); ++rank)
            if (all[static_cast<std::size_t>(rank)] == self.rank()) self.wards.push_back(rank);
    }
    const std::int64_t removed = self.remove_parts([&](const std::string& path) {
        try {
            const Header header = read_header(path);
            return counts(courses, header.of_parts.course, header.contents.state.step);
        } catch (const Error& error) {
            return error.code() != ExitCode::damaged;
        }
    });
    self.log_removed(removed, "they are obsolete (unfinished, or left by an earlier course or run)");
}

LocalWriter::~LocalWriter() {
    for (Writing& one : implementation_->writings) {
        one.share.reset();
        remove_quietly(unfinished_name(one.path));
    }
}

bool LocalWriter::begin(const Contents& contents, const std::vector<Entry>& entries) {
    if (progress() != Writer::Progress::idle) commit();
    auto& self = *implementation_;
    self.begun = seconds_now();
    cluster::HostGroup& group = *self.group;
    const auto tensors = union_of_tensors(entries, group);
    self.step = contents.state.step;
    PartHeader header;
    std::string text;
    auto failure = agree(caught([&] {
                             if (self.rank() != 0) return;
                             header = make_part_header(contents, tensors, {group.size(), self.course});
                             text = layout_to_text(header.layout);
                         }),
                         group);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    const Layout layout = layout_from_text(group.broadcast_text(std::move(text), 0));
    header.image = group.broadcast_text(std::move(header.image), 0);
    const Holdings holdings = gather_holdings(layout.places, entries, group);

    const auto add = [&](int owner, const char* fault_point) {
        const std::string path = self.path_of(owner);
        self.writings.push_back({path, owner,
                                 std::make_unique<Share>(unfinished_name(path), layout, owner, group.size(),
                                                         config::CheckpointVerify::read, fault_point)});
    };
    add(self.rank(), "local_write");
    for (const int ward : self.wards) add(ward, "local_copy_write");
    Share& own = *self.writings.front().share;
    Collector collector(own.layout(), holdings.spreads, entries, group, elements_a_round(group.size()));
    failure = agree(caught([&] { collector.check_cover(); }), group);
    if (failure) throw failure->error;
    failure = agree(caught([&] { self.make_files(header.image); }), group);
    if (!failure) failure = own.collect(collector);
    if (!failure)
        failure = agree(caught([&] {
                            for (const Writing& one : self.writings)
                                if (one.owner != self.rank()) one.share->allocate();
                            static_cast<void>(fault::at("local_send"));
                        }),
                        group);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.send_to_partners();
    for (const Writing& one : self.writings) one.share->start();
    self.left = seconds_now();
    return true;
}

Writer::Progress LocalWriter::progress() const {
    using Progress = Writer::Progress;
    Progress progress = implementation_->writings.empty() ? Progress::idle : Progress::written;
    for (const Writing& one : implementation_->writings) {
        const Progress of_one = one.share->progress();
        if (of_one == Progress::writing) return of_one;
        if (of_one == Progress::failed) progress = of_one;
    }
    return progress;
}

bool LocalWriter::commit() {
    auto& self = *implementation_;
    if (self.writings.empty()) return false;
    cluster::HostGroup& group = *self.group;
    const double called = seconds_now();
    double written = self.left, bytes = 0;
    for (const Writing& one : self.writings) {
        one.share->wait();
        written = std::max(written, one.share->ended());
        for (const ChecksumBlock& block : one.share->blocks()) bytes += static_cast<double>(block.bytes);
    }
    const double waited = seconds_now();
    auto failure = agree(self.failure(), group);
    if (!failure) failure = self.compare_with_owners();
    if (!failure)
        failure = agree(caught([&] {
                            for (Writing& one : self.writings) {
                                one.share.reset();  // closes the file
                                publish(one.path,
                                        one.owner == self.rank() ? "local_before_rename" : "local_copy_before_rename");
                            }
                        }),
                        group);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.writings.clear();
    self.failures = 0;
    self.complete.push_back(self.step);
    if (self.complete.size() > most_kept) self.complete.erase(self.complete.begin(), self.complete.end() - most_kept);
    self.remove_parts([&](const std::string& path) {
        return std::find(self.complete.begin(), self.complete.end(), part_of(path)->step) != self.complete.end();
    });
    const double now = seconds_now(), still = self.left - self.begun + now - called;
    std::vector<double> slowest = {written - self.begun + now - waited, still};
    group.all_reduce(slowest, cluster::Reduce::maximum);
    self.cost = {static_cast<std::uint64_t>(group.all_sum(bytes)), std::max(slowest[0], slowest[1]), slowest[1]};
    return true;
}

const Writer::Cost& LocalWriter::cost() const {
    return implementation_->cost;
}

void LocalWriter::make_room(std::int64_t step) {
    auto& self = *implementation_;
    if (self.failures == 0 || !self.writings.empty()) return;
    if (std::erase_if(self.complete, [&](std::int64_t one) { return one < step; }) == 0) return;
    const std::int64_t removed = self.remove_parts([&](const std::string& path) {
        return std::find(self.complete.begin(), self.complete.end(), part_of(path)->step) != self.complete.end();
    });
    self.log_removed(removed, "a newer shared one exists, and no other local one could be written");
}

void LocalWriter::remove_all() {
    auto& self = *implementation_;
    for (Writing& one : self.writings) {
        one.share.reset();
        remove_quietly(unfinished_name(one.path));
    }
    self.writings.clear();
    self.complete.clear();
    self.group->barrier();  // every rank's own are closed
    self.log_removed(self.remove_parts([](const std::string&) { return false; }), "the run has finished");
}

}  // namespace lockstep::checkpoint
