#include "watch/node_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "watch/flight_reader.hpp"

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

const std::string recorder_end = ".flight", life_end = ".life";

std::string rank_file(const std::string& folder, int rank, const std::string& end) {
    return fmt::format("{}/rank-{:05}{}", folder, rank, end);
}

// Candidates for in-memory folders, best first; the same number on all nodes.
std::array<std::string, 3> parents() {
    const char* temporary = std::getenv("TMPDIR");
    return {"/dev/shm", temporary ? temporary : "", "/tmp"};
}

// Whether this user's folder exists or can be created, with room for this many ranks.
bool usable(const std::string& of_user, int ranks) {
    constexpr std::uint64_t bytes_a_rank = 1u << 20;
    if (::mkdir(of_user.c_str(), 0700) != 0 && errno != EEXIST) return false;
    struct stat about {};
    struct statvfs room {};
    return ::stat(of_user.c_str(), &about) == 0 && about.st_uid == ::getuid() && ::access(of_user.c_str(), W_OK) == 0 &&
           ::statvfs(of_user.c_str(), &room) == 0 &&
           static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize > bytes_a_rank * static_cast<std::uint64_t>(ranks);
}

bool any_alive(const std::string& folder) {
    const auto members = node_members(folder);
    return std::any_of(members.begin(), members.end(),
                       [](const NodeMember& member) { return flight_alive(member.recorder); });
}

// Folders of launches that were killed entirely. One being created may be empty yet.
void remove_stale(const std::string& of_user, const std::string& own) {
    constexpr auto long_ago = std::chrono::hours(1);
    std::error_code problem;
    for (fs::directory_iterator entry(of_user, problem), end; !problem && entry != end; entry.increment(problem)) {
        std::error_code ignored;
        const auto age = fs::file_time_type::clock::now() - fs::last_write_time(entry->path(), ignored);
        if (!ignored && entry->path() != own && age > long_ago && !any_alive(entry->path().string()))
            fs::remove_all(entry->path(), ignored);
    }
}

}  // namespace

std::vector<NodeMember> node_members(const std::string& folder) {
    std::vector<NodeMember> members;
    std::error_code problem;
    for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
        const std::string name = entry->path().filename().string();
        constexpr std::size_t before = 5;  // "rank-"
        if (name.rfind("rank-", 0) != 0 || name.size() <= before + recorder_end.size() || !name.ends_with(recorder_end))
            continue;
        const int rank = std::atoi(name.c_str() + before);
        members.push_back({rank, entry->path().string(), rank_file(folder, rank, life_end)});
    }
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return members;
}

NodeFolder::NodeFolder(cluster::HostGroup& world, const cluster::RankPlace& place) {
    const std::string origin = fmt::format("{} {} {}", place.host, ::getpid(), wall_seconds());
    key_ = world.broadcast_text(hash_text(hash64(origin.data(), origin.size())), 0);
    cluster::flight_recorder().set_rank(world.rank(), world.size(), place.host);
    for (const std::string& parent : parents()) {
        // The ranks of a node must agree on one folder.
        const std::string of_user = fmt::format("{}/lockstep-{}", parent, ::getuid());
        const bool can = !parent.empty() && usable(of_user, place.local_ranks);
        if (world.all_maximum(can ? 0 : 1) != 0) continue;
        // With the host's name, in case nodes share the folder.
        if (!enter(of_user, fmt::format("{}/{}-{}", of_user, key_, place.host), world.rank()))
            log::debug("{}: the flight recorder stays in this process: {}", of_user, system_error_text());
        return;
    }
}

bool NodeFolder::enter(const std::string& of_user, const std::string& folder, int rank) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
    recorder_ = rank_file(folder, rank, recorder_end);
    life_ = rank_file(folder, rank, life_end);
    // Read-write: opening a pipe write-only blocks until there is a reader.
    if (::mkfifo(life_.c_str(), 0600) == 0) pipe_ = ::open(life_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (pipe_ < 0 || !cluster::flight_recorder().share(recorder_)) {
        if (pipe_ >= 0) ::close(pipe_);
        ::unlink(life_.c_str());
        return false;
    }
    path_ = folder;
    remove_stale(of_user, folder);
    return true;
}

NodeFolder::~NodeFolder() {
    const bool failed = std::uncaught_exceptions() > 0;
    cluster::flight_recorder().set_stage(failed ? cluster::FlightStage::failed : cluster::FlightStage::leaving);
    if (path_.empty()) return;
    // A failed rank leaves its recorder, so that observers see why the others end.
    if (!failed) ::unlink(recorder_.c_str());
    ::unlink(life_.c_str());
    ::rmdir(path_.c_str());
    ::close(pipe_);
}

}  // namespace lockstep::watch
