// The flat gradients of a rank, cut into buckets that are worth a message of their own, and when in the backward pass
// each is whole. Where replicas divide the optimizer (ZeRO stage 1; Rajbhandari et al. 2020, arXiv:1910.02054), each
// bucket is cut once more, into a part for every replica: of one size with the remainder, at most 1/16 of it, in the
// last; or as even as the optimizer's granularity and the blocks of GradientPlanOptions allow, over all buckets where
// it needs whole matrices.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/parameters.hpp"
#include "optim/optimizer_type.hpp"

namespace lockstep::layout {

struct Bucket {
    model::Piece range;                // of the flat tensors
    std::vector<std::int64_t> cuts;    // replica r updates [cuts[r], cuts[r + 1]) of the range, where they divide it
    std::vector<std::size_t> partial;  // parameters in it whose gradients the tensor group adds up first
};

// A part of a chunk's backward pass after which one bucket is whole (none where nothing of it is trained): blocks
// [first_block, last_block) of the chunk.
struct Segment {
    std::size_t first_block = 0, last_block = 0;
    bool first = false, last = false;  // behind forward and loss; with the embedding's backward
    std::optional<std::size_t> bucket;
};

struct GradientPlan {
    std::vector<Bucket> buckets;
    std::vector<std::vector<Segment>> chunks;  // in the order of the backward pass
    std::optional<std::size_t> tied;           // the bucket of a table that the first and the last stage both hold

    // The parts that this replica updates, ascending.
    std::vector<model::Piece> owned(std::int64_t replica) const;
};

struct GradientPlanOptions {
    std::int64_t bucket_bytes = 0;
    std::int64_t replicas = 1;
    bool tied_ends = false;                           // a tied table lies on two stages
    bool divided_rows = false;                        // of the tensor group: norms see some rows only
    bool shared_layers = false;                       // by a tensor group of several ranks
    const optim::OptimizerType* optimizer = nullptr;  // what the replicas divide; null: anything, anywhere
    // Cuts inside a parameter lie at multiples of so many elements; 0: anywhere.
    std::int64_t block = 0;
};

// chunks: the pieces of the model that this rank has.
GradientPlan plan_gradients(const model::ParameterLayout& layout, const std::vector<model::StageRange>& chunks,
                            const GradientPlanOptions& options);

}  // namespace lockstep::layout
