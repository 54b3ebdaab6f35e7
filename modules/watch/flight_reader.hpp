// Reads the flight recorders of the ranks of this node: of living, stopped and killed ones alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/flight_recorder.hpp"

namespace lockstep::watch {

struct FlightOperation {
    std::uint64_t number = 0;  // among its group's collectives, or its messages, from 1
    std::string group;
    cluster::FlightKind kind = cluster::FlightKind::barrier;
    std::uint64_t bytes = 0;
    int peer = -1;  // of a message: a rank of the world
    bool on_device = false, done = false;
    double begun_ago = 0, seconds = 0;  // since it began; until it ended, or until now
};

struct FlightGroup {
    std::string name;
    std::string members;  // ranks of the world (rank_list.hpp); "" where they are too many to note
    std::uint64_t collectives = 0, messages = 0;  // begun
};

struct FlightState {
    int rank = 0, ranks = 1;
    std::int64_t process = 0;
    std::string host;
    cluster::FlightStage stage = cluster::FlightStage::running;
    std::int64_t step = 0;
    std::string region;            // "epoch/step/forward"; "" where none is open
    double quiet_seconds = 0;      // since it was last seen to do anything
    double unwatched_seconds = 0;  // since the thread that looks at it last ran: of a stopped process it does not
    int signal = 0;                // of cluster::FlightStage::signalled
    std::optional<FlightOperation> waiting;
    std::vector<FlightGroup> groups;
    std::vector<FlightOperation> operations;  // the last ones, oldest first
};

// Nothing where `path` is not a whole recorder of this program. At most `most_operations` are taken.
std::optional<FlightState> read_flight(const std::string& path, std::size_t most_operations);

// Whether the process that shares this recorder lives, in whatever container.
bool flight_alive(const std::string& path);

}  // namespace lockstep::watch
