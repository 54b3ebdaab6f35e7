// Which nodes a run that hangs is to go on without, and between which ranks messages have stopped, as far as the flight
// recorders tell.
#pragma once

#include <string>
#include <vector>

#include "watch/watch_report.hpp"

namespace lockstep::watch {

// Host names, ascending, each once.
struct NodeBlame {
    std::vector<std::string> lost;  // none of its ranks reported, or all are gone
    std::vector<std::string>
        suspected;  // has a rank that others wait for, or is cut off from more nodes than it is with
};

// Ranks that wait in an operation which others have left, or for a message of another.
struct Silence {
    std::vector<int> from, to;  // nothing of `from` reaches `to`; `from` empty: nobody is seen to have left it
    std::string operation;      // "all-reduce 17 of replicas (32.00 MiB)"
    double seconds = 0;         // the longest wait
    bool knows_members = true;  // of the operation's group: else who has left it is not known
};

// The longest first. Empty if a rank that does not wait itself holds up the others: that explains all.
std::vector<Silence> find_silence(const std::vector<RankReport>& ranks, int size);

// "nothing from rank 1 (n2) has reached ranks 0,2 (n1, n3) for 5.3 s, in all-reduce 263 of control (48 B)". "" if
// empty.
std::string silence_sentence(const std::vector<Silence>& silence, const std::vector<RankReport>& ranks);

// `hosts`: of every rank of the launch.
NodeBlame blamed_nodes(const std::vector<RankReport>& ranks, const std::vector<std::string>& hosts);

}  // namespace lockstep::watch
