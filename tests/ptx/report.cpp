// What the kernels execute at the sizes of real models, counted on the machine for PTX: for every kernel the warp
// instructions by kind, bank conflicts, sectors and bytes of global memory, the hottest lines, and the shortest time
// that these counts allow: of sm_90a's code on an H100 and an H200, of sm_80's (LOCKSTEP_PTX_ARCHITECTURE=sm_80) on an
// A100. Widths and lengths are those of training, with one sequence and one or two heads, or as many rows, since all
// blocks do the same.
//
//   ptx_report [--filter TEXT] [--format text|markdown|csv|json] [--lines N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/table.hpp"
#include "device/cuda/context.hpp"
#include "device/gpu.hpp"
#include "gpu_operations.hpp"
#include "kernels/cuda.hpp"
#include "ptx/counts.hpp"
#include "ptx/settings.hpp"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

struct Choices {
    std::string filter, format = "text";
    int lines = 0;
};

// Of a data sheet.
struct Gpu {
    const char *key, *title;
    double multiprocessors, gigahertz;
    double tensor_flop, bytes_per_second;  // dense bf16
    double instructions_per_cycle = 4;     // warp instructions of a multiprocessor
};
constexpr Gpu a100 = {"a100_microseconds", "A100 80 GB, at least us", 108, 1.41, 312e12, 2.039e12},
              h100 = {"h100_microseconds", "H100, at least us", 132, 1.83, 989e12, 3.35e12},
              h200 = {"h200_microseconds", "H200, at least us", 132, 1.83, 989e12, 4.8e12};

// Those that run the counted code.
std::vector<Gpu> gpus() {
    if (ptx::settings().architecture == 80) return {a100};
    return {h100, h200};
}

double distinct_bytes(const ptx::Counts& counts) {
    constexpr double sector_bytes = 32;
    return static_cast<double>(counts.sectors_read + counts.sectors_written) * sector_bytes;
}

// A bound, not a time: caches that keep all that a launch touches, and nothing of it before the launch.
double least_seconds(const ptx::Counts& counts, const Gpu& gpu) {
    constexpr double flop = 2.0 * 16 * 8 * 16;  // mma.m16n8k16
    const double cycles = gpu.multiprocessors * gpu.gigahertz * 1e9;
    return std::max({static_cast<double>(counts.instructions) / (gpu.instructions_per_cycle * cycles),
                     static_cast<double>(counts.shared_passes) / cycles,
                     static_cast<double>(counts.tensor) * flop / gpu.tensor_flop,
                     distinct_bytes(counts) / gpu.bytes_per_second});
}

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

class Report {
  public:
    explicit Report(const Choices& choices)
        : choices_(choices),
          backend_(make_cuda_backend(open_gpu(0))),
          gpus_(gpus()),
          table_(columns(gpus_)),
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
    static std::vector<Column> columns(const std::vector<Gpu>& gpus) {
        std::vector<Column> list = {{"operation", "operation"},
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
                                    {"warp_barriers", "warp barriers"},
                                    {"lanes", "lanes active", 1},
                                    {"passes", "passes a shared access", 2},
                                    {"sectors", "sectors a global access", 2},
                                    {"megabytes", "MB asked for", 2},
                                    {"distinct_megabytes", "MB at least", 2}};
        for (const Gpu& gpu : gpus) list.push_back({gpu.key, gpu.title, 2});
        return list;
    }

    void add(const bench::GpuOperation& one) {
        if ((one.name + " " + one.shape).find(choices_.filter) == std::string::npos) return;
        found_ = true;
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
        std::vector<Cell> row = {operation,
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
                                 whole(c.warp_barriers),
                                 share(c.lane_instructions, c.instructions),
                                 share(c.shared_passes, shared),
                                 share(c.global_sectors, global + c.asynchronous_copies),
                                 static_cast<double>(c.global_bytes) * 1e-6,
                                 distinct_bytes(c) * 1e-6};
        for (const Gpu& gpu : gpus_) row.emplace_back(least_seconds(c, gpu) * 1e6);
        table_.add_row(std::move(row));
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
    std::vector<Gpu> gpus_;
    Table table_, lines_;
    bool found_ = false;  // an operation that is wanted
};

// Heads of which all do the same are left out: 12 and 25 of gpt2-124m and gpt2-1.5b, 12 of the TTT models.
void Report::count_all() {
    constexpr Type type = Type::bf16;
    bench::GpuOperations operations(*backend_);
    operations.attention({1, 1024, 1024, 2, 2, 64}, type);
    operations.ttt({false, 1, 2048, 1, 64, 16}, type);
    operations.ttt({true, 1, 2048, 1, 64, 16}, type);
    operations.delta({1, 2048, 1, 1, 64, 64}, type);
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
    if (found_) return;
    std::vector<std::string> names;
    for (const bench::GpuOperation& one : operations.list())
        if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
    throw usage_error("--filter {}: no operation's name or shape holds that; there are {}", choices_.filter,
                      joined(names, "and"));
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
    program.add_option("--filter", choices.filter, "Only operations whose name and shape contain this text");
    program.add_option("--format", choices.format, "text, markdown, csv or json");
    program.add_option("--lines", choices.lines, "Instead, the N hottest source lines of each kernel")
        ->check(CLI::Range(1, 1000));
    try {
        program.parse(argc, argv);
        run(choices);
    } catch (const CLI::ParseError& problem) {
        return program.exit(problem) == 0 ? 0 : 2;
    } catch (const Error& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
