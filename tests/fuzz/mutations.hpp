// Inputs made from others at random, without looking at what they reach.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::fuzz {

class Mutations {
  public:
    // `inputs` must not be empty and must outlive this object.
    Mutations(const std::vector<std::string>& inputs, std::uint64_t seed) : inputs_(inputs), random_(seed) {}
    // One of the inputs, changed in one to eight ways: bits, bytes and numbers replaced, numbers also by
    // lists in each other; pieces left out, repeated or
    // taken over from another input; the end cut off.
    std::string next();

  private:
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(random_() % limit); }
    const std::string& any() { return inputs_[below(inputs_.size())]; }
    std::string piece_of(const std::string& text);
    void change(std::string& text);
    void change_number(std::string& text);

    const std::vector<std::string>& inputs_;
    std::mt19937_64 random_;
};

}  // namespace lockstep::fuzz
