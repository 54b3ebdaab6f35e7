// Exclusive use of a folder by one launch at a time.
#pragma once

#include <string>

#include "base/open_file.hpp"

namespace lockstep::watch {

class RunLock {
  public:
    // Creates `folder` and locks the file `file` in it. Held by another launch: usage error that names it. A warning on
    // file systems without locks.
    RunLock(const std::string& folder, const std::string& file);
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;

  private:
    OpenFile file_;
};

}  // namespace lockstep::watch
