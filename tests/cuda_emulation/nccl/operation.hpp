// What a NCCL call asks for, and how it is named in errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl.h"

namespace lockstep::emulation::nccl {

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce, send, receive };

// What the ranks must agree on.
struct Request {
    Kind kind = Kind::all_reduce;
    std::int32_t type = 0;       // ncclDataType_t
    std::int32_t operation = 0;  // ncclRedOp_t, of reductions
    std::int32_t root = 0;       // rank in the communicator; of send and receive, the peer
    std::uint64_t count = 0;     // elements, as in the call
};

bool is_collective(Kind kind);
bool is_reduction(Kind kind);
bool same(const Request& one, const Request& other);
std::size_t element_bytes(std::int32_t type);  // 0 for a type that does not exist
std::string describe(const Request& request);  // "ncclReduce of 8 float32, sum, to rank 1"

}  // namespace lockstep::emulation::nccl
