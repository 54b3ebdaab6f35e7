// What a launch, a block and a warp are while they run.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptx/global_memory.hpp"
#include "ptx/instruction.hpp"
#include "ptx/shadow.hpp"

namespace lockstep::ptx {

constexpr std::uint32_t all_lanes = ~0u;
constexpr int lane_count = 32, most_warps = 32;
constexpr std::uint32_t no_origin = ~0u;  // a register that nothing wrote

// Generic addresses: the process's own, or a window far outside it.
constexpr std::uint64_t window_mask = std::uint64_t{15} << 60, shared_window = std::uint64_t{1} << 60,
                        local_window = std::uint64_t{2} << 60, parameter_window = std::uint64_t{3} << 60;

// SplitMix64.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  private:
    std::uint64_t state_;
};

struct AsynchronousCopy {
    std::uint32_t to, bytes, group, pc;
    std::array<std::byte, 16> data;
    std::uint32_t written;  // which bytes of the source were
};

// Lanes of a warp that are at one place.
struct Part {
    std::uint32_t pc = 0, mask = 0;
    std::uint32_t reconverge = 0;  // where it ends; of the lockstep schedule's stack only
    bool waiting = false;          // at a collective
};

struct Warp {
    int index = 0;
    std::uint32_t existing = 0, live = 0;  // lanes; live: have not left
    struct FreeFile {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, FreeFile> file;
    std::vector<std::uint32_t> written;  // by slot: the lanes that were
    // Lanes whose lower half was, of a 64-bit register packed from two of which the upper one was not. nvcc takes such
    // pairs apart again.
    std::vector<std::uint32_t> low_written;
    std::vector<std::uint32_t> predicates, predicate_written;
    // Of what was never written, or computed from it: the instruction that loaded it, or no_origin.
    std::vector<std::uint32_t> origins, predicate_origins;

    // A stack in lockstep, the last on top; in any order where the warp is split.
    std::vector<Part> parts;
    bool split = false;
    enum class State { ready, at_barrier, done } state = State::ready;
    std::uint32_t barrier_pc = 0;

    // Happens-before. known[v]: accesses of warp v with an older clock are in order; lane_known the same for lanes of
    // this warp, and synchronised the oldest of it.
    std::uint32_t clock = 1, synchronised = 1;
    std::array<std::uint32_t, most_warps> known{};
    std::array<std::array<std::uint32_t, lane_count>, lane_count> lane_known{};

    std::array<std::vector<AsynchronousCopy>, lane_count> copies;
    std::array<std::uint32_t, lane_count> groups{};  // committed
    std::vector<std::byte> local;                    // of lane after lane
    std::vector<std::uint8_t> local_written;
};

struct Barrier {
    bool used = false;
    std::uint32_t expected = 0, arrived_threads = 0, arrived_warps = 0, pc = 0;
};

struct Launch {
    const Kernel& kernel;
    Extent grid, block;
    std::uint32_t dynamic_shared_bytes = 0;
    std::span<const std::byte> parameters;
    Allocations& memory;
    const Options& options;
    Counts* counts = nullptr;
    std::uint32_t first_serial = 0;
    Random random;
    // Blocks run in the order first_block, first_block + block_step, … modulo their number; serials count up with it.
    std::uint64_t blocks = 1, first_block = 0, block_step = 1;
    std::vector<Finding> findings{};
    std::vector<std::uint16_t> reported{};                      // by pc: kinds
    bool stopped = false;                                       // a finding makes going on senseless
    std::vector<std::uint64_t> executed{}, executed_lanes{};    // by pc
    std::unordered_map<std::uint64_t, std::uint8_t> sectors{};  // of global memory, touched while counting
};

struct BlockState {
    Launch& launch;
    Extent id;
    std::uint32_t serial = 0;
    std::vector<std::byte> shared;
    std::optional<Region> shared_region;
    std::vector<std::unique_ptr<Warp>> warps;
    std::array<Barrier, 16> barriers{};
    std::uint32_t phase = 1;  // the clock at the last barrier of all
    std::uint32_t threads = 0;
};

// The lanes that execute an instruction, and what they may touch.
struct Lanes {
    std::byte* file;
    std::uint32_t* written;
    std::uint32_t* predicates;
    std::uint32_t* predicate_written;
    std::uint32_t mask;
    std::uint32_t pc;
    Warp* warp;
    BlockState* block;
    Launch* launch;
    Region* last_region = nullptr;      // where a lane was last
    std::uint32_t defined = all_lanes;  // the lanes all of whose sources were written; begun for each instruction
    std::uint32_t origin = no_origin;

