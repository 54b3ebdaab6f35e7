#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "base/fault.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/holdings.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/transfer.hpp"
#include "cluster/agree.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::checkpoint {

using cluster::agree;
using cluster::caught;
using cluster::Failure;

namespace {

constexpr std::int64_t least_kept = 2;  // so that one is left when the newest is found damaged

void remove_quietly(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
}

// The injected fault of a test, in the words of the system.
void fail_if_injected(std::string_view point, const std::string& path) {
    if (fault::at(point) != "enospc") return;
    errno = ENOSPC;
    throw fault_error("{} cannot be written: {}", path, system_error_text());
}

// Rank 0: the file with all its metadata, and room on the disk for the rest.
Layout lay_out(const std::string& path, const Contents& contents, const std::vector<TensorInfo>& tensors) {
    constexpr std::uint64_t fixed = std::uint64_t{1} << 20, per_tensor = 4096;
    const std::uint64_t metadata =
        fixed + per_tensor * tensors.size() + contents.run_description.size() + contents.tokenizer_model.size();
    fail_if_injected("checkpoint_reserve", path);
    // HDF5 cannot let go of a file that it could not write whole, so room for its part is looked for before it begins.
    OpenFile::create(path).reserve(metadata);
    Layout layout = write_header(path, contents, tensors);
    OpenFile file = OpenFile::for_writing(path);
    file.reserve(layout.file_bytes);
    file.sync();
    file.close();
    return layout;
}

// This rank's part of one checkpoint: a copy of its share of the blocks, and the thread that writes it.
class Share {
  public:
    Share(std::string path, Layout layout, int rank, int ranks)
        : path_(std::move(path)), layout_(std::move(layout)), blocks_(share_of_blocks(layout_, rank, ranks)) {}
    const Layout& layout() const { return layout_; }
    // Waits for the thread; when nobody has waited for it before, the rest is not written.
    ~Share() {
        abandoned_ = true;
        if (thread_.joinable()) thread_.join();
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Collective: brings this rank's blocks together. Afterwards the tensors may change.
    std::optional<Failure> collect(Collector& collector) { return collector.collect(snapshot_); }
    // Writes them beside the caller. What fails is kept for failure().
    void start() {
        auto failure = caught([&] {
            file_ = OpenFile::for_writing(path_);
            thread_ = std::thread([this] { run(); });
        });
        if (!failure) return;  // from here on failure_ is the thread's
        failure_ = std::move(failure);
        progress_ = Writer::Progress::failed;
    }

    Writer::Progress progress() const { return progress_; }
    const std::optional<Error>& failure() const { return failure_; }  // once waited for
    void wait() {
        if (thread_.joinable()) thread_.join();
    }

    // Every block was read back as soon as it was written. Once all ranks are done, what shares a page with another
    // rank's part is read again: the ends of this share, and the checksums.
    void verify_borders() const {
        if (blocks_.empty()) return;
        std::vector<char> buffer(layout_.block_bytes);
        for (const Block& block : {blocks_.front(), blocks_.back()}) {
            file_.forget_cached(offset_of(layout_, block), block.bytes);
            read_block(file_, path_, layout_, block, buffer.data());
        }
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            std::uint64_t stored = 0;
            file_.forget_cached(checksum_offset_of(layout_, blocks_[i]), sizeof stored);
            file_.read(&stored, sizeof stored, checksum_offset_of(layout_, blocks_[i]));
            if (stored != checksums_[i])
                throw fault_error("{}: the checksum of /{} that was read back is not the one written", path_,
                                  layout_.places[blocks_[i].place].path);
        }
    }

  private:
    void run() {
        cluster::bind_helper_thread();
        failure_ = caught([&] {
            write();
            if (!abandoned_) file_.sync_data();
            read_back();
        });
        snapshot_.reset();
        progress_ = failure_ ? Writer::Progress::failed : Writer::Progress::written;
    }

    void write() {
        if (blocks_.empty()) fail_if_injected("checkpoint_write", path_);
        constexpr std::uint64_t synced_at_a_time = std::uint64_t{1} << 30;  // so that no sync takes long by itself
        std::uint64_t not_synced = 0;
        const float* next = snapshot_.get();
        for (std::size_t i = 0; i < blocks_.size() && !abandoned_; ++i) {
            if (i == blocks_.size() / 2) fail_if_injected("checkpoint_write", path_);
            const Block& block = blocks_[i];
            cluster::flight_recorder().beat();  // a rank may wait for this thread
            checksums_.push_back(hash64(next, block.bytes));
            file_.write(next, block.bytes, offset_of(layout_, block));
            next += block.bytes / sizeof(float);
            not_synced += block.bytes;
            if (not_synced >= synced_at_a_time) {
                file_.sync_data();
                not_synced = 0;
            }
            file_.write(&checksums_.back(), sizeof checksums_.back(), checksum_offset_of(layout_, block));
        }
    }

    void read_back() const {
        std::vector<char> buffer(blocks_.empty() ? 0 : layout_.block_bytes);
        for (const Block& block : blocks_) {
            if (abandoned_) return;
            cluster::flight_recorder().beat();
            file_.forget_cached(offset_of(layout_, block), block.bytes);
            read_block(file_, path_, layout_, block, buffer.data());
        }
    }

