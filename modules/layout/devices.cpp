#include "layout/devices.hpp"

#include <algorithm>
#include <numeric>

#include "cluster/gpu_communicator.hpp"
#include "cluster/processor.hpp"
#include "kernels/cuda.hpp"

namespace lockstep::layout {

using config::DeviceChoice;

namespace {

Error no_gpu(const std::string& host, const Gpus& gpus) {
    return usage_error("device cuda was requested, but no GPU can be used on {}: {}; choose cpu or auto", host,
                       gpus.why_none);
}

void make_world(Devices& devices, const cluster::Session& session) {
    std::vector<int> all(static_cast<std::size_t>(session.size()));
    std::iota(all.begin(), all.end(), 0);
    devices.communicator = devices.communicators->make(all, cluster::Use::collectives, "all");
    devices.carrier = devices.communicators->carrier();
}

// "AMD EPYC 9654, avx2": results repeat bit for bit on the same kind only.
std::string processor_name() {
    const std::string model = cluster::processor_model();
    return (model.empty() ? "unknown processor" : model) + ", " + kernels::cpu_instruction_set();
}

}  // namespace

std::uint64_t Devices::free_memory() const {
    return gpu ? free_gpu_memory(*gpu) : 0;
}

Devices open_devices(DeviceChoice choice, const cluster::Session& session, bool bind) {
    Devices devices;
    devices.processor = processor_name();
    const Gpus gpus = choice == DeviceChoice::cpu ? Gpus{} : find_gpus();
    const auto world = session.make_world_group("devices");
    const bool all_have = world->all_maximum(gpus.list.empty() ? 1 : 0) == 0;
    if (choice == DeviceChoice::cuda && !all_have) {
        // One rank that has none speaks for all.
        const std::int64_t speaker = world->all_maximum(gpus.list.empty() ? session.rank() : -1);
        const std::string sentence = world->broadcast_text(
            gpus.list.empty() ? no_gpu(session.place().host, gpus).what() : "", static_cast<int>(speaker));
        throw Error(ExitCode::usage, sentence);
    }
    const bool on_gpu = all_have && choice != DeviceChoice::cpu;
    std::vector<std::string> buses;
    if (on_gpu)
        for (const Gpu& gpu : gpus.list) buses.push_back(gpu.bus);
    devices.placement = cluster::place_ranks(session, buses);
    // Before the GPU is opened: CUDA's threads inherit the binding.
    cluster::take_seat(devices.placement, on_gpu, bind);
    if (!on_gpu) {
        devices.backend = kernels::make_cpu_backend();
        devices.communicators = cluster::make_mpi_communicator_source();
        devices.name = devices.processor;
        if (choice == DeviceChoice::any)
            devices.why_no_gpu = gpus.list.empty() ? gpus.why_none : "another rank has none";
        make_world(devices, session);
        return devices;
    }
    const Gpu& gpu = *std::find_if(gpus.list.begin(), gpus.list.end(),
                                   [&](const Gpu& one) { return one.bus == devices.placement.seat().gpu; });
    devices.gpu = open_gpu(gpu.index);
    devices.backend = kernels::make_cuda_backend(devices.gpu);
    devices.name = gpu.name;
    devices.communicators = cluster::make_gpu_communicator_source(devices.gpu, session.place().host + " " + gpu.bus);
    make_world(devices, session);
    return devices;
}

Devices open_device_alone(DeviceChoice choice) {
    Devices devices;
    devices.processor = processor_name();
    const Gpus gpus = choice == DeviceChoice::cpu ? Gpus{} : find_gpus();
    if (choice == DeviceChoice::cuda && gpus.list.empty()) throw no_gpu("this machine", gpus);
    devices.communicators = cluster::make_mpi_communicator_source();
    devices.communicator = devices.communicators->make({0});
    devices.carrier = "none";
    if (gpus.list.empty()) {
        devices.backend = kernels::make_cpu_backend();
        devices.name = devices.processor;
        return devices;
    }
    devices.gpu = open_gpu(gpus.list.front().index);
    devices.backend = kernels::make_cuda_backend(devices.gpu);
    devices.name = gpus.list.front().name;
    return devices;
}

}  // namespace lockstep::layout
