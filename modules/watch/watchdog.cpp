#include "watch/watchdog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/clock.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/whole_file.hpp"
#include "cluster/binding.hpp"
#include "cluster/session.hpp"
#include "watch/flight_reader.hpp"
#include "watch/stop_request.hpp"
#include "watch/watch_folder.hpp"
#include "watch/watch_report.hpp"

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

constexpr double poll_seconds = 0.25;
constexpr double life_every_seconds = 30;
constexpr double siblings_every_seconds = 1, questions_every_seconds = 1, most_seconds_between_questions = 20;
// A launcher that kills the others after a rank's death does so sooner than this.
constexpr double launcher_seconds = 3;
// This thread did not run for this long: the whole job was suspended.
constexpr double suspended_seconds = 2;
// How long to wait for other nodes' parts of a report, and for the first node before another one takes over.
constexpr double parts_seconds = 10, first_node_seconds = 4;
// How long after its alarm a rank ends the run itself if nobody else does.
constexpr double last_resort_seconds = 120;
// For when even that hangs, in this thread's file access: the kernel's alarm.
constexpr unsigned alarm_seconds = 150;
// A watchdog thread that has not run for this long belongs to a stopped process.
constexpr double stopped_seconds = 2;
// Ranks keep waiting for one that was active within this fraction of the limit.
constexpr double recent_part = 0.8;
constexpr std::size_t operations_reported = 20;

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

// The file's creation time, the same on all nodes: distinguishes one request or alarm from the next.
std::optional<std::string> time_of(const std::string& path) {
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0) return std::nullopt;
    return fmt::format("{}.{}", about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
}

void sleep_seconds(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::string file_time() {
    std::string text = utc_now();
    text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
    return text;
}

}  // namespace

Watchdog::Watchdog(WatchOptions options) : options_(std::move(options)), moved_(seconds_now()), last_check_(moved_) {
    for (const auto& member : node_members(options_.node_folder)) {
        const auto state = read_flight(member.recorder, 0);
        if (member.rank != options_.rank && state) siblings_.push_back({member, 0});
    }
    // Signals are handled on the training thread.
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
    while (!wake_.wait_for(lock, std::chrono::duration<double>(poll_seconds), [&] { return stop_; })) {
        lock.unlock();
        try {
            const double now = seconds_now();
            check_this_rank(now);
            show_life(now);
            acknowledge_signal();
            check_siblings(now);
            poll_requests(now);
        } catch (const std::exception& problem) {
            log::debug("the watchdog: {}", problem.what());
        }
        lock.lock();
    }
}

void Watchdog::check_this_rank(double now) {
    const double away = now - last_check_;
    if (away > suspended_seconds) {
        moved_ += away;
        for (Sibling& sibling : siblings_)
            if (sibling.died > 0) sibling.died += away;
    }
    last_check_ = now;
    const std::uint64_t events = cluster::flight_recorder().events();
    if (events != events_) {
        events_ = events;
        moved_ = now;
    }
    cluster::flight_recorder().set_watched(moved_, now);
    if (alarmed_ > 0 && !options_.node_folder.empty() && !exists(options_.node_folder + "/alarm")) resume_watch(now);
    if (alarmed_ > 0) {
        if (now - alarmed_ < last_resort_seconds) return;
        const std::string sentence = "no progress (watchdog), and no other rank ended the run";
        if (options_.write_final_status("failed", ExitCode::watchdog, sentence, {})) log::error("{}", sentence);
        end_run(ExitCode::watchdog);
    }
    const double limit = any_step_ ? options_.seconds : options_.first_step_seconds;
    if (limit <= 0 || now - moved_ < limit) return;
    alarmed_ = now;
    ::alarm(alarm_seconds);
    if (!options_.node_folder.empty()) claim(options_.node_folder + "/alarm");
}

// Renews the time of the run's lock while anything moves: a step, a validation and a save may take long, and on a full
// disk nothing is written. jobs/oversee.sh ends the launcher of a run that shows no life.
void Watchdog::show_life(double now) {
    if (options_.rank != 0 || moved_ <= shown_ || now - shown_at_ < life_every_seconds) return;
    shown_ = moved_;
    shown_at_ = now;
    // By its path: closing another descriptor of the file would give up the lock.
    static_cast<void>(::utimensat(AT_FDCWD, (options_.run_path + "/lock").c_str(), nullptr, 0));
}

