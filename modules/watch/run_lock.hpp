// A folder that one launch at a time may write to.
#pragma once

#include <string>

namespace lockstep::watch {

class RunLock {
  public:
    // Makes `folder` and locks the file `file` in it. Held by another launch: usage error that names it. Where the file
    // system knows no locks, a warning.
    RunLock(const std::string& folder, const std::string& file);
    ~RunLock();
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;

  private:
    int descriptor_ = -1;
};

}  // namespace lockstep::watch
