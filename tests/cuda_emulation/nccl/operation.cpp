#include "cuda_emulation/nccl/operation.hpp"

#include <fmt/format.h>

#include <array>

namespace lockstep::emulation::nccl {
namespace {

constexpr std::array<const char*, 7> kind_names = {
    "ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclReduce", "ncclSend", "ncclRecv"};
constexpr std::array<const char*, 10> type_names = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                                    "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr std::array<std::size_t, 10> type_sizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr std::array<const char*, 5> operation_names = {"sum", "prod", "max", "min", "avg"};

}  // namespace

bool is_collective(Kind kind) {
    return kind != Kind::send && kind != Kind::receive;
}

bool is_reduction(Kind kind) {
    return kind == Kind::all_reduce || kind == Kind::reduce_scatter || kind == Kind::reduce;
}

bool same(const Request& one, const Request& other) {
    return one.kind == other.kind && one.type == other.type && one.operation == other.operation &&
           one.root == other.root && one.count == other.count;
}

std::size_t element_bytes(std::int32_t type) {
    return type >= 0 && type < static_cast<int>(type_sizes.size()) ? type_sizes[static_cast<std::size_t>(type)] : 0;
}

std::string describe(const Request& request) {
    std::string text = fmt::format("{} of {} {}", kind_names.at(static_cast<std::size_t>(request.kind)), request.count,
                                   type_names.at(static_cast<std::size_t>(request.type)));
    if (is_reduction(request.kind))
        text += fmt::format(", {}", operation_names.at(static_cast<std::size_t>(request.operation)));
    if (request.kind == Kind::broadcast || request.kind == Kind::receive)
        text += fmt::format(" from rank {}", request.root);
    if (request.kind == Kind::reduce || request.kind == Kind::send) text += fmt::format(" to rank {}", request.root);
    return text;
}

}  // namespace lockstep::emulation::nccl