void Watchdog::acknowledge_signal() {
    const int signal = requested_signal();
    if (signal == 0 || acknowledged_) return;
    acknowledged_ = true;
    log::info("signal {}: stopping with a checkpoint after this step{}", signal_word(signal),
              signal == SIGUSR1 ? "" : "; a second one, at least 2 seconds later, ends the run at once");
}

// A false alarm: the rank waited for was working.
void Watchdog::resume_watch(double moved) {
    ::alarm(0);
    alarmed_ = 0;
    moved_ = moved;
}

void Watchdog::check_siblings(double now) {
    if (now - checked_siblings_ < siblings_every_seconds) return;
    checked_siblings_ = now;
    for (Sibling& sibling : siblings_) {
        if (sibling.died == 0) {
            if (flight_alive(sibling.member.recorder)) continue;
            sibling.died = now;
        }
        const auto state = read_flight(sibling.member.recorder, 0);
        if (!state || state->stage != cluster::FlightStage::running || now - sibling.died < launcher_seconds) continue;
        const std::string sentence =
            fmt::format("rank {} (process {} on {}) died in step {}{}{}; aborting the others", state->rank,
                        state->process, state->host, state->step, state->region.empty() ? "" : ", ", state->region);
        // A witness knows more, and was quicker.
        if (options_.write_final_status("lost", ExitCode::fault, sentence, {{}, {state->host}}))
            log::error("{}", sentence);
        end_run(ExitCode::fault);
    }
}

// The lowest live rank of this node.
bool Watchdog::leads_node() const {
    for (const Sibling& sibling : siblings_) {
        if (sibling.member.rank > options_.rank) break;
        if (!flight_alive(sibling.member.recorder)) continue;
        const auto state = read_flight(sibling.member.recorder, 0);
        if (state && state->unwatched_seconds < stopped_seconds) return false;
    }
    return true;
}

void Watchdog::poll_requests(double now) {
    if (now - polled_alarm_ < questions_every_seconds || !leads_node()) return;
    polled_alarm_ = now;
    if (alarmed_ > 0 || (!options_.node_folder.empty() && exists(options_.node_folder + "/alarm")))
        return end_without_progress();
    // Rarely with many nodes: all poll the same file system.
    const double every = std::clamp(options_.ranks / 200.0, questions_every_seconds, most_seconds_between_questions);
    if (now - polled_requests_ < every) return;
    polled_requests_ = now;
    const std::string shared = watch_folder(options_.run_path, options_.key);
    if (exists(shared + "/alarm")) return end_without_progress();
    // The launcher may not notice a death on another node.
    if (exists(shared + "/last-word") && ended_elsewhere_ == 0) ended_elsewhere_ = now;
    if (ended_elsewhere_ > 0 && now - ended_elsewhere_ > launcher_seconds) end_run(ExitCode::fault);
    report_where();
}

std::optional<std::vector<RankReport>> Watchdog::gather_reports(const std::string& id) {
    const std::string parts = watch_folder(options_.run_path, options_.key) + "/" + id;
    std::error_code ignored;
    fs::create_directory(parts, ignored);
    std::vector<RankReport> all;
    for (const auto& member : node_members(options_.node_folder))
        if (auto state = read_flight(member.recorder, operations_reported)) {
            const bool alive = flight_alive(member.recorder);
            const bool stopped = alive && state->unwatched_seconds > stopped_seconds;
            all.push_back({std::move(*state), alive, stopped});
        }
    bool written = true;
    try {
        replace_file(fmt::format("{}/rank-{:05}.json", parts, options_.rank), node_report_text(all));
    } catch (const Error&) {
        written = false;
    }

    // One node assembles the report: the first, or any other if the first cannot.
    const double start = seconds_now();
    while (options_.node != 0 && written && seconds_now() - start < first_node_seconds) {
        if (exists(parts + "/claim")) return std::nullopt;
        sleep_seconds(poll_seconds);
    }
    if (written && !claim(parts + "/claim")) return std::nullopt;
    gather(parts, all, start + parts_seconds);
    // The claim stays: a late node must not repeat the report.
    for (fs::directory_iterator entry(parts, ignored), end; !ignored && entry != end; entry.increment(ignored))
        if (entry->path().extension() == ".json") fs::remove(entry->path(), ignored);
    return all;
}

