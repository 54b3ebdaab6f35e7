#include "cuda_emulation/block.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "cuda_emulation/emulation.hpp"
#include "cuda_emulation/fibers.hpp"
#include "cuda_emulation/shared_memory.hpp"
#include "cuda_emulation/warp.hpp"

uint3 threadIdx{};
uint3 blockIdx{};
dim3 blockDim;
dim3 gridDim;

namespace lockstep::emulation {

namespace {

constexpr unsigned lanes = 32, most_threads = 1024, most_warps = most_threads / lanes;

enum class State : std::uint8_t { running, at_barrier, at_warp_operation, returned };

struct Copy {
    void* to;
    const void* from;
    bool valid, done;
    unsigned group;
};

struct Thread {
    Fiber fiber;
    uint3 index{};
    unsigned number = 0;
    State state = State::running;
    const WarpOperation* operation = nullptr;  // where it waits
    unsigned mask = 0;
    void* argument = nullptr;
    std::vector<Copy> copies;
    unsigned groups = 0;  // of copies, closed so far
};

// Lanes of a warp that wait at one operation with one mask.
struct Meeting {
    const WarpOperation* operation;
    unsigned mask, arrived;
};

struct Warp {
    unsigned ready = 0, at_barrier = 0;
    unsigned meetings = 0;
    Meeting meeting[lanes];
};

// How the next thread is drawn among those that are ready; changes from block to block.
enum class Order { by_number, backwards, any, one_warp_first };

struct Engine {
    const Kernel* kernel = nullptr;
    unsigned threads = 0, alive = 0;
    unsigned ready_warps = 0;
    Order order = Order::by_number;
    unsigned first_warp = 0;
    Warp warp[most_warps];

    BarrierKind barrier = BarrierKind::plain;
    unsigned arrived = 0, true_count = 0;
    int barrier_result = 0;

    Fiber starter;
    Thread* current = nullptr;
    std::exception_ptr error;
    std::vector<std::unique_ptr<Stack>> stacks;
    std::vector<std::unique_ptr<Thread>> pool;
    SharedMemory shared;
};

Engine now;

std::string place(const dim3& grid, const uint3& at) {
    if (grid.z > 1) return fmt::format("({}, {}, {})", at.x, at.y, at.z);
    if (grid.y > 1) return fmt::format("({}, {})", at.x, at.y);
    return fmt::format("{}", at.x);
}

std::string block_text() {
    return fmt::format("kernel '{}', block {}", now.kernel->name, place(gridDim, blockIdx));
}

void make_ready(unsigned warp, unsigned mask) {
    now.warp[warp].ready |= mask;
    now.ready_warps |= 1u << warp;
}

// The first set bit at or after `from`, round the end.
unsigned next_bit(unsigned bits, unsigned from) {
    return (static_cast<unsigned>(std::countr_zero(std::rotr(bits, static_cast<int>(from)))) + from) % 32;
}

// Takes the thread that goes on out of the ready ones; none: nullptr.
Thread* take_next() {
    if (now.ready_warps == 0) return nullptr;
    unsigned warp = 0, lane = 0;
    switch (now.order) {
        case Order::by_number:
            warp = static_cast<unsigned>(std::countr_zero(now.ready_warps));
            lane = static_cast<unsigned>(std::countr_zero(now.warp[warp].ready));
            break;
        case Order::backwards:
            warp = 31 - static_cast<unsigned>(std::countl_zero(now.ready_warps));
            lane = 31 - static_cast<unsigned>(std::countl_zero(now.warp[warp].ready));
            break;
        case Order::any:
        case Order::one_warp_first: {
            const auto random = static_cast<unsigned>(draw());
            warp = next_bit(now.ready_warps, now.order == Order::any ? random % 32 : now.first_warp);
            lane = next_bit(now.warp[warp].ready, (random >> 8) % 32);
            break;
        }
    }
    now.warp[warp].ready &= ~(1u << lane);
    if (now.warp[warp].ready == 0) now.ready_warps &= ~(1u << warp);
    return now.pool[warp * lanes + lane].get();
}

void switch_to(Fiber& from, Thread& to) {
    now.current = &to;
    threadIdx = to.index;
    Fiber::switch_to(from, to.fiber);
}

// Back to the starter, which throws now.error; the block goes on nowhere.
[[noreturn]] void give_up() {
    Fiber::switch_to(now.current->fiber, now.starter);
    std::terminate();
}

std::string situation(const Thread& thread) {
    switch (thread.state) {
        case State::returned:
            return "returned";
        case State::at_barrier:
            return "at __syncthreads";
        case State::at_warp_operation:
            return fmt::format("at {} with mask 0x{:08x}", thread.operation->name, thread.mask);
        case State::running:
            break;
    }
    return "running";
}

// "threads 0-15 at __syncwarp with mask 0x0000ffff; threads 16-31 returned", the longest list cut.
std::string situations() {
    std::vector<std::pair<std::string, std::string>> list;  // what, who
    for (unsigned first = 0; first < now.threads;) {
        const std::string what = situation(*now.pool[first]);
        unsigned last = first;
        while (last + 1 < now.threads && situation(*now.pool[last + 1]) == what) ++last;
        const std::string who = first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
        const auto same =
            std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == what; });
        if (same == list.end())
            list.emplace_back(what, who);
        else if (same->second.size() < 60)
            same->second += ", " + who;
        else if (same->second.back() != '.')
            same->second += ", ...";
        first = last + 1;
    }
    std::string text;
    for (const auto& [what, who] : list) text += fmt::format("{}threads {} {}", text.empty() ? "" : "; ", who, what);
    return text;
}

