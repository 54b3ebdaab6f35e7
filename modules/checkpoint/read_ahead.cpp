#include "checkpoint/read_ahead.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "cluster/agree.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_recorder.hpp"

namespace lockstep::checkpoint {

ReadAhead::ReadAhead(const OpenFile& file, std::string path, const Layout& layout,
                     const std::vector<ChecksumBlock>& share)
    : ReadAhead(file, std::move(path), layout, share, pace_of(share)) {}

ReadAhead::ReadAhead(const OpenFile& file, std::string path, const Layout& layout,
                     const std::vector<ChecksumBlock>& share, const Pace& pace)
    : file_(file),
      path_(std::move(path)),
      layout_(layout),
      share_(share),
      pace_(pace),
      stretches_(stretches_to_read(layout, share, pace.stretch_bytes)),
      loaded_(stretches_.size()) {
    if (pace_.threads == 1) return;
    direct_.emplace(path_, DirectFile::Access::reading);
    try {
        for (int i = 0; i < pace_.threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {  // fewer threads do the same
    }
}

ReadAhead::~ReadAhead() {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        stopped_ = true;
        changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
}

std::size_t ReadAhead::stretch_of(std::size_t block) const {
    const auto behind =
        std::upper_bound(stretches_.begin(), stretches_.end(), block,
                         [](std::size_t number, const Stretch& stretch) { return number < stretch.first; });
    return static_cast<std::size_t>(behind - stretches_.begin()) - 1;
}

void ReadAhead::run() {
    cluster::bind_helper_thread();
    const auto ahead = static_cast<std::size_t>(2 * pace_.threads);
    std::unique_lock<std::mutex> guard(lock_);
    for (;;) {
        changed_.wait(guard, [&] {
            return stopped_ || next_ == stretches_.size() || next_ <= asked_for_ || next_ < forgotten_ + ahead;
        });
        if (stopped_ || next_ == stretches_.size()) return;
        const std::size_t number = next_++;
        guard.unlock();
        Loaded loaded = load(number);
        guard.lock();
        if (number >= forgotten_) loaded_[number] = std::move(loaded);
        changed_.notify_all();
    }
}

ReadAhead::Loaded ReadAhead::load(std::size_t number) {
    const Stretch& stretch = stretches_[number];
    Loaded loaded;
    loaded.failure = cluster::caught([&] {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            if (!spare_.empty()) {
                loaded.memory = std::move(spare_.back());
                spare_.pop_back();
            }
        }
        if (!loaded.memory) loaded.memory = allocate_aligned(room_for_reading(stretches_), huge_page);
        cluster::flight_recorder().beat();
        const char* data = reinterpret_cast<const char*>(loaded.memory.get());
        if (direct_)
            data = read_stretch(*direct_, stretch, loaded.memory.get());
        else
            file_.read(loaded.memory.get(), stretch.bytes, stretch.offset);
        for (std::size_t i = stretch.first; i < stretch.last; ++i) {
            const char* values = data + (offset_of(layout_, share_[i]) - stretch.offset);
            std::uint64_t checksum = 0;
            file_.read(&checksum, sizeof checksum, checksum_offset_of(layout_, share_[i]));
            check_block(path_, layout_, share_[i], values, checksum);
            if (reinterpret_cast<std::uintptr_t>(values) % alignof(float) != 0) {
                loaded.moved.push_back(allocate_aligned(share_[i].bytes, direct_alignment));
                std::memcpy(loaded.moved.back().get(), values, share_[i].bytes);
                values = reinterpret_cast<const char*>(loaded.moved.back().get());
            }
            loaded.blocks.push_back(reinterpret_cast<const float*>(values));
        }
    });
    return loaded;
}

const float* ReadAhead::block(std::size_t number) {
    const std::size_t wanted = stretch_of(number);
    std::unique_lock<std::mutex> guard(lock_);
    if (threads_.empty() && !loaded_[wanted]) {
        guard.unlock();
        Loaded loaded = load(wanted);
        guard.lock();
        loaded_[wanted] = std::move(loaded);
    }
    asked_for_ = std::max(asked_for_, wanted);
    changed_.notify_all();
    changed_.wait(guard, [&] { return loaded_[wanted].has_value(); });
    const Loaded& loaded = *loaded_[wanted];
    if (loaded.failure) throw *loaded.failure;
    return loaded.blocks[number - stretches_[wanted].first];
}

void ReadAhead::forget_before(std::size_t number) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (; forgotten_ < stretches_.size() && stretches_[forgotten_].last <= number; ++forgotten_) {
        if (!loaded_[forgotten_]) continue;
        if (loaded_[forgotten_]->memory) spare_.push_back(std::move(loaded_[forgotten_]->memory));
        loaded_[forgotten_].reset();
    }
    changed_.notify_all();
}

}  // namespace lockstep::checkpoint
