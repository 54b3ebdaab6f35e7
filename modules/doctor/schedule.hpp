// Who talks to whom, and when: rounds in which every player meets at most one other, so that no measurement disturbs
// another at its own ends.
#pragma once

#include <utility>
#include <vector>

namespace lockstep::doctor {

using Pair = std::pair<int, int>;  // the lower number first
using Round = std::vector<Pair>;

// Up to so many players every pair meets; above, each meets at least `fewest_others`.
constexpr int most_for_all_pairs = 64, fewest_others = 16;

// Every pair of players 0 … players - 1 once: a tournament by the circle method, in which one player stays in its place
// and the others move round it by one each round.
std::vector<Round> every_pair(int players);
// All rounds of the tournament, or, above most_for_all_pairs, some of them, evenly spaced.
std::vector<Round> enough_pairs(int players);
// These pairs, each once, in rounds.
std::vector<Round> in_rounds(const std::vector<Pair>& pairs);

}  // namespace lockstep::doctor
