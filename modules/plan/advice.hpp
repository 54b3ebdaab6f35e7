// Sentences about a plan: what takes the time, what rules out the next, what to change in the model's shape, and how
// many devices to ask for.
#pragma once

#include <string>
#include <vector>

#include "plan/search.hpp"

namespace lockstep::plan {

// "computing 71 %, tensor communication 9 %, …": the largest parts first, those above 1 %.
std::string time_parts_text(const cost::StepTime& time);
// "steps 2 h 10 min, validations 3 min, checkpoints 40 s"; "" where nothing but steps is counted.
std::string job_parts_text(const JobTime& time);
// Why the first is better than the second: the parts in which it wins, and those in which it loses.
std::string why_better(const Candidate& first, const Candidate& second);
// The fastest layout on the same number of devices that nearly fits, and what rules it out; "" where none is faster.
std::string what_rules_out(const SearchResult& result, const Candidate& chosen);
// That the chosen layout nearly fills the memory, and the fastest that does not; "" where it leaves room.
std::string less_full(const SearchResult& result, const Candidate& chosen);
// Why nothing works on so many devices: of the layout nearest to it. "" where none was priced.
std::string why_not_on(const SearchResult& result, std::int64_t devices);

// What the model's shape costs on this layout, and the nearest shape that does not: heads, widths, vocabulary. Each
// with what it would save of a step, at least 1 %.
std::vector<std::string> shape_advice(const config::Machine& machine, const cost::Job& job, const Candidate& best);

struct CountAdvice {
    std::vector<Candidate> best;  // of each count that has one, ascending
    std::size_t recommended = 0;  // index into best
    std::string why;
};
// The smallest count that meets the limits; without a deadline, the largest that still uses its devices well.
CountAdvice advise_count(const config::Machine& machine, const SearchResult& result, const Limits& limits);

}  // namespace lockstep::plan
