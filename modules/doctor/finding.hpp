// What the doctor has found: what, where, what to do.
#pragma once

#include <string>
#include <vector>

namespace lockstep::doctor {

struct Finding {
    std::string id;                  // "slow-node"; docs/doctor.md has one line for each
    std::string what;                // a sentence without its nodes
    std::vector<std::string> hosts;  // where; none: everywhere
    std::string advice;
    std::string source;  // a page or a report; "": this program's own measurement
};

}  // namespace lockstep::doctor
