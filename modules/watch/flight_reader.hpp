// Reads the flight recorders of this node's ranks, whether alive, stopped or killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/flight_recorder.hpp"

namespace lockstep::watch {

struct FlightOperation {
    std::uint64_t number = 0;  // among its group's collectives or messages, from 1
    std::string group;
    cluster::FlightKind kind = cluster::FlightKind::barrier;
    std::uint64_t bytes = 0;
    int peer = -1;  // of a message: a world rank
    bool on_device = false, done = false;
    double begun_ago = 0, seconds = 0;  // seconds: until its end, or now
};

struct FlightGroup {
    std::string name;
    std::string members;                          // world ranks (rank_list.hpp); "" if too many to record
    std::uint64_t collectives = 0, messages = 0;  // begun
};

struct FlightState {
    int rank = 0, ranks = 1;
    std::int64_t process = 0;
    std::string host;
    cluster::FlightStage stage = cluster::FlightStage::running;
    std::int64_t step = 0;
    std::string region;            // "epoch/step/forward"; "" if none is open
    double quiet_seconds = 0;      // since its last recorded activity
    double unwatched_seconds = 0;  // since its watchdog thread last ran; grows while the process is stopped
    int signal = 0;                // of cluster::FlightStage::signalled
    std::optional<FlightOperation> waiting;
    std::vector<FlightGroup> groups;
    std::vector<FlightOperation> operations;  // the last ones, oldest first
};

// Empty unless `path` is a complete recorder of this program. Returns at most `most_operations`.
std::optional<FlightState> read_flight(const std::string& path, std::size_t most_operations);

// Whether the process of this recorder is alive, even in another container.
bool flight_alive(const std::string& path);

}  // namespace lockstep::watch
