// Reads a share's blocks of a checkpoint and verifies them, ahead of whoever uses them. Only checkpoint/ includes this.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/direct_file.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/stretches.hpp"

namespace lockstep::checkpoint {

// Several threads read a large share, a stretch each at a time; a small one is read when it is asked for.
class ReadAhead {
  public:
    // The file, which is that of the path, the layout and the share outlive it.
    ReadAhead(const OpenFile& file, std::string path, const Layout& layout, const std::vector<ChecksumBlock>& share);
    ReadAhead(const OpenFile& file, std::string path, const Layout& layout, const std::vector<ChecksumBlock>& share,
              const Pace& pace);  // another one than the share's size asks for; for tests
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // The block's values, until it is forgotten. Throws what went wrong with it or with a block read together with it:
    // a damaged error names the tensor.
    const float* block(std::size_t number);
    // Blocks before this one are not asked for any more.
    void forget_before(std::size_t number);

  private:
    struct Loaded {
        AlignedMemory memory;
        std::vector<const float*> blocks;
        std::vector<AlignedMemory> moved;  // blocks that do not lie at a multiple of four bytes
        std::optional<Error> failure;
    };
    void run();
    Loaded load(std::size_t number);
    std::size_t stretch_of(std::size_t block) const;

    const OpenFile& file_;
    const std::string path_;
    const Layout& layout_;
    const std::vector<ChecksumBlock>& share_;
    const Pace pace_;
    const std::vector<Stretch> stretches_;
    std::optional<DirectFile> direct_;  // of large shares

    std::mutex lock_;  // guards these
    std::condition_variable changed_;
    std::vector<std::optional<Loaded>> loaded_;  // by stretch
    std::vector<AlignedMemory> spare_;
    std::size_t next_ = 0;       // stretch to be read
    std::size_t forgotten_ = 0;  // stretches before it
    std::size_t asked_for_ = 0;
    bool stopped_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace lockstep::checkpoint
