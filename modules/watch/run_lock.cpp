#include "watch/run_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/whole_file.hpp"

namespace lockstep::watch {

RunLock::RunLock(const std::string& folder, const std::string& file) {
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) throw usage_error("cannot create the folder {}: {}", folder, problem.message());
    const std::string path = folder + "/" + file;
    do descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0 && errno == ELOOP)
        throw usage_error("{} is a symbolic link, which is not followed; remove it", path);
    if (descriptor_ < 0) throw usage_error("{} cannot be written: {}", path, system_error_text());
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    // A record lock works across nodes where the file system supports it, and ends with the process.
    if (fcntl(descriptor_, F_SETLK, &whole) != 0) {
        if (errno != EACCES && errno != EAGAIN) {
            log::warning("{} cannot be locked ({}): a second launch of this run would not be detected", path,
                         system_error_text());
            return;
        }
        std::array<char, 256> holder{};
        const auto bytes = read(descriptor_, holder.data(), holder.size() - 1);
        close(descriptor_);
        throw usage_error("{} is in use by another launch of this run ({}); stop that one, or choose another run.name",
                          folder, bytes > 0 ? holder.data() : "an unknown process");
    }
    const std::string holder = fmt::format("process {} on {} since {}", getpid(), host_name(), utc_now());
    if (ftruncate(descriptor_, 0) != 0 || write(descriptor_, holder.data(), holder.size()) < 0) {
        const std::string why = system_error_text();
        close(descriptor_);
        throw fault_error("{} cannot be written: {}", path, why);
    }
}

RunLock::~RunLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace lockstep::watch
