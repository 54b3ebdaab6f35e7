#include "checkpoint/share.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "base/clock.hpp"
#include "base/fault.hpp"
#include "base/hash.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::checkpoint {

using cluster::caught;
using config::CheckpointVerify;

class Share::Taken {
  public:
    Taken(Share& share, std::size_t number, bool live) : share_(share), number_(number), live_(live) {}
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    ~Taken() { gathered(); }
    std::size_t number() const { return number_; }
    bool live() const { return live_; }
    // The tensors are not read any more.
    void gathered() {
        if (!std::exchange(live_, false)) return;
        const std::lock_guard<std::mutex> guard(share_.lock_);
        --share_.gathering_;
        share_.changed_.notify_all();
    }

  private:
    Share& share_;
    std::size_t number_;
    bool live_;
};

Share::Share(std::string path, Layout layout, int rank, int ranks, CheckpointVerify verify, const char* fault_point)
    : Share(path, layout, rank, ranks, verify, pace_of(share_of_blocks(layout, rank, ranks)), fault_point) {}

Share::Share(std::string path, Layout layout, int rank, int ranks, CheckpointVerify verify, const Pace& pace,
             const char* fault_point)
    : path_(std::move(path)),
      layout_(std::move(layout)),
      fault_point_(fault_point),
      blocks_(share_of_blocks(layout_, rank, ranks)),
      verify_(verify),
      pace_(pace),
      written_(stretches_to_write(layout_, blocks_, pace.stretch_bytes)),
      read_back_(stretches_to_read(layout_, blocks_, pace.stretch_bytes)),
      checksums_(blocks_.size()) {}

Share::~Share() {
    stop();
    wait();
}

void Share::stop() {
    const std::lock_guard<std::mutex> guard(lock_);
    stopped_ = true;
    changed_.notify_all();
}

void Share::wait() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        waited_for_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

std::optional<cluster::Failure> Share::collect(Collector& collector, Values values) {
    auto failure = collector.collect(snapshot_, values);
    if (values == Values::left_in_place) kept_from_ = written_.size();
    copied_bytes_ = snapshot_.bytes();
    return failure;
}

void Share::allocate() {
    snapshot_ = Snapshot(blocks_);
    copied_bytes_ = snapshot_.bytes();
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
    stop();
    progress_ = Writer::Progress::failed;
}

// The threads mostly sleep in the kernel.
void Share::run() {
    cluster::bind_helper_thread();
    failure_ = caught([&] {
        if (blocks_.empty()) fail_if_injected(fault_point_, path_);
        on_threads([&] { write(); });
        forget_values();
        if (!stopped_) file_.sync_data();
        if (verify_ == CheckpointVerify::read) on_threads([&] { read_back(); });
    });
    if (failure_) stop();
    forget_values();
    ended_ = seconds_now();
    progress_ = failure_ ? Writer::Progress::failed : Writer::Progress::written;
}

// No thread writes any more; release() may still copy.
void Share::forget_values() {
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return !keeping_; });
    snapshot_ = {};
}

// Runs it on every thread of the pace, the calling one among them. What fails first stops all and is thrown.
void Share::on_threads(const std::function<void()>& work) {
    const auto run_one = [&] {
        auto failure = caught(work);
        if (!failure) return;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            if (!first_failure_) first_failure_ = std::move(failure);
        }
        stop();
    };
    std::vector<std::thread> others;
    try {
        for (int i = 1; i < pace_.threads; ++i)
            others.emplace_back([&] {
                cluster::bind_helper_thread();
                run_one();
            });
    } catch (const std::system_error&) {  // fewer threads do the same
    }
    run_one();
    for (std::thread& other : others) other.join();
    if (first_failure_) throw *first_failure_;
}

void Share::write() {
    AlignedMemory memory;
    for (;;) {
        std::optional<Taken> taken;
        {
            std::unique_lock<std::mutex> guard(lock_);
            changed_.wait(guard, [&] { return stopped_ || !keeping_ || next_ < kept_from_; });
            if (stopped_ || next_ == written_.size()) return;
            const bool live = next_ < kept_from_;
            if (live) ++gathering_;
            taken.emplace(*this, next_++, live);
        }
        write(*taken, memory);
    }
}

