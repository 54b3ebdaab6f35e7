#include "train/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "cluster/binding.hpp"
#include "cluster/flight_reader.hpp"
#include "cluster/session.hpp"
#include "train/watch_report.hpp"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr double look_every_seconds = 0.25;
constexpr double siblings_every_seconds = 1, questions_every_seconds = 1;
// A launcher ends the others of a dead rank by itself, if it does at all, sooner than this.
constexpr double launcher_seconds = 3;
// This thread stood still itself: the whole job was suspended.
constexpr double suspended_seconds = 2;
// How long the nodes' parts of a report are waited for, and when another node makes it where the first does not.
constexpr double parts_seconds = 10, first_node_seconds = 4;
// After its alarm a rank ends the run itself where nobody else does.
constexpr double last_resort_seconds = 30;
constexpr std::size_t operations_reported = 20;

std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Under its name a file is whole.
bool write_text(const std::string& path, const std::string& text) {
    const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
    std::ofstream file(beside, std::ios::binary);
    file << text;
    file.close();
    std::error_code problem;
    if (file) fs::rename(beside, path, problem);
    return file && !problem;
}

// Of several that try, one makes the file.
bool claim(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0) ::close(file);
    return file >= 0;
}

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

bool lives(std::int64_t process) {
    const char state = cluster::process_state(process);
    return state != '-' && state != 'Z' && state != 'X';
}

std::string file_time() {
    std::string text = utc_now();
    text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
    return text;
}

}  // namespace

Watchdog::Watchdog(WatchOptions options) : options_(std::move(options)), moved_(seconds_now()), looked_(moved_) {
    for (const auto& member : cluster::node_members(options_.node_folder)) {
        const auto state = cluster::read_flight(member.recorder, 0);
        if (member.rank != options_.rank && state) siblings_.push_back({member, state->process, 0});
    }
    // Signals are the training thread's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
}

void Watchdog::run() {
    cluster::bind_helper_thread();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(look_every_seconds), [&] { return stop_; })) {
        lock.unlock();
        const double now = seconds_now();
        look_at_this_rank(now);
        look_at_siblings(now);
        look_for_questions(now);
        lock.lock();
    }
}

void Watchdog::look_at_this_rank(double now) {
    const double away = now - looked_;
    if (away > suspended_seconds) {
        moved_ += away;
        for (Sibling& sibling : siblings_)
            if (sibling.died > 0) sibling.died += away;
    }
    looked_ = now;
    const std::uint64_t events = cluster::flight_recorder().events();
    if (events != events_) {
        events_ = events;
        moved_ = now;
    }
    cluster::flight_recorder().set_watched(moved_, now);
    if (alarmed_ > 0) {
        if (now - alarmed_ < last_resort_seconds) return;
        options_.last_words("failed", ExitCode::watchdog, "no progress, and no other rank ended the run");
        end_run(ExitCode::watchdog);
    }
    const double limit = any_step_ ? options_.seconds : options_.first_step_seconds;
    if (limit <= 0 || now - moved_ < limit) return;
    alarmed_ = now;
    if (!options_.node_folder.empty()) claim(options_.node_folder + "/alarm");
}

void Watchdog::look_at_siblings(double now) {
    if (now - looked_at_siblings_ < siblings_every_seconds) return;
    looked_at_siblings_ = now;
    for (Sibling& sibling : siblings_) {
        if (sibling.died == 0) {
            if (lives(sibling.process)) continue;
            sibling.died = now;
        }
        const auto state = cluster::read_flight(sibling.member.recorder, 0);
        if (!state || state->stage != cluster::FlightStage::running || now - sibling.died < launcher_seconds) continue;
        const std::string sentence =
            fmt::format("rank {} (process {} on {}) died in step {}{}{}; the other ranks are ended", state->rank,
                        state->process, state->host, state->step, state->region.empty() ? "" : ", ", state->region);
        cluster::flight_recorder().set_stage(cluster::FlightStage::failed);
        options_.last_words("lost", ExitCode::fault, sentence);
        log::error("{}", sentence);
        end_run(ExitCode::fault);
    }
}

// The lowest rank of this node that can do something.
bool Watchdog::leads_node() const {
    for (const Sibling& sibling : siblings_) {
        if (sibling.member.rank > options_.rank) break;
        const char state = cluster::process_state(sibling.process);
        if (state != 'T' && state != 't' && state != '-' && state != 'Z' && state != 'X') return false;
    }
    return true;
}

