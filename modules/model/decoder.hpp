// Text generation, token by token from a state: keys and values for attention; for TTT the inner model, whose memory
// does not grow with length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/block.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

class Decoder {
  public:
    // `context`: maximum length, prompt included.
    Decoder(Backend& backend, ParameterSet& parameters, const config::ModelDescription& model, std::int64_t context);
    void start_sequence();
    void set_inner_rate_factor(double factor);
    // Feeds the next tokens; returns the logits [V] after the last of them, fp32, on the host.
    const std::vector<float>& feed(const std::vector<std::int32_t>& tokens);
    std::int64_t position() const { return position_; }

  private:
    std::int64_t most_tokens() const;  // fed at once
    void plan_states(Arena& arena);
    void plan_workspace(Arena& arena) const;
    void feed_piece(const std::int32_t* tokens, std::int64_t count);

    Backend& backend_;
    config::ModelDescription model_;
    std::int64_t context_;
    Type type_;
    Tensor table_, learned_position_, head_;
    std::vector<Block> blocks_;
    std::vector<Block::State> states_;
    Norm final_norm_;
    Arena memory_, workspace_;
    Tensor logits_;
    std::vector<float> host_logits_;
    std::int64_t position_ = 0;
};

}  // namespace lockstep::model
