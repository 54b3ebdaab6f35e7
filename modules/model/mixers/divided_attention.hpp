// Causal attention over a sequence divided among context ranks, each with a stretch of L tokens, in order.
//
// The queries of stretch i meet the keys of every stretch j < i. In ring attention (Liu et al. 2023, arXiv:2310.01889)
// keys and values travel to the queries, and the last rank has most to compute. Here the rank of i computes a pair with
// the keys and values of j if i - j < C/2; if i - j > C/2 the rank of j computes it with the queries of i and sends the
// outputs back (DistFlashAttn, Li et al. 2023, arXiv:2310.03294); at i - j = C/2 each takes half of the queries. All
// ranks have the same work then, and stretches stay as other layers want them. What travels: docs/parallelism.md.
//
// With a window only the first queries of a stretch see keys of another, and of those only the last: no others travel,
// and stretches that are further apart do not meet.
//
// What step d needs comes from the rank d places before, cyclically, and may travel while step d - 1 is computed.
// Results are joined in the order of the steps: for a given number of ranks they are the same to the bit. All ranks
// must make the same calls in the same order, recomputation included.
#pragma once

#include <cstdint>

#include "kernels/backend.hpp"
#include "model/context_chain.hpp"
#include "model/mixer.hpp"

namespace lockstep::model {

class DividedAttention {
  public:
    struct Sizes {
        std::int64_t heads, key_heads, head_width;  // heads of this rank
        bool columns;                               // q, k and v may be columns of wider matrices
        std::int64_t window = 0;                    // as in AttentionShape
        float score_cap = 0;
    };
    // Two tags from `tag` on are used.
    DividedAttention(const ContextChain& chain, Type type, const Sizes& sizes, int tag)
        : chain_(&chain),
          type_(type),
          heads_(sizes.heads),
          key_heads_(sizes.key_heads),
          head_width_(sizes.head_width),
          columns_(sizes.columns),
          window_(sizes.window),
          score_cap_(sizes.score_cap),
          tag_(tag) {}

    // Allocates and releases the temporaries of forward or backward.
    void plan_workspace(Arena& arena, const PassShape& shape, Direction direction) const;
    // y [N, H·f], log_sum_exp [B, H, L] of this rank's queries, over the keys of all stretches that they see.
    void forward(Backend& backend, Arena& workspace, Tensor y, Tensor log_sum_exp, Tensor q, Tensor k, Tensor v,
                 const PassShape& shape) const;
    // Gradients of this rank's q, k and v, over all stretches; they may be columns of wider matrices.
    void backward(Backend& backend, Arena& workspace, Tensor dq, Tensor dk, Tensor dv, Tensor dy, Tensor q, Tensor k,
                  Tensor v, Tensor y, Tensor log_sum_exp, const PassShape& shape) const;

  private:
    struct Part;
    struct Step;
    struct Memory;
    class Pass;

    std::int64_t window_over(std::int64_t length) const;
    Part part(std::int64_t distance, std::int64_t length, bool of_queries) const;
    Step step(std::int64_t distance, std::int64_t length) const;
    kernels::AttentionShape attention_shape(const PassShape& shape, const Step& step) const;
    Memory allocate(Arena& arena, const PassShape& shape, Direction direction) const;

    const ContextChain* chain_;
    Type type_;
    std::int64_t heads_, key_heads_, head_width_;
    bool columns_;
    std::int64_t window_;
    float score_cap_;
    int tag_;
};

}  // namespace lockstep::model
