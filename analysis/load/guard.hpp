// Keeps damaged files from crashing the program. HDF5 1.10 may crash, or not come to an end, on a file whose
// structure is damaged. So a second process does the work; it notes in shared memory what it is reading, and the first
// one turns its death into a sentence and an exit code.
#pragma once

#include <functional>
#include <new>
#include <stdexcept>
#include <string>

#include "base/error.hpp"

namespace lockstep::analysis {

// Runs `work` in a separate process and returns its exit code. INT, TERM, HUP and QUIT are passed on to it. If it
// crashes, the exit code is 3, with the path, while it was reading, else 1. If a signal from outside ended it, this
// process ends by the same signal. With LOCKSTEP_NO_GUARD set, for debuggers, `work` runs in this process.
int guarded(const std::function<int()>& work);

// A file or folder that is not complete yet: it is removed if the process of `guarded` dies for any reason. One at a
// time.
void note_unfinished(const std::string& path);
void forget_unfinished();  // it is complete, or was removed

enum class Reading {
    structure,  // opening it: takes at most structure_seconds of CPU time
    rows,
};
inline constexpr int structure_seconds = 60;

// While it lives, this process reads `path`: a trace, or a run's folder.
class ReadingScope {
  public:
    ReadingScope(const std::string& path, Reading reading);
    ~ReadingScope();
    ReadingScope(const ReadingScope&) = delete;
    ReadingScope& operator=(const ReadingScope&) = delete;

  private:
    Reading reading_;
};

// What `work` returns. Sizes that only a damaged file can ask for become a sentence too.
template <class Work>
auto reading(const std::string& path, Reading what, const Work& work) {
    const ReadingScope scope(path, what);
    const auto refuse = [&] {
        return damaged_error("{} is damaged or too large: reading it needs too much memory", path);
    };
    try {
        return work();
    } catch (const std::bad_alloc&) {
        throw refuse();
    } catch (const std::length_error&) {
        throw refuse();
    }
}

}  // namespace lockstep::analysis
