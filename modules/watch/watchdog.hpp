// A thread beside each rank's training that looks whether the rank still does anything. It says where the ranks are
// when asked, or when one has stood still for too long, which ends the run; and it ends the run when a rank of this
// node has died and the launcher does nothing about it.
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
#include "watch/node_folder.hpp"
#include "watch/watch_report.hpp"

namespace lockstep::watch {

struct WatchOptions {
    double seconds = 0, first_step_seconds = 0;  // without any progress; 0: no limit
    std::string run_path;                        // runs/NAME, seen by all nodes
    std::string node_folder, key;                // NodeFolder's
    int rank = 0, ranks = 1, node = 0;
    // Writes status.json for a run that ends here: state, exit code, sentence. False where another has said it before.
    std::function<bool(const std::string& state, ExitCode code, const std::string& sentence)> last_words;
};

class Watchdog {
  public:
    explicit Watchdog(WatchOptions options);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void step_done() { any_step_ = true; }  // the limit of the first step is over

  private:
    struct Sibling {
        NodeMember member;
        double died = 0;  // when that was seen; 0: it lives
    };
    void run();
    void look_at_this_rank(double now);
    void look_at_siblings(double now);
    void look_for_questions(double now);
    bool leads_node() const;
    void acknowledge_signal();
    void go_on(double moved);
    // Writes this node's part of a report; on one of the nodes it returns the whole.
    std::optional<std::vector<RankReport>> gather_reports(const std::string& id);
    void gather(const std::string& parts, std::vector<RankReport>& all, double until) const;
    // Returns the sentence, with where the report is.
    std::string write_report(const std::string& file, const std::string& title, const std::string& sentence,
                             const std::vector<RankReport>& all) const;
    void answer_where();
    void end_for_no_progress();
    void withdraw_alarm(double moved);
    [[noreturn]] void end_run(ExitCode code);

    WatchOptions options_;
    std::vector<Sibling> siblings_;  // the other ranks of this node
    std::atomic<bool> any_step_ = false;
    std::uint64_t events_ = 0;
    double moved_ = 0, looked_ = 0, looked_at_siblings_ = 0, looked_for_questions_ = 0, alarmed_ = 0,
           looked_for_alarm_ = 0, ended_elsewhere_ = 0;
    std::string answered_;  // the question last answered
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false, acknowledged_ = false;
    std::thread thread_;
};

}  // namespace lockstep::watch
