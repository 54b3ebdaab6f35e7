// Fault injection for tests: LOCKSTEP_FAULT=point:rank:step:action makes a rank fail at one point of one step. Several
// are separated by ','; rank or step '*' means any. Actions: kill (SIGKILL), stop (SIGSTOP), hang, throw, disconnect
// (throws a connection error), and words that a point defines (nan, enospc, …). Compiled out of builds without
// tests.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::fault {

void set_position(int rank, long step);  // called by the training loop
// Performs kill, stop, hang, throw and disconnect; returns any other action's word, "" if none is injected here.
std::string at(std::string_view point);
inline bool asks(std::string_view point, std::string_view word) {
    return at(point) == word;
}

}  // namespace lockstep::fault
