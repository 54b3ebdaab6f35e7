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
    file_ = OpenFile::open_or_create(path);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    // A record lock works across nodes where the file system supports it, and ends with the process.
    if (fcntl(file_.descriptor(), F_SETLK, &whole) != 0) {
        if (errno != EACCES && errno != EAGAIN) {
            log::warning("{} cannot be locked ({}): a second launch of this run would not be detected", path,
                         system_error_text());
            return;
        }
        std::array<char, 256> holder{};
        const std::uint64_t bytes = file_.read_up_to(holder.data(), holder.size() - 1, 0);
        throw usage_error("{} is in use by another launch of this run ({}); stop that one, or choose another run.name",
                          folder, bytes > 0 ? holder.data() : "an unknown process");
    }
    const std::string holder = fmt::format("process {} on {} since {}", getpid(), host_name(), utc_now());
    file_.resize(0);
    file_.write(holder.data(), holder.size(), 0);
}

}  // namespace lockstep::watch
