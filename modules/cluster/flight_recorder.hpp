// A rank's recent activity, for diagnosis when it no longer responds: step, open region, and its last communications
// with their begin and end times. Kept in shared memory, readable by other processes of the node (flight_reader.hpp)
// even when this rank is stopped or killed. Written by the communicating thread; only beat() and the stage may be used
// from any thread. Costs a few tens of nanoseconds per communication.
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

// leaving: normal exit; failed: with an error that it has reported itself, and it may abort the others; signalled:
// terminated by a signal on request.
enum class FlightStage { running, leaving, failed, signalled };

class FlightRecorder {
  public:
    FlightRecorder();
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    // From now on in the file `path`, including what was recorded before; the file is locked while this process lives.
    // False (with errno) on failure.
    bool share(const std::string& path);
    void set_rank(int rank, int ranks, const std::string& host);
    void set_stage(FlightStage stage);
    void set_signalled(int signal);  // for a signal handler

    // `members`: world ranks, ascending. If the table of groups is full, the last entry is reused.
    int add_group(const std::string& name, const std::vector<int>& members);

    // Returns the operation's sequence number. `peer`: a world rank, for messages. on_device: a GPU executes it
    // asynchronously.
    std::uint64_t begin(int group, FlightKind kind, std::size_t bytes, int peer = -1, bool on_device = false);
    void done(std::uint64_t sequence);
    // The operation this rank waits for; 0: none. Returns the previous one.
    std::uint64_t wait_for(std::uint64_t sequence);
    std::uint64_t newest() const;
    // Of all operations that are done, or begun on a device: the buffers' sizes, not what the wire carries.
    std::uint64_t bytes() const { return bytes_; }
    void device_reached(std::uint64_t sequence);  // the GPU has completed all operations up to this one

    void name_region(int region, const std::string& path);
    void set_region(int region);  // innermost open region; -1: none
    void set_step(std::int64_t step);
    void beat();  // records activity
    std::uint64_t events() const;
    // For the thread that monitors this rank; seconds_now(): when `events` last changed, and the time of this check.
    void set_watched(double moved, double now);

  private:
    FlightPage* page_;
    bool mapped_ = false;
    std::uint64_t device_done_ = 0, bytes_ = 0;
};

FlightRecorder& flight_recorder();

// Marks the caller as waiting for a communication.
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
