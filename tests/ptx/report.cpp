// What the kernels execute at the sizes of real models, counted on the machine for PTX: for every kernel the warp
// instructions by kind, bank conflicts, sectors and bytes of global memory, the hottest lines, and the shortest time
// that these counts allow on an A100, an H100 and an H200. Widths, heads and lengths are those of training, with one
// sequence, or as many rows, since all blocks do the same.
//
//   ptx_report [--filter TEXT] [--format text|markdown|csv|json] [--lines N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "gpu_operations.hpp"
#include "kernels/cuda.hpp"
#include "ptx/counts.hpp"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

struct Choices {
    std::string filter, format = "text";
    int lines = 0;
};

// Of a data sheet: a bound on time, not a time.
struct Gpu {
    double multiprocessors, gigahertz;
    double tensor_flop, bytes_per_second;  // dense bf16
    double instructions_per_cycle = 4;     // warp instructions of a multiprocessor
};
constexpr Gpu a100 = {108, 1.41, 312e12, 1.555e12}, h100 = {132, 1.83, 989e12, 3.35e12},
              h200 = {132, 1.83, 989e12, 4.8e12};

double least_seconds(const ptx::Counts& counts, const Gpu& gpu) {
    constexpr double flop = 2.0 * 16 * 8 * 16, sector_bytes = 32;  // mma.m16n8k16
    const double cycles = gpu.multiprocessors * gpu.gigahertz * 1e9;
    return std::max({static_cast<double>(counts.instructions) / (gpu.instructions_per_cycle * cycles),
                     static_cast<double>(counts.shared_passes) / cycles,
                     static_cast<double>(counts.tensor) * flop / gpu.tensor_flop,
                     static_cast<double>(counts.global_sectors) * sector_bytes / gpu.bytes_per_second});
}

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

class Report {
  public:
    explicit Report(const Choices& choices)
        : choices_(choices),
          backend_(make_cuda_backend(open_gpu(0))),
          table_({{"operation", "operation"},
                  {"shape", "shape"},
                  {"kernel", "kernel"},
                  {"launches", "launches"},
                  {"warps", "warps"},
                  {"shared_bytes", "shared, B"},
                  {"instructions", "warp instructions"},
                  {"tensor", "tensor", 3},
                  {"special", "special", 3},
                  {"floats", "float", 3},
                  {"integers", "integer", 3},
                  {"converts", "convert", 3},
                  {"shared", "shared", 3},
                  {"global", "global", 3},
                  {"branches", "branch", 3},
                  {"barriers", "barriers"},
                  {"lanes", "lanes active", 1},
                  {"passes", "passes a shared access", 2},
                  {"sectors", "sectors a global access", 2},
                  {"megabytes", "MB asked for", 2},
                  {"a100_microseconds", "A100, at least us", 2},
                  {"h100_microseconds", "H100, at least us", 2},
                  {"h200_microseconds", "H200, at least us", 2}}),
          lines_({{"operation", "operation"},
                  {"kernel", "kernel"},
                  {"line", "line"},
                  {"instructions", "warp instructions"},
                  {"share", "share", 3}}) {}

    void count_all();
    void print() const {
        std::fputs((choices_.lines > 0 ? lines_ : table_).print(table_format(choices_.format)).c_str(), stdout);
    }

  private:
    void add(const bench::GpuOperation& one) {
        if ((one.name + " " + one.shape).find(choices_.filter) == std::string::npos) return;
        Arena measure(backend_->device());
        one.setup(measure);
        Arena arena(backend_->device(), measure.peak(), "a report");
        const bench::Run run = one.setup(arena);
        backend_->synchronize();
        ptx::count_launches(true);
        run();
        backend_->synchronize();
        ptx::count_launches(false);
        for (const ptx::KernelCounts& kernel : ptx::take_counts()) add_kernel(one.name, one.shape, kernel);
    }

    void add_kernel(const std::string& operation, const std::string& shape, const ptx::KernelCounts& one) {
        const ptx::Counts& c = one.counts;
        const std::uint64_t shared = c.shared_loads + c.shared_stores;
        const std::uint64_t global = c.global_loads + c.global_stores;
        const auto of_all = [&](std::uint64_t part) { return share(part, c.instructions); };
        const auto whole = [](std::uint64_t count) { return static_cast<std::int64_t>(count); };
        table_.add_row({operation,
                        shape,
                        one.kernel,
                        whole(one.launches),
                        whole(one.warps),
                        static_cast<std::int64_t>(one.most_shared_bytes),
                        whole(c.instructions),
                        of_all(c.tensor),
                        of_all(c.special),
                        of_all(c.floats),
                        of_all(c.integers),
                        of_all(c.converts),
                        of_all(shared),
                        of_all(global + c.asynchronous_copies),
                        of_all(c.branches),
                        whole(c.barriers),
                        share(c.lane_instructions, c.instructions),
                        share(c.shared_passes, shared),
                        share(c.global_sectors, global + c.asynchronous_copies),
                        static_cast<double>(c.global_bytes) * 1e-6,
                        least_seconds(c, a100) * 1e6,
                        least_seconds(c, h100) * 1e6,
                        least_seconds(c, h200) * 1e6});
        for (std::size_t i = 0; i < std::min<std::size_t>(c.lines.size(), static_cast<std::size_t>(choices_.lines));
             ++i) {
            const ptx::LineCounts& line = c.lines[i];
            lines_.add_row({operation, one.kernel,
                            line.file.substr(line.file.rfind('/') + 1) + fmt::format(":{}", line.line),
                            whole(line.instructions), of_all(line.instructions)});
        }
    }

    Choices choices_;
    std::unique_ptr<Backend> backend_;
    Table table_, lines_;
};

// Heads of which all do the same are left out: 12 and 25 of gpt2-124m and gpt2-1.5b, 12 of the TTT models.
void Report::count_all() {
    constexpr Type type = Type::bf16;
    bench::GpuOperations operations(*backend_);
    operations.attention({1, 1024, 1024, 2, 2, 64}, type);
    operations.ttt({false, 1, 2048, 1, 64, 16}, type);
    operations.ttt({true, 1, 2048, 1, 64, 16}, type);
    for (const std::int64_t width : {768, 1600}) {
        operations.norms(256, width, type);
        operations.activations(256, width, type);
        operations.small_operations(256, width, type);
    }
    for (const std::int64_t width : {64, 128}) operations.norms(4096, width, type);  // of heads: 16 of 256 tokens
    operations.head(8, 50257, type);
    operations.embedding(256, 768, 1000, type);
    operations.optimizer(1 << 20, type);
    for (const bench::GpuOperation& one : operations.list()) add(one);
}

void run(const Choices& choices) {
    Report report(choices);
    report.count_all();
    report.print();
}

}  // namespace

int main(int argc, char** argv) {
    Choices choices;
    CLI::App program("Counts what the kernels execute at the sizes of real models, on a machine that runs their PTX");
    program.add_option("--filter", choices.filter, "Only operations whose name and shape hold this text");
    program.add_option("--format", choices.format, "text, markdown, csv or json");
    program.add_option("--lines", choices.lines, "Instead, the N hottest source lines of each kernel")
        ->check(CLI::PositiveNumber);
    CLI11_PARSE(program, argc, argv);
    try {
        run(choices);
    } catch (const Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
