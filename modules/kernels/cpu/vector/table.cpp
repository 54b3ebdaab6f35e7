#include "kernels/cpu/vector/vector.hpp"

#define LOCKSTEP_TEXT_OF(name) #name
#define LOCKSTEP_TEXT(name) LOCKSTEP_TEXT_OF(name)

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

extern const VectorFunctions functions;
constinit const VectorFunctions functions = {LOCKSTEP_TEXT(LOCKSTEP_ISA),
                                             &elementwise_functions,
                                             &norm_functions,
                                             &attention_functions,
                                             {&ttt_fp32},
                                             {&ttt_bf16}};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
