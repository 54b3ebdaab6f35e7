// A decoded kernel: a dense instruction for each statement, its operands as places in a warp's register file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/machine.hpp"
#include "ptx/parser.hpp"

namespace lockstep::ptx {

// A register of 32 lanes begins at a multiple of 64 bytes of the file: 1, 2 or 4 of them for 16, 32 or 64 bits a lane.
// A predicate is one word of 32 bits, in a file of its own. Constants and special registers are registers too.
using Slot = std::uint32_t;
constexpr Slot no_slot = ~Slot{0};
constexpr std::uint32_t slot_bytes = 64;

enum class Group : std::uint8_t { integer, floating, convert, predicate, memory, collective, tensor, control };

enum class Op : std::uint8_t {
    // integer
    add,
    sub,
    mul_low,
    mul_high,
    mul_wide,
    mad_low,
    mad_high,
    mad_wide,
    divide,
    remainder,
    minimum,
    maximum,
    absolute,
    negate,
    bit_and,
    bit_or,
    bit_xor,
    bit_not,
    shift_left,
    shift_right,
    insert,
    extract,
    find,
    find_shift,
    reverse,
    count_ones,
    leading_zeros,
    permute,
    funnel_left,
    funnel_right,
    logic3,
    move,
    pack,
    unpack,
    select,
    // floating, beside some of the above
    multiply,
    fma,
    copy_sign,
    reciprocal,
    square_root,
    exp2,
    log2,
    reciprocal_root,
    sine,
    cosine,
    tangent_h,
    // convert
    convert,
    convert_pair,
    to_generic,
    from_generic,
    // predicate: setp, and bit_* and move of predicates
    compare,
    // memory
    load,
    store,
    copy_async,
    commit_group,
    wait_group,
    wait_all,
    prefetch,
    // collective
    barrier,
    warp_barrier,
    shuffle,
    vote,
    active_mask,
    // tensor
    mma,
    load_matrix,
    move_matrix,
    // control
    branch,
    leave,
};

enum class Rounding : std::uint8_t { nearest, zero, down, up, nearest_integer, zero_integer, down_integer, up_integer };
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
enum class Combine : std::uint8_t { none, bit_and, bit_or, bit_xor };
enum class Space : std::uint8_t { generic, global, shared, local, parameter };
enum class Shuffle : std::uint8_t { index, butterfly, up, down };
enum class Vote : std::uint8_t { ballot, all, any, uniform };

struct Instruction {
    Group group = Group::control;
    Op op = Op::leave;
    Type type = Type::none;
    Type from = Type::none;  // the source's, of cvt
    Rounding rounding = Rounding::nearest;
    bool flush = false, saturate = false;  // .ftz, .sat
    bool guard_negated = false;
    // shf.wrap; ldmatrix.trans; a or b of setp's last operand negated; bra.uni; a conversion that reads the lower half
    // of a wide register only
    bool flag = false;
    std::uint8_t mode = 0;         // Compare, Shuffle, Vote, or the number of matrices
    std::uint8_t combine = 0;      // Combine
    std::uint8_t count = 1;        // elements of a vector
    std::uint8_t bytes = 0;        // of an element in memory
    std::uint8_t place_bytes = 0;  // of a destination's or stored register; of a converted source: from_bytes
    std::uint8_t from_bytes = 0;
    Space space = Space::generic;
    Slot guard = no_slot;
    Slot d = no_slot, a = no_slot, b = no_slot, c = no_slot;
    Slot second = no_slot;   // d|second; setp's combined predicate
    Slot fourth = no_slot;   // of bfi, and setp's operand
    std::uint32_t list = 0;  // where a list of slots begins in Kernel::lists
    std::uint32_t target = 0, reconverge = 0;
    std::int64_t offset = 0;         // of an address; an immediate
    std::int64_t source_offset = 0;  // of the address that cp.async reads, whose register is b
    std::uint64_t used_bytes = ~std::uint64_t{0};
    int ptx_line = 0;
    Location location;
};

constexpr unsigned code(Op op, Type type) {
    return static_cast<unsigned>(op) * 20 + static_cast<unsigned>(type);
}

enum class Special : std::uint8_t {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    lanemask_eq,
    lanemask_lt,
    lanemask_le,
    lanemask_gt,
    lanemask_ge,
    dynamic_smem_size,
    total_smem_size
};

struct Kernel {
    KernelShape shape;
    std::vector<Instruction> code;  // ends with Op::leave
    std::vector<Slot> lists;
    struct Constant {
        Slot slot;
        std::uint8_t bytes;
        std::uint64_t value;
    };
    std::vector<Constant> constants;
    struct SpecialSlot {
        Special special;
        Slot slot;
    };
    std::vector<SpecialSlot> specials;
    Slot slots = 0;       // of the file
    Slot predicates = 2;  // 0 is always true, 1 always false
    std::uint32_t local_bytes = 0, dynamic_shared_begin = 0;
    bool partial_barriers = false;   // bar.sync with a number of threads, or with an identifier other than 0
    std::vector<std::string> files;  // by Location::file
};

}  // namespace lockstep::ptx