    template <class T>
    T* place(Slot slot) const {
        return reinterpret_cast<T*>(file + std::size_t{slot} * slot_bytes);
    }
    // A source of an instruction that only computes: where it was never written, neither is the result.
    template <class T>
    const T* in(Slot slot) {
        const std::uint32_t lanes = written[slot];
        defined &= lanes;
        if ((lanes & mask) != mask) [[unlikely]]
            origin = warp->origins[slot];
        return place<const T>(slot);
    }
    // One that has an effect: an address, what is stored for others. Never written, it is a finding.
    template <class T>
    const T* need(Slot slot) {
        if ((written[slot] & mask) != mask) [[unlikely]]
            report_never_written(mask & ~written[slot], warp->origins[slot]);
        return place<const T>(slot);
    }
    std::uint32_t predicate(Slot slot) {
        const std::uint32_t lanes = predicate_written[slot];
        defined &= lanes;
        if ((lanes & mask) != mask) [[unlikely]]
            origin = warp->predicate_origins[slot];
        return predicates[slot];
    }
    std::uint32_t need_predicate(Slot slot) {
        if ((predicate_written[slot] & mask) != mask) [[unlikely]]
            report_never_written(mask & ~predicate_written[slot], warp->predicate_origins[slot]);
        return predicates[slot];
    }
    void define(Slot slot) {
        written[slot] = (written[slot] & ~mask) | (defined & mask);
        if ((defined & mask) != mask) [[unlikely]] {
            warp->origins[slot] = origin;
            warp->low_written[slot] &= ~mask;
        }
    }
    template <class T>
    void put(Slot slot, const T (&values)[lane_count]) {
        T* const to = place<T>(slot);
        if (mask == all_lanes) {
            std::memcpy(to, values, sizeof values);
        } else {
            for (int lane = 0; lane < lane_count; ++lane) to[lane] = mask >> lane & 1 ? values[lane] : to[lane];
        }
        define(slot);
    }
    void put_predicate(Slot slot, std::uint32_t values) {
        if (slot == no_slot) return;
        predicates[slot] = (predicates[slot] & ~mask) | (values & mask);
        predicate_written[slot] = (predicate_written[slot] & ~mask) | (defined & mask);
        if ((defined & mask) != mask) [[unlikely]]
            warp->predicate_origins[slot] = origin;
    }

    // `from`: the instruction that first had the value.
    void report_never_written(std::uint32_t lanes, std::uint32_t from);
    // At most one of a kind at an instruction. `stop`: going on is senseless.
    void report(FindingKind kind, int lane, std::string text, bool stop = false);
    bool is_reported(FindingKind kind) const;
};

// "adamw.cu:88 (PTX line 424)"
std::string place_text(const Kernel& kernel, std::uint32_t pc);

void execute_integer(Lanes& lanes, const Instruction& one);
void execute_floating(Lanes& lanes, const Instruction& one);
void execute_convert(Lanes& lanes, const Instruction& one);
void execute_predicate(Lanes& lanes, const Instruction& one);
void execute_memory(Lanes& lanes, const Instruction& one);
void execute_collective(Lanes& lanes, const Instruction& one);  // the lanes have met
void execute_tensor(Lanes& lanes, const Instruction& one);

// Loops over lanes are compiled a second time for processors with AVX2, FMA and F16C.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_PTX_VECTOR __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define LOCKSTEP_PTX_VECTOR
#endif

}  // namespace lockstep::ptx
