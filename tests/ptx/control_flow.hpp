// Where lanes that took different ways at a branch meet again.
#pragma once

#include "ptx/instruction.hpp"

namespace lockstep::ptx {

// Fills in Instruction::reconverge of every branch: the first instruction of the block that is its immediate
// post-dominator, code.size() where only the end of the kernel is.
void find_reconvergence(Kernel& kernel);

}  // namespace lockstep::ptx
