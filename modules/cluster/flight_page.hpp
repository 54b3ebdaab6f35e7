// One rank's flight recorder: the layout of the memory that other processes of the node read while it is written. Only
// the flight_* files include this.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::cluster {

struct FlightPage {
    static constexpr std::uint64_t expected_magic = 0x3267696c66736b6c;  // identifies this layout
    static constexpr std::size_t most_groups = 32, most_regions = 512, kept_operations = 256;

    struct Group {
        std::array<char, 32> name{};
        std::array<char, 224> members{};                           // rank_list_text; "" if too long
        std::atomic<std::uint64_t> collectives = 0, messages = 0;  // number begun
    };
    struct Operation {
        std::atomic<std::uint64_t> sequence = 0;  // of all operations, from 1; written last
        std::uint64_t number = 0;                 // among its group's collectives or messages, from 1
        std::uint64_t bytes = 0;
        double begun = 0;              // seconds_now()
        std::atomic<double> done = 0;  // 0: pending
        std::int32_t group = 0, kind = 0, peer = -1, on_device = 0;
    };
    using Name = std::array<char, 96>;

    std::uint64_t magic = expected_magic, bytes = sizeof(FlightPage);
    std::int32_t rank = 0, ranks = 1;
    std::int64_t process = 0;
    Name host{};
    std::atomic<std::int32_t> stage = 0;   // FlightStage
    std::atomic<std::int32_t> signal = 0;  // of FlightStage::signalled
    std::atomic<std::int32_t> region = -1;
    std::atomic<std::int64_t> step = 0;
    std::atomic<std::uint64_t> events = 0;   // incremented by any activity of this rank
    std::atomic<std::uint64_t> waiting = 0;  // sequence of the operation it waits for; 0: none
    std::atomic<double> moved = 0;           // when `events` last changed
    std::atomic<double> watched = 0;         // when it was last checked
    std::atomic<std::uint32_t> groups = 0, regions = 0;
    std::atomic<std::uint64_t> operations = 0;
    std::array<Group, most_groups> group;
    std::array<Name, most_regions> region_name{};
    std::array<Operation, kept_operations> operation;
};
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "other processes read them");

}  // namespace lockstep::cluster
