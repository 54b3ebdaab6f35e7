#include "ptx/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "ptx/block.hpp"
#include "ptx/decoder.hpp"
#include "ptx/state.hpp"
#include "ptx/traffic.hpp"
#include "ptx/warp.hpp"

namespace lockstep::ptx {

struct Module::Parts {
    std::vector<std::unique_ptr<Kernel>> kernels;
};

Module::Module(std::string_view text) : parts_(std::make_unique<Parts>()) {
    const ParsedModule parsed = parse(text);
    for (const Function& function : parsed.functions)
        if (function.entry && function.defined) parts_->kernels.push_back(decode(parsed, function));
}
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;

std::vector<const Kernel*> Module::kernels() const {
    std::vector<const Kernel*> result;
    for (const auto& kernel : parts_->kernels) result.push_back(kernel.get());
    return result;
}

const Kernel* Module::find(std::string_view name) const {
    for (const auto& kernel : parts_->kernels)
        if (kernel->shape.name == name) return kernel.get();
    return nullptr;
}

const KernelShape& shape(const Kernel& kernel) {
    return kernel.shape;
}

namespace {

constexpr std::uint32_t most_threads_of_block = 1024;

// Whether the architecture and the kernel's bounds allow the launch.
void check_resources(Launch& launch, std::uint32_t threads, std::uint32_t shared_bytes) {
    const auto refuse = [&](std::string text) {
        Finding finding{FindingKind::resources, launch.kernel.shape.name, {}, 0, 0, {}, 0, 0, std::move(text)};
        launch.findings.push_back(std::move(finding));
        launch.stopped = true;
    };
    const std::uint32_t bound = launch.kernel.shape.most_threads;
    if (shared_bytes > launch.options.most_shared_bytes)
        refuse(fmt::format("a block needs {} bytes of shared memory, and may have {}", shared_bytes,
                           launch.options.most_shared_bytes));
    if (threads == 0 || threads > most_threads_of_block)
        refuse(fmt::format("a block of {} threads; it may have 1 to {}", threads, most_threads_of_block));
    else if (bound != 0 && threads > bound)
        refuse(fmt::format("a block of {} threads; the kernel is compiled for {} at most", threads, bound));
}

}  // namespace

std::vector<Finding> run(const Kernel& kernel, Extent grid, Extent block, std::uint32_t dynamic_shared_bytes,
                         std::span<const std::byte> parameters, GlobalMemory& memory, const Options& options,
                         Counts* counts) {
    const KernelShape& shape = kernel.shape;
    const std::size_t needed =
        shape.parameter_offsets.empty() ? 0 : shape.parameter_offsets.back() + shape.parameter_bytes.back();
    if (parameters.size() < needed)
        throw usage_error("{} takes {} bytes of parameters, not {}", shape.name, needed, parameters.size());
    Launch launch{kernel,  grid,   block, dynamic_shared_bytes, parameters, MemoryAccess::of(memory),
                  options, counts, 0,     Random(options.seed)};
    const std::uint32_t threads = block.x * block.y * block.z;
    const std::uint32_t shared_bytes =
        dynamic_shared_bytes == 0 ? shape.static_shared_bytes : kernel.dynamic_shared_begin + dynamic_shared_bytes;
    check_resources(launch, threads, shared_bytes);
    if (launch.stopped) return std::move(launch.findings);
    const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
    if (blocks == 0) throw usage_error("{} is launched with a grid of no blocks", shape.name);
    launch.first_serial = launch.memory.take_serials(blocks);
    launch.reported.resize(kernel.code.size());
    launch.executed.resize(kernel.code.size());
    launch.executed_lanes.resize(kernel.code.size());
    BlockState state{launch, {}, 0, {}, {}, {}, {}, 1, threads};
    state.shared.resize(shared_bytes);
    state.shared_region.emplace(0, shared_bytes);
    for (std::uint32_t first = 0; first < threads; first += lane_count) {
        state.warps.push_back(std::make_unique<Warp>());
        make_warp(*state.warps.back(), launch, static_cast<int>(first / lane_count));
    }
    launch.blocks = blocks;
    launch.block_step = 1 + launch.random.below(blocks);
    while (std::gcd(launch.block_step, blocks) != 1) ++launch.block_step;
    launch.first_block = launch.random.below(blocks);
    for (std::uint64_t order = 0; order < blocks && !launch.stopped; ++order) run_block(launch, state, order);
    if (counts != nullptr) count_instructions(*counts, launch);
    return std::move(launch.findings);
}

}  // namespace lockstep::ptx
