// lockstep bench: measures this machine's kernels, links and disk; prints the rates or writes them for lockstep plan.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/fault.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/table.hpp"
#include "base/version.hpp"
#include "base/whole_file.hpp"
#include "calibrate/calibration.hpp"
#include "calibrate/kept_rounds.hpp"
#include "calibrate/other_load.hpp"
#include "cluster/agree.hpp"
#include "cluster/session.hpp"
#include "command.hpp"
#include "config/machine.hpp"
#include "device/gpu.hpp"
#include "device/parallel.hpp"
#include "layout/devices.hpp"

namespace lockstep::commands {
namespace {

struct Options {
    std::string out, device = "auto", precision = "all", folder = ".", format = "text";
    bool quick = false, busy = false;
};

// How long other programs are watched before anything is measured.
constexpr double watched_seconds = 1, quick_watched_seconds = 0.2;

// Sleep of the node's other ranks while one rank uses all cores.
constexpr double team_seconds = 1.5, quick_team_seconds = 0.3;

int cores_of(const cluster::Placement& placement) {
    std::set<int> units;
    for (const cluster::RankSeat& seat : placement.map.seats)
        for (const int unit : seat.cores.units()) units.insert(unit);
    return std::max(1, static_cast<int>(units.size()));
}

// Of this machine's GPUs, taken to be alike.
int multiprocessors() {
    const Gpus gpus = find_gpus();
    return gpus.list.empty() ? 0 : gpus.list.front().multiprocessors;
}

int gpus_of(const cluster::Placement& placement) {
    std::set<std::string> gpus;
    for (const cluster::RankSeat& seat : placement.map.seats) gpus.insert(seat.gpu);
    return std::max(1, static_cast<int>(gpus.size()));
}

// The share that other programs use of a node's cores while its ranks sleep; of the busiest node. Collective.
double other_work(const cluster::Session& session, const layout::Devices& devices, double seconds,
                  cluster::HostGroup& control) {
    cluster::CpuSet cores = session.allowed();
    for (const cluster::RankSeat& seat : devices.placement.map.seats) cores = cores | seat.cores;
    control.barrier();
    double busy = calibrate::busy_cores_now(cores, seconds).value_or(0) / std::max(1, cores.size());
    if (fault::asks("bench_busy", "busy")) busy = 1;
    std::vector<double> most = {std::min(busy, 1.0)};
    control.all_reduce(most, cluster::Reduce::maximum);
    return most[0];
}

// Compares one rank on all cores of its node with one single-threaded rank per core. An efficiency E on all c cores
// becomes E^(ln t / ln c) on t threads.
struct Team {
    double efficiency = 1, us = 0;
};
Team measure_team_once(const cluster::Session& session, layout::Devices& devices,
                       const calibrate::CalibrationRank& rank, bool quick, const config::Rates& rates) {
    const double threads_of_rank = rates.threads, cores = rates.cores;
    rank.control.barrier();
    const calibrate::TeamProbe own = calibrate::probe_team(rank, quick);
    const double busy = rank.control.all_sum(own.flop_per_second) / session.size();
    calibrate::TeamProbe other = own;
    const bool alone = session.place().local_ranks == 1;
    if (alone) {
        set_threads(1);
        other = calibrate::probe_team(rank, quick);
        set_threads(devices.placement.seat().threads);
    } else if (session.rank() == 0) {
        cluster::Placement all = devices.placement;
        all.map = cluster::map_ranks(all.hardware, {{session.allowed(), {}}});
        all.local_rank = 0;
        cluster::take_seat(all, false, true);
        other = calibrate::probe_team(rank, quick);
        cluster::take_seat(devices.placement, false, true);
    } else {
        std::this_thread::sleep_for(std::chrono::duration<double>(quick ? quick_team_seconds : team_seconds));
    }
    rank.control.barrier();
    const calibrate::TeamProbe& of_all = alone ? own : other;
    const calibrate::TeamProbe& of_one = alone ? other : own;
    const double of_threads = alone ? 1 : threads_of_rank;  // of that rank
    const double reached = of_all.flop_per_second / (alone ? other.flop_per_second : busy) * of_threads / cores;
    const double part = 1 - std::log(of_threads) / std::log(cores);
    std::vector<double> found = {
        part > 0 ? std::min(1.0, std::pow(reached, 1 / part)) : 1,
        std::max(0.0, of_all.operation_seconds - of_one.operation_seconds * of_threads / cores)};
    rank.control.broadcast(found.data(), found.size() * sizeof(double), 0);
    return {found[0], found[1] * 1e6};
}

// A pause of the machine spoils one of three.
void measure_team(const cluster::Session& session, layout::Devices& devices, const calibrate::CalibrationRank& rank,
                  bool quick, config::Rates& rates) {
    if (devices.on_gpu() || rates.cores < 2) return;
    std::vector<double> efficiency, us;
    for (int i = 0; i < (quick ? 1 : 3); ++i) {
        const Team team = measure_team_once(session, devices, rank, quick, rates);
        efficiency.push_back(team.efficiency);
        us.push_back(team.us);
    }
    std::sort(efficiency.begin(), efficiency.end());
    std::sort(us.begin(), us.end());
    rates.team_efficiency = efficiency[efficiency.size() / 2];
    rates.team_us = us[us.size() / 2];
}

std::string origin_of(const config::Rates& rates, const cluster::Session& session) {
    std::string text =
        fmt::format("measured {} on {} by {} rank{} x {} thread{} of lockstep {} ({})", utc_now(), session.place().host,
                    session.size(), plural(session.size()), rates.threads, plural(rates.threads), version(), commit());
    if (session.size() == 1) text += "; a single rank: links are not measured";
    if (session.size() == session.place().local_ranks) text += "; a single node: the network is not measured";
    return text;
}

config::Machine machine_of(const config::Rates& rates, const layout::Devices& devices,
                           const cluster::Session& session) {
    config::Machine machine;
    machine.name = devices.name;
    machine.origin = origin_of(rates, session);
    machine.rates = rates;
    auto& device = machine.device;
    device.per_node = rates.cores;
    if (devices.on_gpu()) {
        device.kind = config::MachineKind::gpu;
        // Free memory with this process resident: its fixed share is already excluded.
        device.memory_gib = static_cast<double>(devices.free_memory()) / (1 << 30);
        device.units = multiprocessors();
        machine.memory.fixed_gb = 0;
    } else {
        device.kind = config::MachineKind::cpu;
        device.units = 1;
        double bytes = 0;
        for (const auto& node : devices.placement.hardware.numa_nodes) bytes += static_cast<double>(node.bytes);
        device.memory_gib = std::max(bytes / (1 << 30), 1e-3);
    }
    const double devices_a_rank = devices.on_gpu() ? 1 : rates.threads;
    const auto a_device = [&](double value, double otherwise) {
        return value > 0 ? value / devices_a_rank : otherwise;
    };
    device.peak_tflops_fp32 =
        a_device(rates.fp32.layer.forward.tflops, a_device(rates.bf16.layer.forward.tflops, 1) / 2);
    device.peak_tflops = a_device(rates.bf16.layer.forward.tflops, device.peak_tflops_fp32);
    device.memory_gb_per_second = a_device(rates.norm_gb_per_second, 1);
    machine.node_link.gb_per_second =
        rates.messages.gb_per_second > 0 ? rates.messages.gb_per_second : device.memory_gb_per_second / 2;
    machine.node_link.latency_us = rates.messages.latency_us;
    return machine;
}

Table table_of(config::Rates rates) {
    Table table({{"rate", "rate"}, {"value", "value", 3}, {"meaning", "meaning"}});
    std::vector<config::Key> keys;
    rates.add_keys(keys);
    for (const config::Key& key : keys) {
        const double value = *std::get<double*>(key.member);
        if (value > 0) table.add_row({key.path.substr(key.path.find('.') + 1), value, key.meaning});
    }
    return table;
}

void check(const Options& options) {
    if (options.precision != "all" && options.precision != "fp32" && options.precision != "bf16")
        throw usage_error("--precision {} is unknown; use fp32, bf16 or all", options.precision);
}

// Whether write_whole_file can succeed; leaves nothing behind. The folder must be writable: the file is renamed into
// it.
void check_writable(const std::string& path) {
    std::error_code none;
    const auto status = std::filesystem::status(path, none);
    if (std::filesystem::is_directory(status)) throw usage_error("{} cannot be written: it is a folder", path);
    const std::filesystem::path folder = std::filesystem::absolute(path, none).parent_path();
    const bool new_one = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
    if ((std::filesystem::exists(status) && access(path.c_str(), W_OK) != 0) ||
        (new_one && access(folder.c_str(), W_OK | X_OK) != 0))
        throw usage_error("{} cannot be written: {}", path, system_error_text());
}

// Whatever the times of a round depend on.
std::string settings_of(const Options& options, const cluster::Session& session,
                        const calibrate::CalibrationOptions& calibration) {
    return fmt::format(
        "commit {}, host {}, {} ranks, {} on the node, {} threads, device {}, fp32 {}, bf16 {}, quick {}", commit(),
        session.place().host, session.size(), session.place().local_ranks, threads(), options.device, calibration.fp32,
        calibration.bf16, options.quick);
}

// Rank 0 reads them; the others have the times alone. Collective.
calibrate::KeptRounds rounds_of_all(const std::string& path, const std::string& settings, cluster::HostGroup& control) {
    calibrate::KeptRounds kept;
    cluster::on_root(control, [&] { kept = calibrate::read_rounds(path, settings); });
    auto& times = kept.seconds;
    std::vector<std::int64_t> extent = {static_cast<std::int64_t>(times.size()),
                                        times.empty() ? 0 : static_cast<std::int64_t>(times.front().size())};
    control.broadcast(extent.data(), extent.size() * sizeof extent[0], 0);
    times.resize(static_cast<std::size_t>(extent[0]), std::vector<double>(static_cast<std::size_t>(extent[1])));
    for (std::vector<double>& of_one : times) control.broadcast(of_one.data(), of_one.size() * sizeof(double), 0);
    if (control.rank() == 0 && extent[1] > 0)
        log::info("resuming after {} finished round{} of {}", extent[1], plural(extent[1]), path);
    return kept;
}

int measure(const Options& options, cluster::Session& session, TableFormat format) {
    const auto control = session.make_world_group();
    layout::Devices devices =
        layout::open_devices(config::from_word<config::DeviceChoice>(options.device, "--device"), session, true);
    // Fail on an unwritable file before measuring for a minute.
    cluster::on_root(*control, [&] {
        if (!options.out.empty()) check_writable(options.out);
    });
    std::vector<int> all(static_cast<std::size_t>(session.size()));
    std::iota(all.begin(), all.end(), 0);
    const auto neighbours = devices.communicators->make(all, cluster::Use::transfers, "neighbours");
    const calibrate::CalibrationRank rank{*devices.backend,
                                          *control,
                                          *devices.communicator,
                                          *neighbours,
                                          session.place().local_ranks,
                                          devices.on_gpu() ? gpus_of(devices.placement) : cores_of(devices.placement)};
    calibrate::CalibrationOptions calibration;
    if (devices.on_gpu()) calibration.multiprocessors = multiprocessors();
    calibration.fp32 = options.precision != "bf16";
    const bool has_bf16 = control->all_maximum(devices.on_gpu() || kernels::cpu_multiplies_bf16() ? 0 : 1) == 0;
    calibration.bf16 = options.precision != "fp32" && has_bf16;
    if (options.precision == "bf16" && !has_bf16)
        throw usage_error(
            "--precision bf16: at least one rank's processor lacks bf16 instructions; training would compute in fp32");
    calibration.quick = options.quick;
    calibration.folder = options.folder;
    const double start = seconds_now();
    if (session.rank() == 0)
        calibration.say = [start](const std::string& what) { log::info("{:.1f} s: {}", seconds_now() - start, what); };
    const double busy = other_work(session, devices, options.quick ? quick_watched_seconds : watched_seconds, *control);
    cluster::on_root(*control, [&] {
        if (options.out.empty() || options.busy || options.quick || busy <= config::Rates::most_busy_share) return;
        throw usage_error(
            "other programs use {:.0f} % of this node's cores, which would distort its rates; wait until it is idle, "
            "or add --busy, which marks the file",
            100 * busy);
    });
    const std::string rounds = calibrate::rounds_file(options.out),
                      settings = settings_of(options, session, calibration);
    calibrate::KeptRounds kept;
    if (!options.out.empty()) {
        kept = rounds_of_all(rounds, settings, *control);
        calibration.finished = kept.seconds;
    }
    kept.busy_share = std::max(kept.busy_share, busy);
    bool told = false;
    if (!options.out.empty() && session.rank() == 0)
        calibration.keep = [&](const auto& times) {
            // For convenience only: a full disk does not end what is measured.
            try {
                calibrate::write_rounds(rounds, settings, {times, kept.busy_share});
            } catch (const Error& problem) {
                if (!std::exchange(told, true)) log::warning("finished rounds are not saved: {}", problem.what());
            }
        };
    config::Rates rates = calibrate::calibrate(rank, calibration);
    rates.busy_share = kept.busy_share;
    rates.threads = devices.on_gpu() ? 1 : threads();
    rates.bf16_is_fp32 = has_bf16 ? 0 : 1;
    measure_team(session, devices, rank, options.quick, rates);
    if (session.rank() != 0) return 0;
    if (const std::string doubt = rates.doubt(); !doubt.empty())
        log::warning("{}: these rates are unreliable; measure again when the machine is idle", doubt);
    if (!options.out.empty()) {
        write_whole_file(options.out, config::to_toml(machine_of(rates, devices, session)));
        std::error_code ignored;
        std::filesystem::remove(rounds, ignored);
        log::info("wrote {} after {:.1f} s", options.out, seconds_now() - start);
        return 0;
    }
    const std::string text = table_of(rates).print(format);
    print_result(text);
    return 0;
}

int run(const Options& options) {
    check(options);
    const TableFormat format = table_format(options.format);
    cluster::Session session(nullptr, nullptr);
    return session.run([&] { return measure(options, session, format); });
}

}  // namespace

void add_bench(CLI::App& program, Action& action) {
    const auto options = std::make_shared<Options>();
    CLI::App* command =
        program.add_subcommand("bench", "Measure this machine: kernels, links, disk (under mpirun: all ranks at once)");
    command
        ->add_option("--calibrate", options->out,
                     "Write the rates to this file, a machine description for lockstep plan")
        ->type_name("FILE");
    command->add_option("--device", options->device, "auto, cpu or cuda");
    command->add_option("--precision", options->precision, "fp32, bf16 or all (all: bf16 where the processor has it)");
    command
        ->add_option("--folder", options->folder, "Folder whose write speed is measured; a few MiB, removed afterwards")
        ->type_name("FOLDER");
    command->add_flag("--quick", options->quick,
                      "Tiny sizes: a check that takes seconds; the rates are not meaningful");
    command->add_flag("--busy", options->busy,
                      "Calibrate even if other programs are running here; the file records it");
    command->add_option("--format", options->format, "text, markdown, csv or json");
    command->footer(
        "Start it like training, with one rank per core or GPU, on otherwise idle nodes.\n"
        "Example: mpirun -np 2 lockstep bench --calibrate machine.toml\n"
        "If interrupted, launch it again: it resumes after the finished rounds, which FILE.rounds keeps.\n"
        "What is measured and how the planner uses it: docs/planner-own-program.md");
    command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace lockstep::commands
