// Gradients added up in the order of the lanes' tree (layout/lane_tree.hpp), which is the same for any number of
// replicas. A replica adds up the nodes that it has whole. Of each bucket every replica adds up one piece: it gets the
// others' largest nodes of it, adds them in the order of the tree, then the trees of the ranks along a sequence in the
// order of these; without ZeRO the sums are all-gathered. No collective adds up gradients of replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cluster/communicator.hpp"
#include "layout/lane_buffers.hpp"
#include "layout/lane_tree.hpp"
#include "train/gradient_exchange.hpp"
#include "train/regions.hpp"

namespace lockstep::train {

class LaneExchange final : public GradientExchange {
  public:
    LaneExchange(const Launch& launch, const TrainingState& state, const model::TensorGroup& tensor_group,
                 trace::Tracer* tracer, const Regions& regions);

    void begin_step(bool exact) override { exact_ = exact; }
    void complete(std::size_t bucket, std::int64_t lane) override;
    void finish(Tensor losses) override;
    std::size_t bytes() const override { return buffers_.bytes(); }

  private:
    // A slice of each replica's piece of a bucket, whose nodes are on their way.
    struct Pending {
        std::size_t bucket = 0;
        model::Piece slice;  // of this rank's piece
        bool last = false;
        std::unique_ptr<cluster::Transfer> transfer;
        std::vector<std::vector<Tensor>> nodes;  // [context][node]
    };
    void exchange(std::size_t bucket);
    Pending begin(std::size_t bucket, std::int64_t first);
    void settle();  // what is pending
    std::vector<Tensor> own_nodes() const;
    Tensor add_up_tree(const std::vector<Tensor>& nodes) const;
    model::Piece slice_of(const layout::Bucket& bucket, std::int64_t replica, std::int64_t first) const;

    const TrainingState& state_;
    const layout::Devices& devices_;
    const cluster::ProcessGroups& groups_;
    const model::TensorGroup& tensor_group_;
    config::Grid grid_;
    std::int64_t replica_;
    layout::LaneTree tree_;
    layout::LaneBuffers buffers_;
    PhaseTimer timer_;
    Regions regions_;
    bool exact_ = false;                            // what waits in the backward pass is timed
    std::vector<std::size_t> sums_behind_lane_;     // of this rank's lanes
    std::vector<std::size_t> waiting_behind_lane_;  // likewise
    std::vector<std::size_t> nodes_of_replica_;     // by place along the data axis: its largest nodes
    std::vector<std::size_t> sums_behind_node_;     // of all these
    std::optional<Pending> pending_;
};

}  // namespace lockstep::train
