// What this rank did last, for those who ask when it no longer answers: the step, the open region, and its last
// communications, each with when it began and ended. Kept in memory that other processes of the node can read
// (flight_reader.hpp), also when this rank is stopped or killed. Written by the thread that communicates; only beat()
// and the stage may be used from any thread. Costs a few tens of nanoseconds a communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cluster {

struct FlightPage;

enum class FlightKind { all_reduce, reduce_scatter, all_gather, broadcast, gather, exchange, barrier, send, receive };
const char* flight_kind_name(FlightKind kind);  // "all-reduce"
inline bool is_message(FlightKind kind) {
    return kind == FlightKind::send || kind == FlightKind::receive;
}

// leaving: it ends as it should; failed: with an error it has said itself, and may take the others with it;
// ended_at_once: by a signal, as it was told to.
enum class FlightStage { running, leaving, failed, ended_at_once };

class FlightRecorder {
  public:
    FlightRecorder();
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    // From now on in the file `path`, with what was recorded before; the file is locked as long as this process lives.
    // False (with errno) where it cannot be made.
    bool share(const std::string& path);
    void set_rank(int rank, int ranks, const std::string& host);
    void set_stage(FlightStage stage);
    void end_at_once(int signal);  // for a signal's handler

    // `members`: ranks of the world, ascending. Beyond the number of groups the recorder has room for: the last one.
    int add_group(const std::string& name, const std::vector<int>& members);

    // Returns the operation's sequence number. `peer`: a rank of the world, for messages. on_device: a GPU carries it
    // out some time later.
    std::uint64_t begin(int group, FlightKind kind, std::size_t bytes, int peer = -1, bool on_device = false);
    void done(std::uint64_t sequence);
    // What this rank waits for; 0: for nothing. Returns what it waited for before.
    std::uint64_t wait_for(std::uint64_t sequence);
    std::uint64_t newest() const;
    void device_reached(std::uint64_t sequence);  // the GPU has ended every operation up to this one

    void name_region(int region, const std::string& path);
    void set_region(int region);  // the innermost open one; -1: none
    void set_step(std::int64_t step);
    void beat();  // something was done
    std::uint64_t events() const;
    // What a thread that watches this rank saw, seconds_now(): when `events` last grew, and now.
    void set_watched(double moved, double now);

  private:
    FlightPage* page_;
    bool mapped_ = false;
    std::uint64_t device_done_ = 0;
};

FlightRecorder& flight_recorder();  // this process's

// While the caller waits for a communication that was begun.
class FlightScope {
  public:
    explicit FlightScope(std::uint64_t sequence) : sequence_(sequence), before_(flight_recorder().wait_for(sequence)) {}
    ~FlightScope() {
        static_cast<void>(flight_recorder().wait_for(before_));
        flight_recorder().done(sequence_);
    }
    FlightScope(const FlightScope&) = delete;
    FlightScope& operator=(const FlightScope&) = delete;

  private:
    std::uint64_t sequence_, before_;
};

}  // namespace lockstep::cluster
