// ZeRO stages 2 and 3 (Rajbhandari et al. 2020, arXiv:1910.02054): a replica keeps the sums of gradients that it
// updates with, and no others. The gradients of a bucket share memory with those of other buckets, so each
// micro-batch's are reduced to their owners while the bucket after them is computed, and added to what came of
// micro-batches before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/gradient_exchange.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

class DividingExchange final : public GradientExchange {
  public:
    DividingExchange(const Launch& launch, const TrainingState& state, const model::TensorGroup& tensor_group,
                     trace::Tracer* tracer, const Regions& regions);

    void begin_step(bool exact) override;
    void prepare(std::size_t bucket) override;
    void complete(std::size_t bucket, std::int64_t lane) override;
    void finish(Tensor losses) override;

  private:
    void settle();  // what is under way

    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    const model::TensorGroup& tensor_group_;
    std::int64_t replica_;
    PhaseTimer timer_;
    Regions regions_;
    bool exact_ = false;                      // what waits in the backward pass is timed
    std::vector<bool> has_sum_;               // by bucket: of micro-batches of this step
    std::optional<std::size_t> under_way_{};  // the bucket that is being reduced
};

}  // namespace lockstep::train
