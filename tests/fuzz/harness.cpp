#include "fuzz/harness.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "fuzz/allocations.hpp"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

double cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A finding of a sanitizer ends a process before it can remove its folder; the next one does.
void remove_left_behind(const fs::path& place, const std::string& beginning) {
    std::error_code problem;
    for (fs::directory_iterator entry(place, problem), end; !problem && entry != end; entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        if (!name.starts_with(beginning)) continue;
        const auto process = static_cast<pid_t>(std::strtol(name.c_str() + beginning.size(), nullptr, 10));
        std::error_code ignored;
        if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry->path(), ignored);
    }
}

class Folder {
  public:
    Folder() : owner_(::getpid()) {
        log::show_from(log::Level::error);
        const fs::path place = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
        const std::string beginning = "lockstep-fuzz-";
        remove_left_behind(place, beginning);
        path_ = (place / (beginning + std::to_string(owner_))).string();
        std::error_code problem;
        fs::remove_all(path_, problem);
        if (!fs::create_directory(path_, problem)) {
            std::fprintf(stderr, "%s cannot be created: %s\n", path_.c_str(), problem.message().c_str());
            std::exit(2);
        }
    }
    ~Folder() {
        std::error_code ignored;
        if (is_of_this_process()) fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const std::string& path() const { return path_; }
    bool is_of_this_process() const { return ::getpid() == owner_; }

  private:
    pid_t owner_;
    std::string path_;
};

void answer(const std::function<void()>& read) {
    try {
        read();
    } catch (const Error& error) {
        if (error.code() != ExitCode::usage && error.code() != ExitCode::damaged)
            finding("exit code " + std::to_string(static_cast<int>(error.code())) + ": " + error.what());
    } catch (const std::exception& exception) {
        finding(std::string("an exception that is no Error: ") + exception.what());
    }
}

}  // namespace

void finding(const std::string& sentence) {
    std::fprintf(stderr, "finding: %s\n", sentence.c_str());
    std::error_code ignored;
    fs::remove_all(folder(), ignored);  // abort() calls no destructor
    std::abort();
}

void judge(std::uint64_t bytes, const std::function<void()>& read, std::uint64_t floor) {
    folder();
    const double begin = cpu_seconds();
    {
        const AllocationLimit limit(std::max(floor, allocation_factor * bytes));
        answer(read);
    }
    const double seconds = cpu_seconds() - begin;
    if (seconds > longest_seconds)
        finding("reading " + std::to_string(bytes) + " bytes took " + std::to_string(seconds) + " s");
}

const std::string& folder() {
    static std::optional<Folder> one;
    if (!one || !one->is_of_this_process()) one.emplace();  // a forked process has its parent's
    return one->path();
}

std::string write_file(const std::string& name, std::string_view bytes) {
    const fs::path path = fs::path(folder()) / name;
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    std::FILE* file = std::fopen(path.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    if (file == nullptr || std::fclose(file) != 0 || !written) {
        std::perror(path.c_str());
        std::exit(2);
    }
    return path.string();
}

std::string read_file(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> parts(std::string_view input, std::size_t count) {
    std::vector<std::string> all;
    while (all.size() + 1 < count) {
        const std::size_t end = std::min(input.find(part_end), input.size());
        all.emplace_back(input.substr(0, end));
        input.remove_prefix(std::min(end + part_end.size(), input.size()));
    }
    all.emplace_back(input);
    return all;
}

}  // namespace lockstep::fuzz
