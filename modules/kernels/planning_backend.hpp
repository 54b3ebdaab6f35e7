// A backend to plan memory with, where there is no such device or nothing is to be allocated.
#pragma once

#include <memory>

#include "kernels/backend.hpp"

namespace lockstep::kernels {

// Its device is imaginary: arenas have the sizes they have on that kind of device, and no memory. What is uploaded goes
// nowhere; no other operation on its tensors may be called.
std::unique_ptr<Backend> make_planning_backend(DeviceKind kind);

}  // namespace lockstep::kernels