void Watchdog::look_for_questions(double now) {
    if (now - looked_for_questions_ < questions_every_seconds || !leads_node()) return;
    looked_for_questions_ = now;
    const bool alarm_here = alarmed_ > 0 || (!options_.node_folder.empty() && exists(options_.node_folder + "/alarm"));
    if (alarm_here || (options_.nodes > 1 && exists(alarm_of_all_nodes()))) end_for_no_progress();
    answer_where();
}

std::string Watchdog::report(const std::string& id, const std::string& file, const std::string& title, bool alarmed) {
    const std::string parts = fmt::format("{}/.{}-{}", options_.run_path, id, options_.key);
    std::error_code ignored;
    fs::create_directories(parts, ignored);
    std::vector<RankReport> own;
    for (const auto& member : cluster::node_members(options_.node_folder))
        if (auto state = cluster::read_flight(member.recorder, operations_reported)) {
            const char process = cluster::process_state(state->process);
            own.push_back({std::move(*state), process});
        }
    const auto part = [&](int node) { return fmt::format("{}/node-{:05}.json", parts, node); };
    const bool written = write_text(part(options_.node), node_report_text(own));

    // One node makes the whole: the first, or any where the first is in no state to.
    const double start = seconds_now();
    while (options_.node != 0 && written && seconds_now() - start < first_node_seconds)
        if (exists(parts + "/claim"))
            return "";
        else
            sleep_seconds(look_every_seconds);
    if (written && !claim(parts + "/claim")) return "";
    std::vector<RankReport> all;
    for (int node = 0; node < options_.nodes; ++node) {
        while (node != options_.node && !exists(part(node)) && seconds_now() - start < parts_seconds)
            sleep_seconds(look_every_seconds);
        try {
            for (RankReport& rank : node == options_.node ? own : node_report_from(read_text(part(node))))
                all.push_back(std::move(rank));
        } catch (const Error&) {
            continue;  // its ranks are named as silent
        }
    }
    const std::string path = options_.run_path + "/" + file;
    const std::string sentence = alarmed ? laggards_sentence(find_laggards(all, options_.ranks), all, options_.ranks)
                                         : whereabouts_sentence(all, options_.ranks);
    if (!write_text(path, watch_report_text(title, sentence, all, options_.ranks)))
        log::warning("{} cannot be written: {}", path, system_error_text());
    fs::remove_all(parts, ignored);
    return fmt::format("{}; every rank's last communications are in {}", sentence, path);
}

void Watchdog::answer_where() {
    const std::string question = options_.run_path + "/where";
    struct stat about {};
    if (::stat(question.c_str(), &about) != 0) return;
    const std::string id = fmt::format("where-{}.{}", about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
    if (id == answered_) return;
    answered_ = id;
    const std::string sentence =
        report(id, fmt::format("where-{}.txt", file_time()), fmt::format("Where the ranks are, {}", utc_now()), false);
    if (sentence.empty()) return;
    std::error_code ignored;
    fs::remove(question, ignored);
    log::info("where: {}", sentence);
}

std::string Watchdog::alarm_of_all_nodes() const {
    return options_.run_path + "/.alarm-" + options_.key;
}

void Watchdog::end_for_no_progress() {
    if (options_.nodes > 1) claim(alarm_of_all_nodes());
    const double limit = any_step_ ? options_.seconds : options_.first_step_seconds;
    const std::string sentence = report(
        "watchdog-report", fmt::format("watchdog-{}.txt", file_time()),
        fmt::format("No progress for {}, {}", human_seconds(std::max(limit, seconds_now() - moved_)), utc_now()), true);
    if (sentence.empty()) {
        // Another node speaks and ends the run.
        sleep_seconds(parts_seconds);
        end_run(ExitCode::watchdog);
    }
    const std::string whole = fmt::format("the watchdog saw no progress for {}: {}", human_seconds(limit), sentence);
    cluster::flight_recorder().set_stage(cluster::FlightStage::failed);
    options_.last_words("failed", ExitCode::watchdog, whole);
    log::error("{}", whole);
    std::error_code ignored;
    fs::remove(alarm_of_all_nodes(), ignored);
    end_run(ExitCode::watchdog);
}

void Watchdog::end_run(ExitCode code) {
    // The launcher closes this rank's stderr as soon as it hears of the abort.
    sleep_seconds(0.3);
    cluster::end_all_ranks(code);
}

}  // namespace lockstep::train
