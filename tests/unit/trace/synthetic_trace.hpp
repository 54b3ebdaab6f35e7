// Traces with known numbers, for tests of what reads them.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "trace/writer.hpp"

namespace lockstep::trace::test {

// A folder that is gone with the object.
class TemporaryFolder {
  public:
    explicit TemporaryFolder(const std::string& purpose)
        : path_(std::filesystem::temp_directory_path() / ("lockstep-" + purpose + "-" + std::to_string(::getpid()))) {
        std::filesystem::remove_all(path_);
        std::filesystem::create_directories(path_);
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }
    std::string string() const { return path_.string(); }
    // How many files and folders in it are those of a program that writes.
    std::ptrdiff_t unfinished() const {
        const std::filesystem::directory_iterator entries(path_);
        return std::count_if(begin(entries), end(entries),
                             [](const auto& entry) { return entry.path().extension() == ".tmp"; });
    }

  private:
    std::filesystem::path path_;
};

inline Header make_header(std::size_t ranks, const std::vector<std::string>& paths) {
    Header header;
    header.run_name = "synthetic";
    header.program_version = "0.1.0";
    header.commit = "0123456789ab";
    header.description =
        "[run]\nname = 'synthetic'\n[model]\npreset = 'ttt-linear-125m'\nmixer = 'ttt-linear'\nwidth = 64\nlayers = 2\n"
        "[batch]\nglobal = 8\nmicro = 2\nlength = 32\n[precision]\ncompute = 'fp32'\n";
    header.event_every = 10;
    header.trained_parameters = 100000;
    header.start_time = 1e9;
    for (std::size_t i = 0; i < ranks; ++i) {
        RankRow rank;
        rank.host = "node" + std::to_string(i / 2);
        rank.cores = "0-3";
        rank.threads = 4;
        rank.data = static_cast<std::int64_t>(i);
        header.ranks.push_back(rank);
    }
    for (const std::string& path : paths) {
        const auto slash = path.rfind('/');
        RegionRow region;
        region.id = static_cast<std::int64_t>(header.regions.size());
        region.path = path;
        region.name = slash == std::string::npos ? path : path.substr(slash + 1);
        for (const RegionRow& other : header.regions)
            if (slash != std::string::npos && other.path == path.substr(0, slash)) region.parent = other.id;
        header.regions.push_back(region);
    }
    return header;
}

// Steps first … first + count - 1 in which every number follows from step, rank and region.
inline double known_time(std::int64_t step, std::size_t rank, std::size_t region) {
    return static_cast<double>(step) + 0.01 * static_cast<double>(rank) + 0.0001 * static_cast<double>(region);
}
inline RowBatch make_block(const Header& header, std::int64_t first, std::size_t count) {
    RowBatch block;
    for (std::size_t i = 0; i < count; ++i) {
        StepRow row;
        row.step = first + static_cast<std::int64_t>(i);
        row.epoch = row.step / 10;
        row.loss = 1.0 / static_cast<double>(row.step);
        row.tokens = row.step * 10;
        row.seconds = 0.5;
        row.wall_time = 1e9 + static_cast<double>(row.step);
        block.steps.push_back(row);
        for (std::size_t rank = 0; rank < header.ranks.size(); ++rank) {
            block.rank_loss.push_back(known_time(row.step, rank, 7));
            block.overhead.push_back(known_time(row.step, rank, 8));
            for (std::uint64_t kind = 0; kind < 3; ++kind)
                block.memory.push_back(static_cast<std::uint64_t>(row.step) * 1000 + rank * 10 + kind);
            for (std::size_t region = 0; region < header.regions.size(); ++region) {
                block.times.push_back(known_time(row.step, rank, region));
                block.calls.push_back(static_cast<std::uint32_t>(region + 1));
            }
        }
    }
    return block;
}

}  // namespace lockstep::trace::test
