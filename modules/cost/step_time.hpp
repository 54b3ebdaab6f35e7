// Where the time of a training step goes.
#pragma once

namespace lockstep::cost {

// Seconds of one step, of the rank that is busy longest; all others wait for it somewhere.
struct StepTime {
    double loading = 0;
    double forward = 0, loss = 0, recomputation = 0, backward = 0;
    double tensor = 0, pipeline = 0;  // waited for what ranks of a layer, and neighbouring stages, tell each other
    double idle = 0;                  // for other stages of the pipeline
    double data = 0, context = 0;     // for gradients and parameters of replicas; for the state of TTT
    double optimizer = 0, control = 0;
    double total() const {
        return loading + forward + loss + recomputation + backward + tensor + pipeline + idle + data + context +
               optimizer + control;
    }
};

}  // namespace lockstep::cost