std::string Watchdog::write_report(const std::string& file, const std::string& title, const std::string& sentence,
                                   const std::vector<RankReport>& all) const {
    const std::string path = options_.run_path + "/" + file;
    try {
        replace_file(path, watch_report_text(title, sentence, all, options_.ranks));
    } catch (const Error& error) {
        log::warning("{}", error.what());
    }
    return fmt::format("{}; see {} for every rank's last communications", sentence, path);
}

// Adds other nodes' parts until every rank is known or time is up.
void Watchdog::gather(const std::string& parts, std::vector<RankReport>& all, double until) const {
    std::set<int> ranks;
    for (const RankReport& rank : all) ranks.insert(rank.flight.rank);
    std::set<std::string> taken;
    while (static_cast<int>(ranks.size()) < options_.ranks) {
        std::error_code problem;
        for (fs::directory_iterator entry(parts, problem), end; !problem && entry != end; entry.increment(problem)) {
            const std::string path = entry->path().string();
            if (!path.ends_with(".json") || !taken.insert(path).second) continue;
            try {
                for (RankReport& rank : node_report_from(text_of_regular_file(path)))
                    if (ranks.insert(rank.flight.rank).second) all.push_back(std::move(rank));
            } catch (const Error& error) {
                log::debug("{}: {}", path, error.what());  // its ranks are reported as missing
            }
        }
        if (seconds_now() >= until) return;
        if (static_cast<int>(ranks.size()) < options_.ranks) sleep_seconds(poll_seconds);
    }
}

void Watchdog::report_where() {
    const std::string question = options_.run_path + "/where";
    const auto time = time_of(question);
    if (!time) return;
    const std::string id = "where-" + *time;
    if (id == reported_) return;
    reported_ = id;
    const auto all = gather_reports(id);
    if (!all) return;
    std::error_code ignored;
    fs::remove(question, ignored);
    log::info("where: {}",
              write_report(fmt::format("where-{}.txt", file_time()), fmt::format("Where the ranks are, {}", utc_now()),
                           progress_sentence(*all, options_.ranks), *all));
}

void Watchdog::end_without_progress() {
    const std::string alarm = watch_folder(options_.run_path, options_.key) + "/alarm";
    claim(alarm);
    const double limit = any_step_ ? options_.seconds : options_.first_step_seconds;
    const auto all = gather_reports("alarm-" + time_of(alarm).value_or("unknown"));
    if (!all) {
        // Another node reports, and ends the run or withdraws the alarm.
        const double start = seconds_now();
        while (exists(alarm) && seconds_now() - start < last_resort_seconds / 2) sleep_seconds(poll_seconds);
        if (exists(alarm)) end_run(ExitCode::watchdog);
        withdraw_alarm(seconds_now());
        return;
    }
    const double least_quiet = quiet_of_working(*all);
    if (limit > 0 && least_quiet < recent_part * limit) {
        log::debug("no progress for {}, but a rank that others wait for is working", human_seconds(limit));
        std::error_code ignored;
        fs::remove(alarm, ignored);
        withdraw_alarm(seconds_now() - least_quiet);
        return;
    }
    const std::string sentence =
        laggards_sentence(find_laggards(*all, options_.ranks), *all, options_.ranks, options_.hosts);
    const double quiet = std::max(limit, seconds_now() - moved_);
    const std::string whole = fmt::format(
        "no progress for {} (watchdog): {}", human_seconds(limit),
        write_report(fmt::format("watchdog-{}.txt", file_time()),
                     fmt::format("No progress for {}, {}", human_seconds(quiet), utc_now()), sentence, *all));
    if (options_.write_final_status("failed", ExitCode::watchdog, whole, blamed_nodes(*all, options_.hosts)))
        log::error("{}", whole);
    end_run(ExitCode::watchdog);
}

void Watchdog::withdraw_alarm(double moved) {
    std::error_code ignored;
    if (!options_.node_folder.empty()) fs::remove(options_.node_folder + "/alarm", ignored);
    resume_watch(moved);
}

void Watchdog::end_run(ExitCode code) {
    cluster::flight_recorder().set_stage(cluster::FlightStage::failed);
    // Keeps the witness from reporting the others' deaths.
    static_cast<void>(claim_final_status(options_.run_path, options_.key));
    // The launcher closes stderr on the abort.
    sleep_seconds(0.3);
    cluster::abort_all_ranks(code);
}

}  // namespace lockstep::watch
