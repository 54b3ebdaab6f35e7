// The state of all ranks, from their flight recorders: who waits for whom.
#pragma once

#include <string>
#include <vector>

#include "watch/flight_reader.hpp"

namespace lockstep::watch {

struct RankReport {
    FlightState flight;
    bool alive = true, stopped = false;
};

// One node's ranks: its part of a report.
std::string node_report_text(const std::vector<RankReport>& ranks);
// Throws damaged_error if the text is not a report.
std::vector<RankReport> node_report_from(const std::string& text);

// A rank that others wait for while it waits for none.
struct Laggard {
    int rank = 0;
    std::string missing;       // "all-reduce 17 of replicas (32.00 MiB)"; "" if unknown
    std::vector<int> waiting;  // the ranks that wait for it, ascending; only of the first most_named_laggards
};
// Laggards that a sentence names; only these list who waits, since half of the ranks may wait for the other half.
constexpr std::size_t most_named_laggards = 4;
// "all-reduce 17 of replicas (32.00 MiB)"
std::string operation_text(const FlightOperation& operation);

// `ranks`: those that reported, of `size`. If nobody is waited for: those that are stopped or gone, else those that
// wait for nothing.
std::vector<Laggard> find_laggards(const std::vector<RankReport>& ranks, int size);

// Seconds since the last activity of a live rank that is not waiting; infinite if there is none.
double quiet_of_working(const std::vector<RankReport>& ranks);

// "rank 2 (n1, process 4711) is stopped in step 11, epoch/step/backward; …", or between which ranks messages have
// stopped (blame.hpp). `hosts`: of every rank, or empty.
std::string laggards_sentence(const std::vector<Laggard>& laggards, const std::vector<RankReport>& ranks, int size,
                              const std::vector<std::string>& hosts = {});

// The same, or that all ranks are making progress if none has been quiet for long.
std::string progress_sentence(const std::vector<RankReport>& ranks, int size);

// The whole report: title and sentence, a table of ranks, and each one's last communications.
std::string watch_report_text(const std::string& title, const std::string& sentence,
                              const std::vector<RankReport>& ranks, int size);

}  // namespace lockstep::watch
