// The operations and messages of one micro-batch that a program issues on one rank: of our own program counted, of a
// described one, whose code is not here, listed from what is known of it.
#pragma once

#include <vector>

#include "config/machine.hpp"
#include "cost/job.hpp"
#include "model/count.hpp"

namespace lockstep::cost {

struct ProgramCount {
    model::Count embedding, head;
    std::vector<model::Count> blocks;   // those that differ
    std::vector<std::size_t> block_of;  // [layer]: which of them it is
};
ProgramCount count_program(const config::Machine& machine, const Job& job, const ModelLoad& load, const Layout& layout);

// Why the program cannot have this model; "" if it can.
std::string why_unknown(const Job& job, const ModelLoad& load);

double bytes_of(config::Precision precision);  // a number

}  // namespace lockstep::cost
