#include "train/regions.hpp"

#include <fmt/format.h>

namespace lockstep::train {

Regions register_regions(trace::Tracer& tracer, std::int64_t layers) {
    Regions regions;
    regions.initialization = tracer.region("initialization");
    regions.epoch = tracer.region("epoch");
    regions.step = tracer.region("epoch/step", trace::Detail::step);
    regions.pass.data_loading = tracer.region("epoch/step/data_loading");
    regions.pass.data_movement = tracer.region("epoch/step/data_movement");
    regions.pass.forward = tracer.region("epoch/step/forward");
    regions.pass.loss = tracer.region("epoch/step/loss");
    regions.pass.backward = tracer.region("epoch/step/backward");
    regions.communication.all = tracer.region("epoch/step/communication");
    regions.communication.tensor = tracer.region("epoch/step/communication/tensor");
    regions.communication.pipeline = tracer.region("epoch/step/communication/pipeline");
    regions.communication.context = tracer.region("epoch/step/communication/context");
    regions.communication.data = tracer.region("epoch/step/communication/data");
    regions.communication.control = tracer.region("epoch/step/communication/control");
    regions.optimizer = tracer.region("epoch/step/optimizer");
    regions.validation = tracer.region("validation");
    regions.checkpoint = tracer.region("checkpoint");
    // Stages have different blocks, but all ranks register the same regions.
    for (const char* direction : {"forward", "backward"})
        for (std::int64_t block = 0; block < layers; ++block)
            static_cast<void>(
                tracer.region(fmt::format("epoch/step/{}/block_{}", direction, block), trace::Detail::layer));
    return regions;
}

}  // namespace lockstep::train
