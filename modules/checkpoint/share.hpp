// One rank's part of a checkpoint: the values of its share of the blocks, and the threads that write it and read it
// back in the background. Only checkpoint/ includes this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/direct_file.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/stretches.hpp"
#include "checkpoint/transfer.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {

class Share {
  public:
    // `fault_point`: that at which tests let its writing fail (base/fault.hpp).
    Share(std::string path, Layout layout, int rank, int ranks,
          config::CheckpointVerify verify = config::CheckpointVerify::read,
          const char* fault_point = "checkpoint_write");
    // Another pace than the share's size asks for; for tests.
    Share(std::string path, Layout layout, int rank, int ranks, config::CheckpointVerify verify, const Pace& pace,
          const char* fault_point = "checkpoint_write");
    const Layout& layout() const { return layout_; }
    // Waits for the threads; unless they were waited for before, the rest is not written.
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Collective: assembles this rank's blocks. Afterwards the tensors may change, if their values are copied; else
    // after release().
    std::optional<cluster::Failure> collect(Collector& collector, Values values = Values::copied);
    // Or they come from the rank whose share it is: memory for them, and each block's.
    void allocate();
    const std::vector<ChecksumBlock>& blocks() const { return blocks_; }
    float* block(std::size_t number) const { return snapshot_.block(number); }  // its copy
    // Writes them in the background and reads each back, if that is asked for. Errors are kept for failure().
    void start();

    // Whether the tensors may not change yet.
    bool needs_tensors() const;
    // Copies what lies in tensors and is not yet written, the last of it first and at most `most_kept_late` bytes, and
    // waits until the rest is written. Afterwards the tensors may change.
    void release();
    std::uint64_t copied_bytes() const { return copied_bytes_; }  // the most memory that copies have taken

    Writer::Progress progress() const { return progress_; }
    // After wait():
    void wait();
    const std::optional<Error>& failure() const { return failure_; }
    std::uint64_t digest() const;            // of its checksums: alike for the same share of the same tensors
    double ended() const { return ended_; }  // seconds_now()
    // Each block was read back once on the disk. When all ranks are done, what shares a page with another rank's part
    // is read again: both ends of this share, and the checksums. Nothing where nothing is read back.
    void verify_borders() const;

  private:
    // A stretch that a thread is to write. While `live`, the tensors may not change.
    class Taken;
    void run();
    void on_threads(const std::function<void()>& work);
    void stop();
    void forget_values();
    void write();
    void write(Taken& taken, AlignedMemory& memory);
    void obey_injected(const Stretch& stretch);
    void write_checksums(const Stretch& stretch);
    void read_back();

    std::string path_;
    Layout layout_;
    const char* fault_point_;
    std::vector<ChecksumBlock> blocks_;
    config::CheckpointVerify verify_;
    Pace pace_;
    std::vector<Stretch> written_, read_back_;  // how the blocks are joined for either
    Snapshot snapshot_;
    std::atomic<std::uint64_t> copied_bytes_ = 0;
    DirectFile file_;
    std::vector<std::uint64_t> checksums_;  // per block

    // Stretches are taken in order. Why no thread sees a value that is half updated: a tensor changes only after
    // release(), and release() returns only when each stretch has been gathered from the tensors by the thread that
    // took it (next_, gathering_), or is among those from kept_from_ on, which have been copied and which no thread
    // takes before that (keeping_). Both are seen under the lock, so that all reading comes before any change.
    mutable std::mutex lock_;  // guards these
    std::condition_variable changed_;
    std::size_t next_ = 0;       // stretch to be taken
    std::size_t kept_from_ = 0;  // stretches from here on need no tensors
    bool keeping_ = false;       // they are being copied
    int gathering_ = 0;          // threads that read tensors
    bool waited_for_ = false;    // somebody waits for the threads
    std::optional<Error> first_failure_;

    std::atomic<std::uint64_t> not_synced_ = 0;  // bytes in the page cache
    std::atomic<bool> past_the_cache_ = true;    // until the file system turns out to use the page cache anyway
    std::atomic<std::size_t> next_to_read_ = 0;  // of read_back_
    std::atomic<bool> stopped_ = false;          // the rest need not be written
    std::optional<Error> failure_;
    double ended_ = 0;
    std::atomic<Writer::Progress> progress_ = Writer::Progress::writing;
    std::thread thread_;
};

}  // namespace lockstep::checkpoint
