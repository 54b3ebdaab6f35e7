// Where the time of a training step goes.
#pragma once

namespace lockstep::cost {

// Seconds of one step, of the rank that is busy longest; all others wait for it somewhere.
struct StepTime {
    double loading = 0;
    double forward = 0, loss = 0, recomputation = 0, backward = 0;
    double tensor = 0, pipeline = 0;  // communication in tensor groups, and between stages
    double idle = 0;                  // waiting for other stages of the pipeline
    double data = 0, context = 0;     // gradients and parameters among replicas; state along sequences
    double optimizer = 0, control = 0;
    double total() const {
        return loading + forward + loss + recomputation + backward + tensor + pipeline + idle + data + context +
               optimizer + control;
    }
};

}  // namespace lockstep::cost
