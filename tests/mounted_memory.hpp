// A small file system in memory, to be filled up.
#pragma once

#include <sys/mount.h>

#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep::tests {

// Mounted below `folder`, which is made, for the object's life. Where the machine does not allow it, a message says
// that the test is skipped.
class MountedMemory {
  public:
    MountedMemory(const std::filesystem::path& folder, const char* options) : folder_(folder) {
        std::filesystem::create_directories(folder);
        mounted_ = ::mount("none", folder.c_str(), "tmpfs", 0, options) == 0;
        if (!mounted_)
            BOOST_TEST_MESSAGE("skipped: no file system in memory can be mounted here: " << std::strerror(errno));
    }
    MountedMemory(const MountedMemory&) = delete;
    MountedMemory& operator=(const MountedMemory&) = delete;
    ~MountedMemory() {
        if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
    }
    bool mounted() const { return mounted_; }

  private:
    std::filesystem::path folder_;
    bool mounted_ = false;
};

}  // namespace lockstep::tests
