#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/share.hpp"
#include "checkpoint/stretches.hpp"
#include "checkpoint/transfer.hpp"
#include "checkpoint/unfinished.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {

using cluster::agree;
using cluster::caught;
using cluster::Failure;

struct Writer::Implementation {
    std::string folder;
    std::int64_t keep;
    std::unique_ptr<cluster::HostGroup> group;
    config::CheckpointVerify verify;

    std::unique_ptr<Share> share;  // the pending checkpoint's
    std::int64_t step = 0;
    std::string path;
    bool last_was_written = true;  // of those begun
    double begun = 0, left = 0;    // when begin() for the last one was called and returned, seconds_now()
    double released = 0;           // seconds that release() took since then
    Cost cost;

    bool first() const { return group->rank() == 0; }

    // Discards the pending checkpoint.
    void give_up(const Failure& failure) {
        last_was_written = false;
        if (!first()) return;
        remove_quietly(unfinished_name(path));
        const std::string where = group->size() > 1 ? fmt::format(" on rank {}", failure.rank) : "";
        log::warning(
            "the checkpoint of step {} was not written{}: {}; training continues, earlier checkpoints are kept", step,
            where, failure.error.what());
    }
};

std::uint64_t bytes_while_writing(std::uint64_t share, Values values) {
    if (values == Values::copied) return share;
    // What threads have gathered is not copied, too.
    const Pace pace = pace_of_bytes(share);
    return std::min(share, most_kept_late + static_cast<std::uint64_t>(pace.threads) * pace.stretch_bytes);
}

Writer::Writer(std::string folder, std::int64_t keep, std::unique_ptr<cluster::HostGroup> group,
               config::CheckpointVerify verify)
    : implementation_(std::make_unique<Implementation>()) {
    auto& self = *implementation_;
    self.folder = std::move(folder);
    self.keep = keep;
    self.group = std::move(group);
    self.verify = verify;
    cluster::on_root(*self.group, [&] {
        for (const auto& path : remove_unfinished(self.folder))
            log::info("removed {}, left unfinished by an earlier launch", path);
    });
}

Writer::~Writer() {
    auto& self = *implementation_;
    if (!self.share) return;
    self.share.reset();
    if (self.first()) remove_quietly(unfinished_name(self.path));
}

bool Writer::begin(const Contents& contents, const std::vector<Entry>& entries, Values values) {
    finish();
    auto& self = *implementation_;
    self.begun = seconds_now();
    self.released = 0;
    const auto tensors = union_of_tensors(entries, *self.group);
    self.step = contents.state.step;
    self.path = (std::filesystem::path(self.folder) / file_name(self.step)).string();
    std::string text;
    auto failure = agree(caught([&] {
                             if (self.first()) text = layout_to_text(lay_out(self.path, contents, tensors));
                         }),
                         *self.group);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    Layout layout = layout_from_text(self.group->broadcast_text(std::move(text), 0));
    const Holdings holdings = gather_holdings(layout.places, entries, *self.group);
    auto share = std::make_unique<Share>(unfinished_name(self.path), std::move(layout), self.group->rank(),
                                         self.group->size(), self.verify);
    Collector collector(share->layout(), holdings.spreads, entries, *self.group, elements_a_round(self.group->size()));
    failure = agree(caught([&] { collector.check_cover(); }), *self.group);
    if (failure) {
        if (self.first()) remove_quietly(unfinished_name(self.path));
        throw failure->error;
    }
    failure = share->collect(collector, values);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.share = std::move(share);
    self.share->start();
    self.left = seconds_now();
    return true;
}

Writer::Progress Writer::progress() const {
    return implementation_->share ? implementation_->share->progress() : Progress::idle;
}

bool Writer::needs_values() const {
    return implementation_->share && implementation_->share->needs_tensors();
}

double Writer::release() {
    auto& self = *implementation_;
    if (!self.share) return 0;
    const double called = seconds_now();
    self.share->release();
    const double seconds = seconds_now() - called;
    self.released += seconds;
    return seconds;
}

bool Writer::commit() {
    auto& self = *implementation_;
    if (!self.share) return false;
    const double called = seconds_now();
    self.share->wait();
    const double written = std::max(self.share->ended(), self.left), waited = seconds_now();
    const std::uint64_t bytes = self.share->layout().file_bytes, copied = self.share->copied_bytes();
    auto failure = agree(self.share->failure(), *self.group);
    if (!failure) failure = agree(caught([&] { self.share->verify_borders(); }), *self.group);
    self.share.reset();
    if (!failure)
        failure = agree(caught([&] {
                            if (self.first()) publish(self.path);
                        }),
                        *self.group);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.last_was_written = true;
    const double now = seconds_now();
    const double still = self.left - self.begun + self.released + now - called;
    // Of the slowest rank: the file is complete when all have written.
    std::vector<double> slowest = {written - self.begun + now - waited, still};
    self.group->all_reduce(slowest, cluster::Reduce::maximum);
    self.cost = {bytes, std::max(slowest[0], slowest[1]), slowest[1], copied};
    if (self.first()) {
        const auto error = caught([&] { remove_older(self.folder, self.step, self.keep); });
        if (error) log::warning("{}", error->what());
    }
    return true;
}

const Writer::Cost& Writer::cost() const {
    return implementation_->cost;
}

bool Writer::write_now(const Contents& contents, const std::vector<Entry>& entries) {
    return begin(contents, entries, Values::left_in_place) && commit();
}

bool Writer::finish() {
    if (implementation_->share) commit();
    return implementation_->last_was_written;
}

}  // namespace lockstep::checkpoint
