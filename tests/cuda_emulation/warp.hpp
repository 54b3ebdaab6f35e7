// Where threads of a block meet: the block's barrier, and the operations that the lanes of a mask carry out together.
//
// A warp operation is carried out once, by the last lane that arrives, on the arguments that the lanes keep on their
// stacks while they wait; so that no lane can overtake another's reading of a result.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace lockstep::emulation {

// Valid inside a kernel.
unsigned lane();
const char* kernel_name();
[[noreturn]] void fail(const std::string& what);  // ends the kernel: "kernel …, block …, thread …: what"
// Of the block's dynamic shared memory, 128-byte aligned.
void* shared_begin();
std::size_t shared_size();

enum class BarrierKind { plain, any, all, count };
int block_barrier(BarrierKind kind, int predicate);

struct WarpOperation {
    const char* name;
    void (*carry_out)(unsigned mask, void* const* arguments);  // one argument a lane
};
// Waits until every lane of `mask` is here.
void warp_collective(const WarpOperation& operation, unsigned mask, void* argument);

struct Shuffle {
    std::uint64_t value, result;
    int source;
};
struct Vote {
    bool predicate;
    unsigned result;
};
void carry_out_nothing(unsigned mask, void* const* arguments);
void carry_out_shuffle(unsigned mask, void* const* arguments);
void carry_out_vote(unsigned mask, void* const* arguments);

inline constexpr WarpOperation syncwarp{"__syncwarp", carry_out_nothing};
inline constexpr WarpOperation shfl{"__shfl_sync", carry_out_shuffle};
inline constexpr WarpOperation shfl_xor{"__shfl_xor_sync", carry_out_shuffle};
inline constexpr WarpOperation shfl_down{"__shfl_down_sync", carry_out_shuffle};
inline constexpr WarpOperation shfl_up{"__shfl_up_sync", carry_out_shuffle};
inline constexpr WarpOperation ballot{"__ballot_sync", carry_out_vote};
inline constexpr WarpOperation any{"__any_sync", carry_out_vote};
inline constexpr WarpOperation all{"__all_sync", carry_out_vote};

template <class T>
T shuffle(const WarpOperation& operation, unsigned mask, T value, int source) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "CUDA shuffles numbers of 32 and 64 bits");
    Shuffle argument{0, 0, source};
    std::memcpy(&argument.value, &value, sizeof(T));
    warp_collective(operation, mask, &argument);
    std::memcpy(&value, &argument.result, sizeof(T));
    return value;
}
inline unsigned vote(const WarpOperation& operation, unsigned mask, int predicate) {
    Vote argument{predicate != 0, 0};
    warp_collective(operation, mask, &argument);
    return argument.result;
}

}  // namespace lockstep::emulation
