// The flat gradients of a rank, cut into buckets that are worth a message of their own, and when in the backward pass
// each is whole. Where replicas divide the optimizer (ZeRO stage 1; Rajbhandari et al. 2020, arXiv:1910.02054), each
// bucket is cut once more, into a part for every replica: of one size with the remainder, at most 1/16 of it, in the
// last; or as even as the optimizer's granularity and the blocks of GradientPlanOptions allow, over all buckets where
// it needs whole matrices. Where they divide gradients (stage 2) or parameters (stage 3), each block has a bucket, and
// the embedding and the head have: the buckets are also the windows of model::Division.
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
    std::size_t buffer = 0;            // the memory that it shares with others as a window (model/flat_windows.hpp)

    // The part of the flat tensors that a replica updates, where they divide it.
    model::Piece owned(std::int64_t replica) const;
};

// A part of a chunk's backward pass after which one bucket is whole (none where nothing of it is trained): blocks
// [first_block, last_block) of the chunk, which may be none.
struct Segment {
    std::size_t first_block = 0, last_block = 0;
    bool first = false, last = false;  // behind forward and loss; with the embedding's backward
    std::optional<std::size_t> bucket;
};

struct GradientPlan {
    std::vector<Bucket> buckets;
    std::vector<std::vector<Segment>> chunks;  // in the order of the backward pass
    // The bucket of a table that is both embedding and head, if two stages hold it, or its gradients are divided: it is
    // whole at the end of a chunk's backward pass.
    std::optional<std::size_t> tied;

    // With a bucket for each block: what is frozen of it, of the embedding and of the head, cut and in windows
    // likewise.
    std::vector<Bucket> frozen;

    // The parts that this replica updates, ascending.
    std::vector<model::Piece> owned(std::int64_t replica) const;
};

struct GradientPlanOptions {
    std::int64_t bucket_bytes = 0;
    std::int64_t replicas = 1;
    bool tied_apart = false;                          // a tied table has a bucket of its own
    bool each_block = false;                          // so has each block, and the embedding, and the head
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
