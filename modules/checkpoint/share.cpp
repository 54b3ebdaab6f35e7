#include "checkpoint/share.hpp"

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/hash.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::checkpoint {

using cluster::caught;

Share::Share(std::string path, Layout layout, int rank, int ranks, const char* fault_point)
    : path_(std::move(path)),
      layout_(std::move(layout)),
      fault_point_(fault_point),
      blocks_(share_of_blocks(layout_, rank, ranks)),
      checksums_(blocks_.size()),
      directly_(blocks_.size()) {}

Share::~Share() {
    stopped_ = true;
    wait();
}

void Share::wait() {
    if (thread_.joinable()) thread_.join();
}

std::uint64_t Share::digest() const {
    return hash64(checksums_.data(), checksums_.size() * sizeof checksums_[0]);
}

void Share::start() {
    auto failure = caught([&] {
        file_ = DirectFile(path_);
        thread_ = std::thread([this] { run(); });
    });
    if (!failure) return;  // from here on failure_ belongs to the thread
    failure_ = std::move(failure);
    progress_ = Writer::Progress::failed;
}

// Two threads that mostly sleep in the kernel: one writes, the other reads back behind it.
void Share::run() {
    cluster::bind_helper_thread();
    std::optional<Error> failure_of_reader;
    failure_ = caught([&] {
        std::thread reader([&] {
            cluster::bind_helper_thread();
            failure_of_reader = caught([&] { read_back_behind(); });
            if (failure_of_reader) stopped_ = true;
        });
        const auto failure_of_writer = caught([&] { write(); });
        end_writing();
        reader.join();
        if (failure_of_writer) throw *failure_of_writer;
        if (failure_of_reader) throw *failure_of_reader;
        if (!stopped_) file_.sync_data();
        read_back_remaining();
    });
    snapshot_ = {};
    ended_ = seconds_now();
    progress_ = failure_ ? Writer::Progress::failed : Writer::Progress::written;
}

void Share::write() {
    if (blocks_.empty()) fail_if_injected(fault_point_, path_);
    constexpr std::uint64_t synced_at_a_time = std::uint64_t{1} << 30;  // keeps each sync short
    std::uint64_t not_synced = 0;
    bool past_the_cache = true;  // until the file system turns out to use the page cache anyway
    for (std::size_t i = 0; i < blocks_.size() && !stopped_; ++i) {
        if (i == blocks_.size() / 2) fail_if_injected(fault_point_, path_);
        const ChecksumBlock& block = blocks_[i];
        float* data = snapshot_.block(i);
        const std::uint64_t offset = offset_of(layout_, block);
        cluster::flight_recorder().beat();  // a rank may be waiting for this thread
        checksums_[i] = hash64(data, block.bytes);
        file_.write(&checksums_[i], sizeof checksums_[i], checksum_offset_of(layout_, block));
        if (i == 0 && fault::at("checkpoint_data") == "damage") *data = 1.0f - *data;
        using Direct = DirectFile::Direct;
        const Direct moved = past_the_cache ? file_.write_directly(data, block.bytes, offset) : Direct::refused;
        if (moved == Direct::refused) file_.write(data, block.bytes, offset);
        if (moved == Direct::cached) past_the_cache = false;
        if (moved != Direct::done) not_synced += block.bytes;
        if (not_synced >= synced_at_a_time) {
            file_.sync_data();
            not_synced = 0;
        }
        count_as_written(moved == Direct::done);
    }
}

void Share::count_as_written(bool directly) {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        directly_[written_++] = directly;
    }
    changed_.notify_one();
}

void Share::end_writing() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        writing_ended_ = true;
    }
    changed_.notify_one();
}

// Direct writes can be read back from the disk at once.
void Share::read_back_behind() {
    const AlignedMemory read = allocate_aligned(blocks_.empty() ? 0 : layout_.block_bytes, huge_page);
    for (std::size_t i = 0; i < blocks_.size() && !stopped_; ++i) {
        {
            std::unique_lock<std::mutex> guard(lock_);
            changed_.wait(guard, [&] { return written_ > i || writing_ended_; });
            if (written_ <= i) return;
            if (!directly_[i]) continue;
        }
        cluster::flight_recorder().beat();
        if (file_.read_directly(read.get(), blocks_[i].bytes, offset_of(layout_, blocks_[i]))) {
            check_block(path_, layout_, blocks_[i], read.get(), checksums_[i]);
            continue;
        }
        const std::lock_guard<std::mutex> guard(lock_);
        directly_[i] = false;
    }
}

// Cached writes must be synced first, else they would not be read from the disk.
void Share::read_back_remaining() const {
    for (std::size_t i = 0; i < blocks_.size() && !stopped_; ++i) {
        if (directly_[i]) continue;
        cluster::flight_recorder().beat();
        forget_cached(file_, offset_of(layout_, blocks_[i]), blocks_[i].bytes);
        read_block(file_, path_, layout_, blocks_[i], snapshot_.block(i));
    }
}

void Share::verify_borders() const {
    if (blocks_.empty()) return;
    std::vector<char> buffer(layout_.block_bytes);
    for (const ChecksumBlock& block : {blocks_.front(), blocks_.back()}) {
        forget_cached(file_, offset_of(layout_, block), block.bytes);
        read_block(file_, path_, layout_, block, buffer.data());
    }
    // Drop all pages before reading any: reads prefetch their neighbours.
    for (const ChecksumBlock& block : blocks_)
        forget_cached(file_, checksum_offset_of(layout_, block), sizeof(std::uint64_t));
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        std::uint64_t stored = 0;
        file_.read(&stored, sizeof stored, checksum_offset_of(layout_, blocks_[i]));
        if (stored != checksums_[i])
            throw fault_error("{}: /{} reads back with another checksum than was written", path_,
                              layout_.places[blocks_[i].place].path);
    }
}

}  // namespace lockstep::checkpoint
