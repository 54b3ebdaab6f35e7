#include "doctor/schedule.hpp"

#include <algorithm>

namespace lockstep::doctor {
namespace {

Pair ordered(int a, int b) {
    return {std::min(a, b), std::max(a, b)};
}

}  // namespace

std::vector<Round> every_pair(int players) {
    // With an odd number one seat is empty, and who would meet it has a rest.
    const int seats = players + players % 2, circle = seats - 1;
    std::vector<Round> rounds;
    for (int turn = 0; turn < circle; ++turn) {
        Round round;
        const auto meet = [&](int a, int b) {
            if (a < players && b < players) round.push_back(ordered(a, b));
        };
        meet(turn, seats - 1);
        for (int step = 1; step < seats / 2; ++step) meet((turn + step) % circle, (turn + circle - step) % circle);
        if (!round.empty()) rounds.push_back(std::move(round));
    }
    return rounds;
}

std::vector<Round> enough_pairs(int players) {
    std::vector<Round> all = every_pair(players);
    if (players <= most_for_all_pairs) return all;
    // With an odd number of players each has one rest in all rounds.
    const auto wanted = static_cast<std::size_t>(fewest_others + players % 2);
    std::vector<Round> some;
    for (std::size_t i = 0; i < wanted; ++i) some.push_back(std::move(all[i * all.size() / wanted]));
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
