#include "kernels/cuda/later.hpp"

#include <algorithm>

#include "device/cuda/check.hpp"

namespace lockstep::kernels::cuda {

// Returns its slot once the values have been read, or nobody will read them: a pending copy precedes the next one into
// the same memory, as both are on one stream.
class CudaBackend::Slots::Values final : public Later {
  public:
    Values(std::shared_ptr<Slots> slots, Slot slot, std::size_t count)
        : slots_(std::move(slots)), slot_(std::move(slot)), count_(count) {}
    ~Values() override {
        if (slots_) give_back();
    }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;

    const std::vector<double>& get() override {
        if (slots_) {
            slot_.arrived.wait();
            const auto* from = reinterpret_cast<const double*>(slot_.memory.data());
            values_.assign(from, from + count_);
            give_back();
        }
        return values_;
    }

  private:
    void give_back() {
        slots_->free_.push_back(std::move(slot_));
        slots_.reset();
    }

    std::shared_ptr<Slots> slots_;
    Slot slot_;
    std::size_t count_;
    std::vector<double> values_;
};

CudaBackend::Slots::Slot CudaBackend::Slots::take(std::size_t count) {
    const auto found =
        std::find_if(free_.begin(), free_.end(), [count](const Slot& slot) { return slot.count >= count; });
    if (found != free_.end()) {
        Slot slot = std::move(*found);
        free_.erase(found);
        return slot;
    }
    constexpr std::size_t least = 64;  // pinned memory is allocated by pages
    const std::size_t room = std::max(count, least);
    return {PinnedMemory(room * sizeof(double)), room, CudaEvent()};
}

std::unique_ptr<Later> CudaBackend::Slots::read(const double* source, std::size_t count) {
    Slot slot = take(count);
    check_cuda(cudaMemcpyAsync(slot.memory.data(), source, count * sizeof(double), cudaMemcpyDeviceToHost,
                               context_->compute()),
               "copying values from the GPU");
    slot.arrived.record(context_->compute());
    return std::make_unique<Values>(shared_from_this(), std::move(slot), count);
}

}  // namespace lockstep::kernels::cuda
