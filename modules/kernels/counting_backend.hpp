// A backend that counts: its device is imaginary, and what is asked of it is written down and not done. It plans memory
// (arenas have the sizes they have on that kind of device, and no memory) and it finds out what a piece of a model
// costs: the operations that it issues, in their order.
#pragma once

#include <functional>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/operation_work.hpp"

namespace lockstep::kernels {

class CountingBackend final : public Backend {
  public:
    explicit CountingBackend(DeviceKind kind) : kind_(kind) {}
    // What was asked for since it was made, or since the last take(); messages may be added to it in their place.
    std::vector<Operation>& operations() { return operations_; }
    std::vector<Operation> take();

#define LOCKSTEP_OPERATION(result, name, ...) result name __VA_ARGS__ override;
#include "kernels/operations.inc"

  private:
    void moves(OperationKind kind, Type type, std::initializer_list<Tensor> tensors);
    DeviceKind kind_;
    std::vector<Operation> operations_;
};

// FLOP and bytes of what `issue` asks of a backend.
struct Work {
    double flop = 0, bytes = 0;
};
Work work_of(DeviceKind kind, const std::function<void(Backend&)>& issue);

}  // namespace lockstep::kernels
