// Divides a document into the pieces that byte-pair encoding works on, as tokenizer.json says: added tokens,
// normalization, patterns. From a position between two pieces it can continue without knowing what came before, so that
// threads can work on parts of one document and the result does not depend on where it was cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/huggingface/added_tokens.hpp"
#include "data/huggingface/split_pattern.hpp"
#include "data/huggingface/text_changes.hpp"
#include "data/huggingface/tokenizer_json.hpp"
#include "data/part_encoder.hpp"

namespace lockstep::data::huggingface {

// What takes the pieces.
class PieceTaker {
  public:
    PieceTaker() = default;
    PieceTaker(const PieceTaker&) = delete;
    PieceTaker& operator=(const PieceTaker&) = delete;
    virtual ~PieceTaker() = default;
    virtual void take_piece(std::string_view piece) = 0;
    virtual void take_token(std::int32_t token) = 0;
};

class Divider {
  public:
    explicit Divider(const TokenizerJson& json);

    // Whether divide() may begin anywhere but at a document's beginning.
    bool restarts() const { return restarts_; }

    using Place = PartEncoder::Place;  // between two pieces
    // Memory that is used again: one per thread.
    struct Scratch {
        std::unique_ptr<SplitPattern::Scratch, SplitPattern::ScratchDeleter> matching = SplitPattern::make_scratch();
        std::string repaired, composed;
        TextChanges repairs, compositions;
    };
    // Gives the pieces of text[from.at, …) to `taker` until one ends at `end` or behind, or the text is over; moves
    // `from` to where that is. `open`: the document continues after `text`; false if the pieces depend on how.
    bool divide(std::string_view text, bool open, Place& from, std::size_t end, Scratch& scratch,
                PieceTaker& taker) const;

    // The place as one compares it: whether it is fresh matters to few.
    Place plain(Place place) const {
        place.fresh = place.fresh && first_adds_space_;
        return place;
    }

  private:
    class Pass;
    struct Step {
        std::unique_ptr<SplitPattern> pattern;  // null: none
        Behaviour behaviour = Behaviour::isolated;
        bool invert = false, adds_space = false;
    };
    std::vector<Step> steps_;
    AddedTokens before_normalizing_, after_normalizing_;
    bool composes_, first_adds_space_, restarts_;
};

}  // namespace lockstep::data::huggingface
