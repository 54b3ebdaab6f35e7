#include "data/huggingface/divider.hpp"

#include <algorithm>
#include <utility>

#include "data/huggingface/normal_form.hpp"

namespace lockstep::data::huggingface {
namespace {

std::vector<AddedToken> tokens_of(const TokenizerJson& json, bool before_normalizing) {
    std::vector<AddedToken> tokens;
    for (AddedToken token : json.added) {
        if (token.before_normalizing != before_normalizing) continue;
        if (!before_normalizing && json.composes) {
            std::string copy;
            TextChanges changes;
            token.content = std::string(compose(token.content, copy, changes));
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

struct Part {
    std::size_t begin = 0, end = 0;
    bool matches = false;
};

// Joins matches and what is between them.
std::vector<Part> joined(const std::vector<Part>& parts, Behaviour behaviour) {
    std::vector<Part> out;
    bool matched = false;
    if (behaviour == Behaviour::merged_with_next) {
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
            if (part->matches && !matched && !out.empty())
                out.back().begin = part->begin;
            else
                out.push_back(*part);
            matched = part->matches;
        }
        std::reverse(out.begin(), out.end());
        return out;
    }
    for (const Part& part : parts) {
        const bool joins = behaviour == Behaviour::contiguous ? part.matches == matched : part.matches && !matched;
        if (joins && !out.empty())
            out.back().end = part.end;
        else
            out.push_back(part);
        matched = part.matches;
    }
    return out;
}

}  // namespace

Divider::Divider(const TokenizerJson& json)
    : before_normalizing_(tokens_of(json, true)),
      after_normalizing_(tokens_of(json, false)),
      composes_(json.composes),
      first_adds_space_(!json.divisions.empty() && json.divisions.front().adds_space),
      restarts_(before_normalizing_.restarts_anywhere() && after_normalizing_.restarts_anywhere()) {
    for (const Division& division : json.divisions) {
        Step& step = steps_.emplace_back();
        if (!division.pattern.empty())
            step.pattern = std::make_unique<SplitPattern>(division.pattern, division.literal, division.key);
        step.behaviour = division.behaviour;
        step.invert = division.invert;
        step.adds_space = division.adds_space;
        // Joined pieces depend on those before.
        restarts_ = restarts_ && (step.behaviour == Behaviour::isolated || step.behaviour == Behaviour::removed);
    }
}

// One call of divide(). Every function returns the position in its text up to which pieces were taken: less than all
// where the text is open, or where the end was reached (done_).
class Divider::Pass {
  public:
    Pass(const Divider& divider, Scratch& scratch, PieceTaker& taker, std::size_t begin, std::size_t end)
        : my_(divider), scratch_(scratch), taker_(taker), begin_(begin), end_(end) {}

    bool done() const { return done_; }
    Place place() const { return place_; }

    void divide(std::string_view text, bool open, bool fresh) {
        text = replace_damage(text, scratch_.repaired, scratch_.repairs);
        level_ = Level::whole;
        divide_at_tokens(text, my_.before_normalizing_, 0, open, fresh);
    }

  private:
    enum class Level { whole, segment };

    // Ends the pass if `position`, of the text of the level, is far enough and one of the document.
    bool boundary(std::ptrdiff_t position, bool fresh) {
        auto at = static_cast<std::size_t>(position);
        if (level_ == Level::segment) {
            at = scratch_.compositions.original(at);
            if (at == TextChanges::inside) return false;
            at += segment_;
        }
        at = scratch_.repairs.original(at);
        if (at == TextChanges::inside || begin_ + at < end_) return false;
        place_ = {begin_ + at, fresh};
        done_ = true;
        return true;
    }

    void divide_at_tokens(std::string_view text, const AddedTokens& tokens, std::size_t base, bool open, bool fresh) {
        const bool whole = level_ == Level::whole;
        const auto divide_rest = [&](std::string_view rest, std::size_t at, bool is_open) {
            if (whole)
                divide_segment(rest, at, is_open, fresh);
            else
                divide_by(0, rest, static_cast<std::ptrdiff_t>(base + at), is_open, fresh, true);
            level_ = whole ? Level::whole : Level::segment;
        };
        // Where tokens that begin can be told from longer ones.
        std::size_t before = text.size();
        if (open && !tokens.empty()) {
            before -= std::min(before, tokens.longest() - 1);
            before = whole_characters_before(text, before);
            if (tokens.strips_left()) before = white_space_before(text, before, 0);
        }
        std::size_t at = 0, search = 0;
        while (!done_) {
            const auto found = tokens.find(text, search, before, at);
            const std::size_t segment_end = found.token ? std::max(at, found.begin) : before;
            const bool segment_open = !found.token && open;
            if (segment_end > at) divide_rest(text.substr(at, segment_end - at), at, segment_open);
            if (done_ || !found.token) return;
            if (boundary(static_cast<std::ptrdiff_t>(base + segment_end), false)) return;
            if (open && found.token->rstrip && found.end == text.size()) return;
            taker_.take_token(found.token->id);
            at = found.end;
            search = found.search;
            fresh = true;
            if (boundary(static_cast<std::ptrdiff_t>(base + at), true)) return;
        }
    }

    void divide_segment(std::string_view text, std::size_t base, bool open, bool fresh) {
        segment_ = base;
        level_ = Level::segment;
        if (my_.composes_) {
            if (open) text = text.substr(0, composed_for_good(text));
            text = compose(text, scratch_.composed, scratch_.compositions);
        }
        if (my_.after_normalizing_.empty())
            divide_by(0, text, 0, open, fresh, true);
        else
            divide_at_tokens(text, my_.after_normalizing_, 0, open, fresh);
    }

    // Divides `text`, which begins at `base`, by steps[number] and those behind it. `restarts`: between its pieces one
    // can go on.
    void divide_by(std::size_t number, std::string_view text, std::ptrdiff_t base, bool open, bool fresh,
                   bool restarts) {
        if (number == my_.steps_.size()) {
            if (!open) taker_.take_piece(text);
            return;
        }
        const Step& step = my_.steps_[number];
        std::string with_space;
        // Behind the first step every piece is a beginning, unless one goes on inside of it.
        if (step.adds_space && number > 0) restarts = false;
        if (step.adds_space && (fresh || number > 0) && !text.empty() && text.front() != ' ') {
            with_space.reserve(text.size() + 1);
            with_space += ' ';
            with_space += text;
            text = with_space;
            --base;
        }
        if (!step.pattern)
            divide_by(number + 1, text, base, open, fresh, restarts);
        else if (step.behaviour == Behaviour::isolated || step.behaviour == Behaviour::removed)
            divide_one_by_one(number, text, base, open, restarts);
        else
            divide_and_join(number, text);
    }

    void divide_one_by_one(std::size_t number, std::string_view text, std::ptrdiff_t base, bool open, bool restarts) {
        const Step& step = my_.steps_[number];
        const bool removes = step.behaviour == Behaviour::removed;
        const auto take = [&](std::size_t begin, std::size_t end, bool matches, bool is_open) {
            if (begin == end || (removes && matches != step.invert)) return;
            divide_by(number + 1, text.substr(begin, end - begin), base + static_cast<std::ptrdiff_t>(begin), is_open,
                      true, restarts && !matches);
        };
        const auto ends_at = [&](std::size_t at) {
            return restarts && boundary(base + static_cast<std::ptrdiff_t>(at), false);
        };
        std::size_t at = 0;
        while (at < text.size()) {
            const auto found = step.pattern->find(text, at, open, *scratch_.matching);
            if (found.found == SplitPattern::Found::nothing) {
                take(at, text.size(), false, open);
                return;
            }
            take(at, found.begin, false, found.found == SplitPattern::Found::open);
            if (done_ || found.found == SplitPattern::Found::open) return;
            if (found.begin > at && ends_at(found.begin)) return;
            take(found.begin, found.end, true, false);
            if (ends_at(found.end)) return;
            at = found.end;
        }
    }

    void divide_and_join(std::size_t number, std::string_view text) {
        const Step& step = my_.steps_[number];
        std::vector<Part> parts;
        std::size_t at = 0;
        while (at < text.size()) {
            const auto found = step.pattern->find(text, at, false, *scratch_.matching);
            const bool any = found.found == SplitPattern::Found::match;
            const std::size_t begin = any ? found.begin : text.size();
            if (begin > at) parts.push_back({at, begin, step.invert});
            if (any) parts.push_back({found.begin, found.end, !step.invert});
            at = any ? found.end : text.size();
        }
        for (const Part& part : joined(parts, step.behaviour))
            divide_by(number + 1, text.substr(part.begin, part.end - part.begin), 0, false, true, false);
    }

    const Divider& my_;
    Scratch& scratch_;
    PieceTaker& taker_;
    std::size_t begin_, end_;
    Level level_ = Level::whole;
    std::size_t segment_ = 0;  // where it begins in the repaired text
    bool done_ = false;
    Place place_;
};

bool Divider::divide(std::string_view text, bool open, Place& from, std::size_t end, Scratch& scratch,
                     PieceTaker& taker) const {
    Pass pass(*this, scratch, taker, from.at, end);
    pass.divide(text.substr(from.at), open, from.fresh);
    if (!pass.done() && open) return false;
    from = pass.done() ? plain(pass.place()) : Place{text.size(), true};
    return true;
}

}  // namespace lockstep::data::huggingface