    std::string path_;
    Layout layout_;
    std::vector<Block> blocks_;
    std::vector<std::uint64_t> checksums_;  // of each block
    std::unique_ptr<float[]> snapshot_;     // the blocks, one behind another
    OpenFile file_;
    std::optional<Error> failure_;
    std::atomic<Writer::Progress> progress_ = Writer::Progress::writing;
    std::atomic<bool> abandoned_ = false;
    std::thread thread_;
};

}  // namespace

struct Writer::Implementation {
    std::string folder;
    std::int64_t keep;
    std::unique_ptr<cluster::Communicator> communicator;

    std::unique_ptr<Share> share;  // of the checkpoint under way
    std::int64_t step = 0;
    std::string path;
    bool last_was_written = true;  // of those begun

    bool first() const { return communicator->rank() == 0; }

    // Nothing stays of the one under way.
    void give_up(const Failure& failure) {
        last_was_written = false;
        if (!first()) return;
        remove_quietly(unfinished_name(path));
        const std::string where = communicator->size() > 1 ? fmt::format(" on rank {}", failure.rank) : "";
        log::warning("the checkpoint of step {} was not written{}: {}; training goes on, and earlier checkpoints stay",
                     step, where, failure.error.what());
    }

    void publish() const {
        // What was written must open as a checkpoint before it gets the name of one.
        static_cast<void>(read_header(unfinished_name(path)));
        OpenFile file = OpenFile::for_writing(unfinished_name(path));
        file.sync();
        file.close();
        static_cast<void>(fault::at("checkpoint_before_rename"));
        rename_file(unfinished_name(path), path);
        sync_folder(folder);
    }
};

Writer::Writer(std::string folder, std::int64_t keep, std::unique_ptr<cluster::Communicator> communicator)
    : implementation_(std::make_unique<Implementation>()) {
    auto& self = *implementation_;
    self.folder = std::move(folder);
    self.keep = std::max(keep, least_kept);
    self.communicator = std::move(communicator);
    cluster::on_root(*self.communicator, [&] {
        for (const auto& path : remove_unfinished(self.folder))
            log::info("removed {}, which an earlier launch did not finish", path);
    });
}

Writer::~Writer() {
    auto& self = *implementation_;
    if (!self.share) return;
    self.share.reset();
    if (self.first()) remove_quietly(unfinished_name(self.path));
}

bool Writer::begin(const Contents& contents, const std::vector<Entry>& entries) {
    finish();
    auto& self = *implementation_;
    const auto tensors = union_of_tensors(entries, *self.communicator);
    self.step = contents.state.step;
    self.path = (std::filesystem::path(self.folder) / file_name(self.step)).string();
    std::string text;
    auto failure = agree(caught([&] {
                             if (!self.first()) return;
                             std::error_code error;
                             std::filesystem::create_directories(self.folder, error);
                             if (error)
                                 throw fault_error("the folder {} cannot be made: {}", self.folder, error.message());
                             text = layout_to_text(lay_out(unfinished_name(self.path), contents, tensors));
                         }),
                         *self.communicator);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    Layout layout = layout_from_text(self.communicator->broadcast_text(std::move(text), 0));
    const Holdings holdings = gather_holdings(layout.places, entries, *self.communicator);
    auto share = std::make_unique<Share>(unfinished_name(self.path), std::move(layout), self.communicator->rank(),
                                         self.communicator->size());
    Collector collector(share->layout(), holdings.spreads, entries, *self.communicator,
                        elements_a_round(self.communicator->size()));
    failure = agree(caught([&] { collector.check_cover(); }), *self.communicator);
    if (failure) {
        if (self.first()) remove_quietly(unfinished_name(self.path));
        throw failure->error;
    }
    failure = share->collect(collector);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.share = std::move(share);
    self.share->start();
    return true;
}

Writer::Progress Writer::progress() const {
    return implementation_->share ? implementation_->share->progress() : Progress::idle;
}

bool Writer::commit() {
    auto& self = *implementation_;
    if (!self.share) return false;
    self.share->wait();
    auto failure = agree(self.share->failure(), *self.communicator);
    if (!failure) failure = agree(caught([&] { self.share->verify_borders(); }), *self.communicator);
    self.share.reset();
    if (!failure)
        failure = agree(caught([&] {
                            if (self.first()) self.publish();
                        }),
                        *self.communicator);
    if (failure) {
        self.give_up(*failure);
        return false;
    }
    self.last_was_written = true;
    if (self.first()) {
        const auto error = caught([&] { remove_older(self.folder, self.step, self.keep); });
        if (error) log::warning("{}", error->what());
    }
    return true;
}

bool Writer::write_now(const Contents& contents, const std::vector<Entry>& entries) {
    return begin(contents, entries) && commit();
}

bool Writer::finish() {
    if (implementation_->share) commit();
    return implementation_->last_was_written;
}

}  // namespace lockstep::checkpoint