// The thread that runs now has to wait, or has returned: another goes on.
void leave() {
    Thread& from = *now.current;
    Thread* next = take_next();
    if (next == &from) return;
    if (next == nullptr) {
        now.error = std::make_exception_ptr(
            fault_error("{}: its threads wait for one another for ever: {}. Every lane of a mask must call the same "
                        "warp function with "
                        "that mask, and every thread that has not returned must reach the same __syncthreads",
                        block_text(), situations()));
        give_up();
    }
    switch_to(from.fiber, *next);
}

void open_barrier() {
    switch (now.barrier) {
        case BarrierKind::plain:
            break;
        case BarrierKind::any:
            now.barrier_result = now.true_count > 0;
            break;
        case BarrierKind::all:
            now.barrier_result = now.true_count == now.arrived;
            break;
        case BarrierKind::count:
            now.barrier_result = static_cast<int>(now.true_count);
            break;
    }
    now.arrived = 0;
    now.true_count = 0;
    for (unsigned warp = 0; warp * lanes < now.threads; ++warp) {
        if (now.warp[warp].at_barrier != 0) make_ready(warp, now.warp[warp].at_barrier);
        now.warp[warp].at_barrier = 0;
    }
}

// A fiber runs one thread of every block.
void thread_body() {
    while (true) {
        Thread& self = *now.current;
        try {
            now.kernel->thread();
            if (!self.copies.empty())
                fail("returned with copies of copy_async_16 that it has not waited for (copy_async_wait<0>)");
        } catch (...) {
            now.error = std::current_exception();
        }
        if (now.error) give_up();
        self.state = State::returned;
        --now.alive;
        if (now.alive == 0) {
            Fiber::switch_to(self.fiber, now.starter);
            continue;
        }
        if (now.arrived == now.alive) open_barrier();
        leave();
    }
}

void run_block() {
    now.shared.poison();
    now.alive = now.threads;
    now.ready_warps = 0;
    now.arrived = now.true_count = 0;
    now.error = nullptr;
    now.order = Order::by_number;
    if (seed() != 0) {
        constexpr Order orders[] = {Order::any, Order::any, Order::one_warp_first, Order::backwards};
        now.order = orders[draw() % 4];
        now.first_warp = static_cast<unsigned>(draw() % ((now.threads + lanes - 1) / lanes));
    }
    for (unsigned warp = 0; warp * lanes < now.threads; ++warp) {
        const unsigned count = std::min(lanes, now.threads - warp * lanes);
        now.warp[warp].ready = now.warp[warp].at_barrier = now.warp[warp].meetings = 0;
        make_ready(warp, count == lanes ? ~0u : (1u << count) - 1);
    }
    for (unsigned number = 0; number < now.threads; ++number) {
        Thread& thread = *now.pool[number];
        thread.state = State::running;
        thread.copies.clear();
        thread.groups = 0;
        if (!thread.fiber.started()) thread.fiber.start(*now.stacks[number], thread_body);
    }
    switch_to(now.starter, *take_next());
    now.current = nullptr;
    if (now.error) {
        for (const auto& thread : now.pool) thread->fiber.abandon();  // what is left on their stacks is given up
        std::rethrow_exception(std::exchange(now.error, nullptr));
    }
    if (const std::string damage = now.shared.damage(); !damage.empty())
        throw fault_error("{}: a thread {}", block_text(), damage);
}

