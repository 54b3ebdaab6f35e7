// A training run's trace regions, and the timing of a step's phases.
#pragma once

#include <cstdint>

#include "device/gpu.hpp"
#include "layout/devices.hpp"
#include "trace/tracer.hpp"

namespace lockstep::train {

struct PassRegions {
    trace::RegionId data_loading = -1, data_movement = -1, forward = -1, loss = -1, backward = -1;
};

struct CommunicationRegions {
    trace::RegionId all = -1, tensor = -1, pipeline = -1, context = -1, data = -1, control = -1;
};

struct Regions {
    trace::RegionId initialization = -1, epoch = -1, step = -1, optimizer = -1, validation = -1, checkpoint = -1;
    PassRegions pass;
    CommunicationRegions communication;
};

// The same on all ranks. `layers`: of the whole model.
Regions register_regions(trace::Tracer& tracer, std::int64_t layers);

// Times phases of steps that are timed exactly; on a GPU the host then waits for each phase.
struct PhaseTimer {
    trace::Tracer* tracer;  // may be null
    const layout::Devices& devices;

    trace::OptionalScope scope(bool exact, trace::RegionId region) const { return {exact ? tracer : nullptr, region}; }

    // `name` is shown by profilers, exact or not.
    template <class Body>
    void phase(bool exact, trace::RegionId region, const char* name, Body&& body) const {
        const NamedRange range(name);
        const auto timed = scope(exact, region);
        body();
        if (exact && tracer && devices.on_gpu()) devices.backend->synchronize();
    }
};

}  // namespace lockstep::train
