#include "doctor/schedule.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep::doctor {
namespace {

Pair ordered(int a, int b) {
    return {std::min(a, b), std::max(a, b)};
}

// With an odd number one seat is empty, and who would meet it has a rest.
int seats_of(int players) {
    return players + players % 2;
}

Round round_of(int players, int turn) {
    const int seats = seats_of(players), circle = seats - 1;
    Round round;
    const auto meet = [&](int a, int b) {
        if (a < players && b < players) round.push_back(ordered(a, b));
    };
    meet(turn, seats - 1);
    for (int step = 1; step < seats / 2; ++step) meet((turn + step) % circle, (turn + circle - step) % circle);
    return round;
}

}  // namespace

std::vector<Round> every_pair(int players) {
    std::vector<Round> rounds;
    for (int turn = 0; turn + 1 < seats_of(players); ++turn)
        if (Round round = round_of(players, turn); !round.empty()) rounds.push_back(std::move(round));
    return rounds;
}

std::vector<Round> enough_pairs(int players) {
    if (players <= most_for_all_pairs) return every_pair(players);
    // With an odd number of players each has one rest in all rounds.
    const int wanted = fewest_others + players % 2, turns = seats_of(players) - 1;
    std::vector<Round> some;
    for (std::int64_t i = 0; i < wanted; ++i) some.push_back(round_of(players, static_cast<int>(i * turns / wanted)));
    return some;
}

std::vector<Round> in_rounds(const std::vector<Pair>& pairs) {
    std::vector<Round> rounds;
    for (const Pair& pair : pairs) {
        const auto is_free = [&](const Round& round) {
            return std::none_of(round.begin(), round.end(), [&](const Pair& other) {
                return other.first == pair.first || other.first == pair.second || other.second == pair.first ||
                       other.second == pair.second;
            });
        };
        const auto place = std::find_if(rounds.begin(), rounds.end(), is_free);
        if (place == rounds.end())
            rounds.push_back({pair});
        else
            place->push_back(pair);
    }
    return rounds;
}

}  // namespace lockstep::doctor