void prepare_threads() {
    while (now.pool.size() < now.threads) {
        now.stacks.push_back(std::make_unique<Stack>());
        now.pool.push_back(std::make_unique<Thread>());
    }
    for (unsigned number = 0; number < now.threads; ++number) {
        Thread& thread = *now.pool[number];
        thread.number = number;
        thread.index = {number % blockDim.x, number / blockDim.x % blockDim.y, number / blockDim.x / blockDim.y};
    }
}

}  // namespace

void check_launch(const Kernel& kernel) {
    const std::uint64_t threads = std::uint64_t{kernel.block.x} * kernel.block.y * kernel.block.z;
    constexpr std::size_t most_shared = 227 * 1024;
    if (threads == 0 || threads > most_threads)
        throw fault_error("kernel '{}': a block of {} threads; CUDA takes 1 to {}", kernel.name, threads, most_threads);
    if (kernel.grid.x == 0 || kernel.grid.y == 0 || kernel.grid.z == 0 || kernel.grid.x > 0x7fffffffu ||
        kernel.grid.y > 65535 || kernel.grid.z > 65535)
        throw fault_error("kernel '{}': a grid of {} x {} x {} blocks; CUDA takes 1 to 2147483647 x 65535 x 65535",
                          kernel.name, kernel.grid.x, kernel.grid.y, kernel.grid.z);
    if (kernel.shared_bytes > most_shared)
        throw fault_error("kernel '{}': {} bytes of shared memory; a block has {} at most", kernel.name,
                          kernel.shared_bytes, most_shared);
}

void run_blocks(const Kernel& kernel) {
    LOCKSTEP_ASSERT(now.current == nullptr);
    now.kernel = &kernel;
    now.threads = kernel.block.x * kernel.block.y * kernel.block.z;
    blockDim = kernel.block;
    gridDim = kernel.grid;
    prepare_threads();
    now.shared.resize(kernel.shared_bytes);
    const std::uint64_t blocks = std::uint64_t{kernel.grid.x} * kernel.grid.y * kernel.grid.z;
    // Block i * step + first, with a step that has no factor in common with the number of blocks.
    std::uint64_t first = 0, step = 1;
    if (seed() != 0) {
        first = draw() % blocks;
        do step = draw() % blocks + 1;
        while (std::gcd(step, blocks) != 1);
    }
    for (std::uint64_t i = 0; i < blocks; ++i) {
        const std::uint64_t block = (i * step + first) % blocks;
        blockIdx = {static_cast<unsigned>(block % kernel.grid.x),
                    static_cast<unsigned>(block / kernel.grid.x % kernel.grid.y),
                    static_cast<unsigned>(block / kernel.grid.x / kernel.grid.y)};
        run_block();
    }
}

bool in_shared_memory(const void* place, std::size_t bytes) {
    return now.shared.contains(place, bytes);
}

unsigned lane() {
    return now.current->number % lanes;
}

const char* kernel_name() {
    return now.kernel->name.c_str();
}

void* shared_begin() {
    return now.shared.begin();
}

std::size_t shared_size() {
    return now.shared.size();
}

void fail(const std::string& what) {
    throw fault_error("{}, thread {}: {}", block_text(), now.current->number, what);
}

