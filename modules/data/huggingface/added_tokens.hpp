// Finds added tokens, such as <|endoftext|>, in a text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/huggingface/tokenizer_json.hpp"

namespace lockstep::data::huggingface {

class AddedTokens {
  public:
    // With `content` as it is looked for.
    explicit AddedTokens(std::vector<AddedToken> tokens);

    bool empty() const { return tokens_.empty(); }
    std::size_t longest() const { return longest_; }  // bytes
    bool strips_left() const { return strips_left_; }
    // Whether what is found behind the end of a token depends on the text behind it alone.
    bool restarts_anywhere() const { return restarts_anywhere_; }

    struct Found {
        const AddedToken* token = nullptr;  // null: none
        std::size_t begin = 0, end = 0;     // with the white space that it takes
        std::size_t search = 0;             // where the next search begins
    };
    // The first one, among them the longest, that begins in [from, before); it takes no white space before `least`.
    Found find(std::string_view text, std::size_t from, std::size_t before, std::size_t least) const;

  private:
    struct Node {
        std::int32_t token = -1;             // that ends here
        std::int32_t child = -1, next = -1;  // the first child, the next one of the same parent
        char byte = 0;
    };
    void add(std::size_t token);
    std::int32_t child_of(std::int32_t node, char byte) const;
    std::int32_t longest_at(std::string_view text, std::size_t at) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
    std::array<std::int32_t, 256> first_{};  // the node of a first byte; -1: no token begins so
    std::size_t longest_ = 0;
    bool strips_left_ = false, restarts_anywhere_ = true;
};

// Where the white space that ends at `end` begins, at `least` or behind, and where that which begins at `begin` ends.
std::size_t white_space_before(std::string_view text, std::size_t end, std::size_t least);
std::size_t white_space_behind(std::string_view text, std::size_t begin);

}  // namespace lockstep::data::huggingface
