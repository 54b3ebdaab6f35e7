#include "watch/watch_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

const std::string beginning = ".watch-";
const std::string last_word = "/last-word";

}  // namespace

std::string watch_folder(const std::string& run_path, const std::string& key) {
    return run_path + "/" + beginning + key;
}

bool make_watch_folder(const std::string& run_path, const std::string& key) {
    std::error_code problem;
    return fs::create_directory(watch_folder(run_path, key), problem);
}

void remove_watch_folders(const std::string& run_path) {
    std::vector<fs::path> found;
    std::error_code problem;
    for (fs::directory_iterator entry(run_path, problem), end; !problem && entry != end; entry.increment(problem))
        if (entry->path().filename().string().rfind(beginning, 0) == 0) found.push_back(entry->path());
    for (const fs::path& folder : found) fs::remove_all(folder, problem);
}

bool claim(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0) ::close(file);
    return file >= 0;
}

bool claim_final_status(const std::string& run_path, const std::string& key) {
    return claim(watch_folder(run_path, key) + last_word);
}

bool final_status_is_claimed(const std::string& run_path, const std::string& key) {
    const std::string folder = watch_folder(run_path, key);
    return ::access(folder.c_str(), F_OK) != 0 || ::access((folder + last_word).c_str(), F_OK) == 0;
}

// Renamed rather than claimed: watchdogs that see a claim end their ranks.
bool close_watch_folder(const std::string& run_path, const std::string& key) {
    const std::string folder = watch_folder(run_path, key), closed = folder + "-closed";
    return ::rename(folder.c_str(), closed.c_str()) == 0 && ::access((closed + last_word).c_str(), F_OK) != 0;
}

}  // namespace lockstep::watch
