// Where all ranks of a run are, from their flight recorders: who waits for whom, and who is waited for.
#pragma once

#include <string>
#include <vector>

#include "watch/flight_reader.hpp"

namespace lockstep::watch {

struct RankReport {
    FlightState flight;
    bool alive = true, stopped = false;
};

// One node's ranks, as its part of a report.
std::string node_report_text(const std::vector<RankReport>& ranks);
// Throws damaged_error for text that is none.
std::vector<RankReport> node_report_from(const std::string& text);

// A rank that others wait for while it waits for nobody.
struct Laggard {
    int rank = 0;
    std::string missing;       // "all-reduce 17 of replicas (32.00 MiB)"; "" where nothing is known to be missed
    std::vector<int> waiting;  // ranks that wait for it, ascending
};
// `ranks`: of which something was heard; there are `size` in all. Without anyone who is waited for: those that are
// stopped or gone, else those that wait for nothing.
std::vector<Laggard> find_laggards(const std::vector<RankReport>& ranks, int size);

// Seconds since a rank last did something that lives and waits for no other; infinite where there is none.
double quiet_of_working(const std::vector<RankReport>& ranks);

// "rank 2 (n1, process 4711) is stopped in step 11, epoch/step/backward; …"
std::string laggards_sentence(const std::vector<Laggard>& laggards, const std::vector<RankReport>& ranks, int size);

// The same, or that all ranks move where none has stood still for long.
std::string whereabouts_sentence(const std::vector<RankReport>& ranks, int size);

// The whole report: title and sentence, a table of the ranks, then each one's last communications.
std::string watch_report_text(const std::string& title, const std::string& sentence,
                              const std::vector<RankReport>& ranks, int size);

}  // namespace lockstep::watch
