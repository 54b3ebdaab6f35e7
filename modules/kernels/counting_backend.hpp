// A counting backend: its device is imaginary, and operations are recorded instead of executed. Used to plan memory
// (arenas have the sizes they have on that kind of device, but no memory) and to find a model's cost: the operations it
// issues, in order.
#pragma once

#include <functional>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/operation_work.hpp"

namespace lockstep::kernels {

class CountingBackend : public Backend {
  public:
    explicit CountingBackend(DeviceKind kind) : kind_(kind) {}
    // Operations since construction or the last take(); messages may be inserted.
    std::vector<Operation>& operations() { return operations_; }
    std::vector<Operation> take();

#define LOCKSTEP_OPERATION(result, name, ...) result name __VA_ARGS__ override;
#include "kernels/operations.inc"

  private:
    void moves(OperationKind kind, Type type, std::initializer_list<Tensor> tensors);
    DeviceKind kind_;
    std::vector<Operation> operations_;
};

// FLOP and bytes of the operations that `issue` calls.
struct Work {
    double flop = 0, bytes = 0;
};
Work work_of(DeviceKind kind, const std::function<void(Backend&)>& issue);

}  // namespace lockstep::kernels
