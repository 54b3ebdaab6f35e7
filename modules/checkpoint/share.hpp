// One rank's part of a checkpoint: a copy of its share of the blocks, and the threads that write it and read it back in
// the background. Only checkpoint/ includes this.
#pragma once

#include <atomic>
#include <condition_variable>
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
#include "checkpoint/transfer.hpp"
#include "cluster/agree.hpp"

namespace lockstep::checkpoint {

class Share {
  public:
    // `fault_point`: that at which tests let its writing fail (base/fault.hpp).
    Share(std::string path, Layout layout, int rank, int ranks, const char* fault_point = "checkpoint_write");
    const Layout& layout() const { return layout_; }
    // Waits for the threads; unless they were waited for before, the rest is not written.
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Collective: assembles this rank's blocks. Afterwards the tensors may change.
    std::optional<cluster::Failure> collect(Collector& collector) { return collector.collect(snapshot_); }
    // Or they come from the rank whose share it is: memory for them, and each block's.
    void allocate() { snapshot_ = Snapshot(blocks_); }
    const std::vector<ChecksumBlock>& blocks() const { return blocks_; }
    float* block(std::size_t number) const { return snapshot_.block(number); }
    // Writes them in the background and reads each back. Errors are kept for failure().
    void start();

    Writer::Progress progress() const { return progress_; }
    // After wait():
    void wait();
    const std::optional<Error>& failure() const { return failure_; }
    std::uint64_t digest() const;            // of its checksums: alike for the same share of the same tensors
    double ended() const { return ended_; }  // seconds_now()
    // Each block was read back once on the disk. When all ranks are done, what shares a page with another rank's part
    // is read again: both ends of this share, and the checksums.
    void verify_borders() const;

  private:
    void run();
    void write();
    void read_back_behind();
    void read_back_remaining() const;
    void count_as_written(bool directly);
    void end_writing();

    std::string path_;
    Layout layout_;
    const char* fault_point_;
    std::vector<ChecksumBlock> blocks_;
    Snapshot snapshot_;
    DirectFile file_;
    std::vector<std::uint64_t> checksums_;  // per block

    std::mutex lock_;  // guards the next four until writing has ended
    std::condition_variable changed_;
    std::size_t written_ = 0;     // blocks
    std::vector<bool> directly_;  // per written block: bypassed the page cache, so it can be read back at once
    bool writing_ended_ = false;

    std::atomic<bool> stopped_ = false;  // the rest need not be written
    std::optional<Error> failure_;
    double ended_ = 0;
    std::atomic<Writer::Progress> progress_ = Writer::Progress::writing;
    std::thread thread_;
};

}  // namespace lockstep::checkpoint
