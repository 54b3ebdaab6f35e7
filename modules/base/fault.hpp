// Fault injection for tests: LOCKSTEP_FAULT=point:rank:step:action makes one rank fail at one place of one step.
// Several are separated by ','; rank or step '*' means any. Actions: kill (SIGKILL), stop (SIGSTOP), hang, throw, and
// words a point understands (nan, enospc, …). Compiled out of builds without tests.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::fault {

void set_position(int rank, long step);  // where this rank is; called by the training loop
// Carries out kill, stop, hang and throw; returns any other action's word, "" when nothing is injected here.
std::string at(std::string_view point);
inline bool asks(std::string_view point, std::string_view word) {
    return at(point) == word;
}

}  // namespace lockstep::fault
