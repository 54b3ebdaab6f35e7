// A thread beside each rank's training that looks whether the rank still does anything. It says where the ranks are
// when asked, or when one has stood still for too long, which ends the run; and it ends the run when a rank of this
// node has died and the launcher does nothing about it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "cluster/node_folder.hpp"

namespace lockstep::train {

struct WatchOptions {
    double seconds = 0, first_step_seconds = 0;  // without any progress; 0: no limit
    std::string run_path;                        // runs/NAME, seen by all nodes
    std::string node_folder, key;                // cluster::NodeFolder's
    int rank = 0, ranks = 1, node = 0, nodes = 1;
    // Writes status.json and the log for a run that ends here: state, exit code, sentence.
    std::function<void(const std::string& state, ExitCode code, const std::string& sentence)> last_words;
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
        cluster::NodeMember member;
        std::int64_t process = 0;
        double died = 0;  // when that was seen; 0: it lives
    };
    void run();
    void look_at_this_rank(double now);
    void look_at_siblings(double now);
    void look_for_questions(double now);
    bool leads_node() const;
    std::string alarm_of_all_nodes() const;
    // Writes the node's part of a report, and from one of the nodes the whole: returns what it says in short where this
    // rank made it, else "".
    std::string report(const std::string& id, const std::string& file, const std::string& title, bool alarmed);
    void answer_where();
    void end_for_no_progress();
    [[noreturn]] void end_run(ExitCode code);

    WatchOptions options_;
    std::vector<Sibling> siblings_;  // the other ranks of this node
    std::atomic<bool> any_step_ = false;
    std::uint64_t events_ = 0;
    double moved_ = 0, looked_ = 0, looked_at_siblings_ = 0, looked_for_questions_ = 0, alarmed_ = 0;
    std::string answered_;  // the question last answered
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace lockstep::train
