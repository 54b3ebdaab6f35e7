// A TTT scan over whole sequences made of scans over parts of them, each of which starts from the state that the one
// before left: what a test compares with the scan over the whole.
#pragma once

#include <cstddef>
#include <vector>

#include "reference/ttt_reference.hpp"

namespace lockstep::reference {

struct TttScan {
    Values y;
    TttModels final_state;
    TttProblem gradients;  // in the places of the inputs
};

// Rows of the tokens first … first + count of every sequence, and back.
inline Values tokens_of(const TttProblem& p, const Values& x, std::size_t first, std::size_t count) {
    const std::size_t width = x.size() / (p.batch * p.length);
    Values part;
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>((sequence * p.length + first) * width);
        part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(count * width));
    }
    return part;
}
inline void put_tokens(const TttProblem& p, Values& x, const Values& part, std::size_t first, std::size_t count) {
    const std::size_t width = x.size() / (p.batch * p.length);
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence)
        for (std::size_t i = 0; i < count * width; ++i)
            x[(sequence * p.length + first) * width + i] = part[sequence * count * width + i];
}

// Documents that share sequences, each but the last ending before the positions `cuts` (of each sequence, ascending).
// The problem's tokens are at positions from `first` on, of `positions`.
inline void set_documents(TttProblem& p, std::size_t first, std::size_t positions,
                          const std::vector<std::vector<std::size_t>>& cuts) {
    p.first_position = first;
    p.positions = positions;
    p.starts.clear();
    p.ends.clear();
    for (std::size_t sequence = 0; sequence < p.batch; ++sequence) {
        std::size_t begin = 0;
        std::vector<std::size_t> ends = cuts[sequence];
        ends.push_back(positions);
        for (const std::size_t end : ends) {
            p.starts.insert(p.starts.end(), end - begin, static_cast<double>(begin));
            p.ends.insert(p.ends.end(), end - begin, static_cast<double>(end));
            begin = end;
        }
    }
}
// Whether a sequence's last document has tokens behind the problem's: only then is there a gradient of the final state.
inline bool goes_on(const TttProblem& p, std::size_t sequence) {
    const std::size_t behind = p.first_position + p.length;
    return p.ends[sequence * p.positions + behind - 1] > static_cast<double>(behind);
}

// scan(part, dy, goes_on, dfinal) gives y, where `goes_on` the final state, and where dy is not empty the gradients;
// dfinal may be empty. `lengths` add up to the sequences' length, all but the last multiples of the mini-batch.
template <class Scan>
TttScan ttt_in_parts(const TttProblem& p, const Values& dy, const std::vector<std::size_t>& lengths, Scan&& scan) {
    std::vector<TttProblem> parts;
    std::vector<std::size_t> starts;
    TttModels state = p.initial;
    for (std::size_t n = 0, first = 0; n < lengths.size(); first += lengths[n++]) {
        TttProblem part = p;
        part.length = lengths[n];
        for (Values TttProblem::*member : {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size})
            part.*member = tokens_of(p, p.*member, first, lengths[n]);
        part.initial = state;
        if (n + 1 < lengths.size()) state = scan(part, Values(), true, TttModels()).final_state;
        parts.push_back(part);
        starts.push_back(first);
    }
    TttScan whole{Values(p.q.size()), {}, p};
    TttProblem& d = whole.gradients;
    for (Values* x : arrays_of(d)) x->assign(x->size(), 0.0);
    TttModels dfinal;
    for (std::size_t n = lengths.size(); n-- > 0;) {
        const std::size_t first = starts[n], count = lengths[n];
        const TttScan part = scan(parts[n], tokens_of(p, dy, first, count), n + 1 < lengths.size(), dfinal);
        put_tokens(p, whole.y, part.y, first, count);
        for (Values TttProblem::*member : {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size})
            put_tokens(p, d.*member, part.gradients.*member, first, count);
        for (Values TttProblem::*member : {&TttProblem::token_scale, &TttProblem::norm_weight, &TttProblem::norm_bias})
            for (std::size_t i = 0; i < (d.*member).size(); ++i) (d.*member)[i] += (part.gradients.*member)[i];
        dfinal = part.gradients.initial;
        if (n > 0) continue;
        for (Values TttProblem::*member :
             {&TttProblem::weight1, &TttProblem::bias1, &TttProblem::weight2, &TttProblem::bias2})
            d.*member = part.gradients.*member;
        d.initial = part.gradients.initial;
    }
    return whole;
}

}  // namespace lockstep::reference