int block_barrier(BarrierKind kind, int predicate) {
    Thread& self = *now.current;
    if (now.arrived > 0 && kind != now.barrier)
        fail("is at another kind of __syncthreads (plain, _or, _and, _count) than the threads that wait already");
    now.barrier = kind;
    now.true_count += predicate != 0;
    ++now.arrived;
    self.state = State::at_barrier;
    now.warp[self.number / lanes].at_barrier |= 1u << self.number % lanes;
    if (now.arrived == now.alive) open_barrier();
    leave();
    self.state = State::running;
    return now.barrier_result;
}

void warp_collective(const WarpOperation& operation, unsigned mask, void* argument) {
    Thread& self = *now.current;
    const unsigned number = self.number / lanes, bit = 1u << self.number % lanes;
    if ((mask & bit) == 0)
        fail(fmt::format("lane {} calls {} with mask 0x{:08x}, which does not contain it", lane(), operation.name,
                         mask));
    Warp& warp = now.warp[number];
    unsigned i = 0;
    while (i < warp.meetings && (warp.meeting[i].operation != &operation || warp.meeting[i].mask != mask)) ++i;
    if (i == warp.meetings) warp.meeting[warp.meetings++] = {&operation, mask, 0};
    warp.meeting[i].arrived |= bit;
    self.argument = argument;
    if (warp.meeting[i].arrived == mask) {
        warp.meeting[i] = warp.meeting[--warp.meetings];
        void* arguments[lanes] = {};
        for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
            const auto other = static_cast<unsigned>(std::countr_zero(rest));
            arguments[other] = now.pool[number * lanes + other]->argument;
        }
        operation.carry_out(mask, arguments);
        make_ready(number, mask);
    } else {
        self.operation = &operation;
        self.mask = mask;
        self.state = State::at_warp_operation;
    }
    leave();
    self.state = State::running;
}

void carry_out_nothing(unsigned, void* const*) {}

void carry_out_shuffle(unsigned mask, void* const* arguments) {
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        const auto own = static_cast<unsigned>(std::countr_zero(rest));
        auto& shuffle = *static_cast<Shuffle*>(arguments[own]);
        if (shuffle.source < 0 || shuffle.source >= static_cast<int>(lanes) || arguments[shuffle.source] == nullptr)
            fail(fmt::format("lane {} shuffles from lane {}, which is not in the mask 0x{:08x}", own, shuffle.source,
                             mask));
        shuffle.result = static_cast<const Shuffle*>(arguments[shuffle.source])->value;
    }
}

void carry_out_vote(unsigned mask, void* const* arguments) {
    unsigned votes = 0;
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        const auto own = static_cast<unsigned>(std::countr_zero(rest));
        votes |= static_cast<unsigned>(static_cast<const Vote*>(arguments[own])->predicate) << own;
    }
    for (unsigned rest = mask; rest != 0; rest &= rest - 1)
        static_cast<Vote*>(arguments[std::countr_zero(rest)])->result = votes;
}

namespace {

void carry_out(Copy& copy) {
    if (copy.done) return;
    copy.done = true;
    if (copy.valid)
        std::memcpy(copy.to, copy.from, 16);
    else
        std::memset(copy.to, 0, 16);
}

}  // namespace

// A copy may land at any time from its issue on: a seed lets half of them land at once, which shows when the place is
// still being read; the others land as late as allowed, which shows a missing wait.
void issue_copy(void* to, const void* from, bool valid) {
    if (!now.shared.contains(to, 16)) fail("copy_async_16 to a place outside the block's shared memory");
    if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0) fail("copy_async_16 to a place that is not 16-byte aligned");
    if (valid && reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
        fail("copy_async_16 from a place that is not 16-byte aligned");
    Thread& self = *now.current;
    self.copies.push_back({to, from, valid, false, self.groups});
    if (seed() != 0 && draw() % 2 == 0) carry_out(self.copies.back());
}

void commit_copies() {
    ++now.current->groups;
}

void await_copies(int pending) {
    Thread& self = *now.current;
    std::size_t done = 0;
    for (; done < self.copies.size() && self.copies[done].group + static_cast<unsigned>(pending) < self.groups; ++done)
        carry_out(self.copies[done]);
    self.copies.erase(self.copies.begin(), self.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace lockstep::emulation