void Share::write(Taken& taken, AlignedMemory& memory) {
    constexpr std::uint64_t synced_at_a_time = std::uint64_t{1} << 30;  // keeps each sync short
    if (taken.number() == written_.size() / 2) fail_if_injected(fault_point_, path_);
    const Stretch& stretch = written_[taken.number()];
    cluster::flight_recorder().beat();  // a rank may be waiting for this thread
    if (taken.live()) obey_injected(stretch);
    float* data = snapshot_.together(stretch.first, stretch.last);
    if (!data) {
        if (!memory) memory = allocate_aligned(largest(written_), huge_page);
        data = memory.get();
        for (std::size_t i = stretch.first; i < stretch.last; ++i)
            snapshot_.gather(i, data + (offset_of(layout_, blocks_[i]) - stretch.offset) / sizeof(float));
    }
    taken.gathered();
    for (std::size_t i = stretch.first; i < stretch.last; ++i) {
        const float* block = data + (offset_of(layout_, blocks_[i]) - stretch.offset) / sizeof(float);
        checksums_[i] = hash64(block, blocks_[i].bytes);
    }
    write_checksums(stretch);
    if (taken.number() == 0 && fault::at("checkpoint_data") == "damage") *data = 1.0f - *data;
    using Direct = DirectFile::Direct;
    const Direct moved = past_the_cache_ ? file_.write_directly(data, stretch.bytes, stretch.offset) : Direct::refused;
    if (moved == Direct::refused) file_.write(data, stretch.bytes, stretch.offset);
    if (moved == Direct::cached) past_the_cache_ = false;
    if (moved == Direct::done || (not_synced_ += stretch.bytes) < synced_at_a_time) return;
    not_synced_ = 0;
    file_.sync_data();
}

// "slow": takes its time; "late": waits until the tensors are to change or the writing is waited for.
void Share::obey_injected(const Stretch& stretch) {
    const std::string word = fault::at("checkpoint_gather");
    if (word == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20) * (stretch.last - stretch.first));
    if (word != "late") return;
    std::unique_lock<std::mutex> guard(lock_);
    changed_.wait(guard, [&] { return waited_for_ || stopped_; });
}

// In one call where they follow each other: those of one tensor.
void Share::write_checksums(const Stretch& stretch) {
    for (std::size_t first = stretch.first, last; first < stretch.last; first = last) {
        last = first + 1;
        while (last < stretch.last && blocks_[last].place == blocks_[first].place) ++last;
        file_.write(&checksums_[first], (last - first) * sizeof checksums_[first],
                    checksum_offset_of(layout_, blocks_[first]));
    }
}

bool Share::needs_tensors() const {
    const std::lock_guard<std::mutex> guard(lock_);
    return gathering_ > 0 || (!stopped_ && next_ < kept_from_);
}

void Share::release() {
    std::unique_lock<std::mutex> guard(lock_);
    // From the end, since the threads come from the front.
    std::size_t from = kept_from_;
    std::uint64_t bytes = 0;
    for (std::size_t number = from; number > next_ && !stopped_; --number) {
        for (std::size_t i = written_[number - 1].first; i < written_[number - 1].last; ++i)
            bytes += snapshot_.live_bytes(i);
        if (bytes > most_kept_late) break;
        from = number - 1;
    }
    if (from < kept_from_) {
        const std::size_t until = std::exchange(kept_from_, from);
        keeping_ = true;
        guard.unlock();
        const auto no_memory = caught([&] { snapshot_.keep(written_[from].first, written_[until - 1].last); });
        guard.lock();
        keeping_ = false;
        if (no_memory) kept_from_ = until;  // all of it is waited for
        copied_bytes_ = snapshot_.bytes();
    }
    waited_for_ = true;
    changed_.notify_all();
    changed_.wait(guard, [&] { return gathering_ == 0 && (stopped_ || next_ >= kept_from_); });
}

// What was written is on the disk now, and comes from there.
void Share::read_back() {
    AlignedMemory memory;
    for (;;) {
        const std::size_t number = next_to_read_++;
        if (number >= read_back_.size() || stopped_) return;
        const Stretch& stretch = read_back_[number];
        if (!memory) memory = allocate_aligned(room_for_reading(read_back_), huge_page);
        cluster::flight_recorder().beat();
        forget_cached(file_, stretch.offset, stretch.bytes);
        const char* data = read_stretch(file_, stretch, memory.get());
        for (std::size_t i = stretch.first; i < stretch.last; ++i)
            check_block(path_, layout_, blocks_[i], data + (offset_of(layout_, blocks_[i]) - stretch.offset),
                        checksums_[i]);
    }
}

void Share::verify_borders() const {
    if (blocks_.empty() || verify_ == CheckpointVerify::written) return;
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
            throw fault_error("{}: /{} reads back with a different checksum than was written", path_,
                              layout_.places[blocks_[i].place].path);
    }
}

}  // namespace lockstep::checkpoint
