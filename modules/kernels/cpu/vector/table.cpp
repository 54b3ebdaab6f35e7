#include "kernels/cpu/vector/vector.hpp"

#define LOCKSTEP_TEXT_OF(name) #name
#define LOCKSTEP_TEXT(name) LOCKSTEP_TEXT_OF(name)

namespace lockstep::kernels::cpu::LOCKSTEP_ISA {

extern const VectorFunctions functions;
constinit const VectorFunctions functions = {LOCKSTEP_TEXT(LOCKSTEP_ISA),
                                             &flat_functions,
                                             {&elementwise_fp32, &norm_fp32, &attention_fp32, &ttt_fp32, &delta_fp32},
                                             {&elementwise_bf16, &norm_bf16, &attention_bf16, &ttt_bf16, &delta_bf16}};

}  // namespace lockstep::kernels::cpu::LOCKSTEP_ISA
