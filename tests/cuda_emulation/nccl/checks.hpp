// What is checked when a function of nccl.h is called. A check that fails throws a Failure.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "cuda_emulation/nccl/ledger.hpp"

namespace lockstep::emulation::nccl {

struct Failure {
    ncclResult_t result;
    std::string sentence;
};

template <class... Arguments>
Failure failure(ncclResult_t result, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {result, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

void check_present();                     // NCCL is there at all
void check_handle(const ncclComm* comm);  // made, and neither destroyed nor aborted
void check_usable(const ncclComm* comm);  // … without error, and not in progress
void check_config(const ncclConfig_t* config);
void check_request(const Request& request, const ncclComm& comm);
void check_stream(const Request& request, cudaStream_t stream);  // not being captured
void check_buffers(const Operation& operation);

}  // namespace lockstep::emulation::nccl
