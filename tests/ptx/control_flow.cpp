#include "ptx/control_flow.hpp"

#include <algorithm>

namespace lockstep::ptx {

namespace {

constexpr std::uint32_t undefined = ~0u;

struct Block {
    std::uint32_t begin = 0, last = 0;
    std::vector<std::uint32_t> after, before;  // indices of blocks
};

// The blocks, and one behind the last that stands for the end of the kernel.
std::vector<Block> blocks_of(const Kernel& kernel) {
    const auto size = static_cast<std::uint32_t>(kernel.code.size());
    std::vector<bool> begins(size + 1, false);
    begins[0] = begins[size] = true;
    for (std::uint32_t i = 0; i < size; ++i) {
        const Instruction& one = kernel.code[i];
        if (one.op == Op::branch) begins[one.target] = true;
        if (one.op == Op::branch || one.op == Op::leave) begins[i + 1] = true;
    }
    std::vector<Block> blocks;
    std::vector<std::uint32_t> block_at(size + 1);
    for (std::uint32_t i = 0; i <= size; ++i) {
        if (begins[i]) blocks.push_back({i, i, {}, {}});
        blocks.back().last = i;
        block_at[i] = static_cast<std::uint32_t>(blocks.size() - 1);
    }
    const auto end = static_cast<std::uint32_t>(blocks.size() - 1);
    const auto connect = [&](std::uint32_t from, std::uint32_t to) {
        blocks[from].after.push_back(to);
        blocks[to].before.push_back(from);
    };
    for (std::uint32_t i = 0; i < end; ++i) {
        const Instruction& last = kernel.code[blocks[i].last];
        const bool always = last.guard == no_slot;
        if (last.op == Op::branch) connect(i, block_at[last.target]);
        if (last.op == Op::leave) connect(i, end);
        if (!(always && (last.op == Op::branch || last.op == Op::leave))) connect(i, i + 1);
    }
    return blocks;
}

}  // namespace

// Cooper, Harvey, Kennedy: A simple, fast dominance algorithm; on the reversed graph.
void find_reconvergence(Kernel& kernel) {
    const auto blocks = blocks_of(kernel);
    const auto count = static_cast<std::uint32_t>(blocks.size());
    const std::uint32_t end = count - 1;
    std::vector<std::uint32_t> order, number(count, undefined);  // number: in postorder from the end
    std::vector<std::pair<std::uint32_t, std::size_t>> stack{{end, 0}};
    std::vector<bool> seen(count, false);
    seen[end] = true;
    while (!stack.empty()) {
        auto& [block, next] = stack.back();
        if (next < blocks[block].before.size()) {
            const auto before = blocks[block].before[next++];
            if (!seen[before]) {
                seen[before] = true;
                stack.emplace_back(before, 0);
            }
        } else {
            number[block] = static_cast<std::uint32_t>(order.size());
            order.push_back(block);
            stack.pop_back();
        }
    }
    std::vector<std::uint32_t> dominator(count, undefined);
    dominator[end] = end;
    for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t i = order.size(); i-- > 0;) {
            const auto block = order[i];
            if (block == end) continue;
            std::uint32_t meet = undefined;
            for (auto other : blocks[block].after) {
                if (number[other] == undefined || dominator[other] == undefined) continue;
                if (meet == undefined) {
                    meet = other;
                    continue;
                }
                while (meet != other) {
                    while (number[meet] < number[other]) meet = dominator[meet];
                    while (number[other] < number[meet]) other = dominator[other];
                }
            }
            if (dominator[block] != meet) {
                dominator[block] = meet;
                changed = true;
            }
        }
    }
    for (std::uint32_t i = 0; i < end; ++i) {
        Instruction& last = kernel.code[blocks[i].last];
        if (last.op != Op::branch) continue;
        last.reconverge = dominator[i] == undefined ? blocks[end].begin : blocks[dominator[i]].begin;
    }
}

}  // namespace lockstep::ptx
