#include "checkpoint/probe.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "checkpoint/direct_file.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t smallest_bytes = std::uint64_t{1} << 18, largest_bytes = std::uint64_t{1} << 22;
constexpr double long_enough_seconds = 0.02, patience_seconds = 0.2;
constexpr int rounds_of_the_largest = 3;
// Free space is not checked here: a checkpoint reserves its own when written.
constexpr std::uint64_t part_of_what_is_free = 8;

struct Removed {
    std::string path;
    ~Removed() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
};

// Incompressible, whatever the file system.
void fill(std::vector<std::uint64_t>& words) {
    std::uint64_t state = 1;
    for (std::uint64_t& word : words) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = state ^ (state >> 29);
    }
}

double write_once(const std::string& folder, const std::string& path, const std::vector<std::uint64_t>& words) {
    const std::uint64_t bytes = words.size() * sizeof words[0];
    std::vector<std::uint64_t> found(words.size());
    double seconds = 0;
    try {
        OpenFile file = OpenFile::create(path);
        const double start = seconds_now();
        file.write(words.data(), bytes, 0);
        file.sync();
        seconds = seconds_now() - start;
        forget_cached(file, 0, bytes);
        file.read(found.data(), bytes, 0);
        file.close();
    } catch (const Error& error) {
        throw usage_error("the checkpoint folder {} cannot be written: {}", folder, error.what());
    }
    if (found != words)
        throw fault_error(
            "{} does not read back what was written, so checkpoints there would be damaged; choose another "
            "checkpoint.folder and have this file system checked",
            path);
    return seconds;
}

}  // namespace

FolderRate probe_folder(const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name;
    const Removed removed{path};
    std::error_code unknown;
    const auto space = std::filesystem::space(folder, unknown);
    const std::uint64_t room = unknown ? smallest_bytes : space.available / part_of_what_is_free;
    FolderRate best;
    const double end = seconds_now() + patience_seconds;
    int rounds = 0;
    std::uint64_t bytes = std::clamp<std::uint64_t>(room / sizeof(std::uint64_t) * sizeof(std::uint64_t),
                                                    sizeof(std::uint64_t), smallest_bytes);
    std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
    fill(words);
    do {
        const double seconds = std::max(write_once(folder, path, words), 1e-9);
        const double rate = static_cast<double>(bytes) / seconds;
        if (rate > best.bytes_per_second) best = {rate, seconds};
        const std::uint64_t larger = bytes * 4;
        if (seconds >= long_enough_seconds || larger > std::min(room, largest_bytes)) {
            ++rounds;
            continue;
        }
        bytes = larger;
        words.resize(bytes / sizeof words[0]);
        fill(words);
    } while (rounds < rounds_of_the_largest && seconds_now() < end);
    return best;
}

}  // namespace lockstep::checkpoint
