// Runs PTX, the instructions that nvcc makes of a kernel, on the CPU: every lane of every warp, with checks that
// hardware does not make. PTX ISA 9.0; what it says of undefined behaviour is a finding here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ptx {

struct Extent {
    std::uint32_t x = 1, y = 1, z = 1;
};

struct Kernel;  // decoded

struct KernelShape {
    std::string name;                                               // mangled
    std::string target;                                             // "sm_90a"
    std::vector<std::uint32_t> parameter_offsets, parameter_bytes;  // as the launch packs them
    std::uint32_t most_threads = 0;                                 // of a block (.maxntid); 0: not said
    std::uint32_t static_shared_bytes = 0;
};

// One PTX text, decoded once. Error: an instruction it does not know, with its text and line.
class Module {
  public:
    explicit Module(std::string_view text);
    ~Module();
    Module(Module&&) noexcept;
    std::vector<const Kernel*> kernels() const;
    const Kernel* find(std::string_view name) const;  // nullptr: has none of this name

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};
const KernelShape& shape(const Kernel& kernel);

// The memory that kernels may address, which is the process's own, and which of its bytes have ever been written. Not
// for two threads at once, launches included.
class GlobalMemory {
  public:
    GlobalMemory();
    ~GlobalMemory();
    void add(const void* begin, std::size_t bytes);  // an allocation; nothing of it is written
    void remove(const void* begin);
    void mark_written(const void* begin, std::size_t bytes);  // by the host: a copy or a fill
    void mark_unwritten(const void* begin, std::size_t bytes);

  private:
    friend struct MemoryAccess;
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

enum class FindingKind {
    race_shared,
    race_global,
    never_written,  // a value of a register or of memory that nothing wrote decides a branch, an address or what is
                    // stored
    out_of_bounds,
    misaligned,
    barrier,            // not reached by all, or by a wrong number of threads
    collective,         // lanes of a mask meet at different instructions, or never
    asynchronous_copy,  // the target is used before it was waited for and made visible
    resources,          // more shared memory or threads than the architecture or the kernel's bounds allow
};
struct Finding {
    FindingKind kind;
    std::string kernel, file;  // file and line of the source, from .loc; the PTX line where there is none
    int line = 0, ptx_line = 0;
    Extent block;
    int warp = 0, lane = 0;
    std::string text;  // one sentence, with the other party of a race
};
std::string describe(const Finding& finding);

struct Options {
    // lockstep: lanes reconverge at the immediate post-dominator. split: at every divergence a warp falls apart and
    // meets again at its next collective only. Parts, warps and blocks run in an order drawn from the seed in both.
    enum class Schedule { lockstep, split } schedule = Schedule::lockstep;
    std::uint64_t seed = 0;
    enum class TensorSum { nearest, truncated } tensor_sum = TensorSum::nearest;  // how mma rounds when it accumulates
    std::uint32_t most_shared_bytes = 232448;  // a block's: 166912 on sm_80, 232448 on sm_90
    int most_findings = 20;
};

// Executed warp instructions, by kind and by line.
struct LineCounts {
    std::string file;
    int line = 0;
    std::uint64_t instructions = 0;
};
struct Counts {
    std::uint64_t instructions = 0, tensor = 0, special = 0, shared_loads = 0, shared_stores = 0, global_loads = 0,
                  global_stores = 0, asynchronous_copies = 0, barriers = 0, warp_barriers = 0, branches = 0,
                  converts = 0, floats = 0, integers = 0;
    std::uint64_t lane_instructions = 0;
    std::uint64_t shared_passes = 0;                     // one a conflict-free request of 128 bytes
    std::uint64_t global_sectors = 0, global_bytes = 0;  // of 32 bytes; bytes that lanes asked for
    // Different sectors of a launch: read before any write of the launch, and written. Caches spare all but these.
    std::uint64_t sectors_read = 0, sectors_written = 0;
    std::vector<LineCounts> lines;  // hottest first
};

// Runs one launch to its end, unless a finding makes going on senseless. `parameters`: as shape() lays them out.
std::vector<Finding> run(const Kernel& kernel, Extent grid, Extent block, std::uint32_t dynamic_shared_bytes,
                         std::span<const std::byte> parameters, GlobalMemory& memory, const Options& options,
                         Counts* counts = nullptr);

}  // namespace lockstep::ptx
