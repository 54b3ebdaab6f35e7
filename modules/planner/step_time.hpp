// The seconds of one training step of the slowest rank, by what they are spent on.
#pragma once

namespace lockstep::planner {

struct StepTime {
    double loading = 0;
    double forward = 0, loss = 0, recomputation = 0, backward = 0;
    double tensor = 0;    // what the ranks that share a layer tell each other
    double pipeline = 0;  // what stages hand to each other, where a stage waits for it
    double idle = 0;      // a stage has nothing to do: the pipeline fills and drains, or waits for its slowest stage
    double data = 0;      // gradients and parameters between replicas, beyond what the backward pass hides
    double context = 0;   // along divided sequences
    double optimizer = 0;
    double control = 0;
    double total() const {
        return loading + forward + loss + recomputation + backward + tensor + pipeline + idle + data + context +
               optimizer + control;
    }
};

}  // namespace lockstep::planner
