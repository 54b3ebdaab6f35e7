// A thread on each rank that monitors its progress. It reports where the ranks are on request, or when one has made
// none for too long, which ends the run; and it ends the run when a rank of this node has died and the launcher does
// nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "watch/blame.hpp"
#include "watch/node_folder.hpp"
#include "watch/watch_report.hpp"

namespace lockstep::watch {

struct WatchOptions {
    double seconds = 0, first_step_seconds = 0;  // longest time without progress; 0: no limit
    std::string run_path;                        // runs/NAME, on a file system that all nodes share
    std::string node_folder, key;                // from NodeFolder
    int rank = 0, ranks = 1, node = 0;
    std::vector<std::string> hosts;  // of every rank
    // Writes status.json for a run that ends here. False if someone else has done so before.
    std::function<bool(const std::string& state, ExitCode code, const std::string& sentence, const NodeBlame& blame)>
        write_final_status;
};

class Watchdog {
  public:
    explicit Watchdog(WatchOptions options);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void step_done() { any_step_ = true; }  // the first step's limit no longer applies

  private:
    struct Sibling {
        NodeMember member;
        double died = 0;  // when its death was noticed; 0: alive
    };
    void run();
    void check_this_rank(double now);
    void show_life(double now);
    void check_siblings(double now);
    void poll_requests(double now);
    bool leads_node() const;
    void acknowledge_signal();
    void resume_watch(double moved);
    // Writes this node's part of a report; on exactly one node returns all parts.
    std::optional<std::vector<RankReport>> gather_reports(const std::string& id);
    void gather(const std::string& parts, std::vector<RankReport>& all, double until) const;
    // Returns the sentence with the report's path.
    std::string write_report(const std::string& file, const std::string& title, const std::string& sentence,
                             const std::vector<RankReport>& all) const;
    void report_where();
    void end_without_progress();
    void withdraw_alarm(double moved);
    [[noreturn]] void end_run(ExitCode code);

    WatchOptions options_;
    std::vector<Sibling> siblings_;  // other ranks of this node
    std::atomic<bool> any_step_ = false;
    std::uint64_t events_ = 0;
    double moved_ = 0, last_check_ = 0, checked_siblings_ = 0, polled_requests_ = 0, alarmed_ = 0, polled_alarm_ = 0,
           ended_elsewhere_ = 0, shown_ = 0, shown_at_ = 0;
    std::string reported_;  // the last request served
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false, acknowledged_ = false;
    std::thread thread_;
};

}  // namespace lockstep::watch
