#include "kernels/planning_backend.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/ttt_gpu_saved.hpp"

namespace lockstep::kernels {
namespace {

class PlanningBackend final : public cpu::CpuBackend {
  public:
    explicit PlanningBackend(DeviceKind kind) : kind_(kind) {}
    Device device() const override {
        Device device;
        device.kind = kind_;
        device.imaginary = true;
        return device;
    }
    void upload(Tensor, const void*) override {}
    std::int64_t ttt_saved_count(const TttShape& shape) const override {
        return kind_ == DeviceKind::cuda ? ttt_gpu_saved_count(shape) : CpuBackend::ttt_saved_count(shape);
    }

  private:
    DeviceKind kind_;
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend(DeviceKind kind) {
    return std::make_unique<PlanningBackend>(kind);
}

}  // namespace lockstep::kernels
