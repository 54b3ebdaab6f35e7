// TTT scans over sequences that several documents share, and their comparison with the reference.
#pragma once

#include <vector>

#include "operations/ttt_carry.hpp"

namespace lockstep::operation_tests {

// What lies before the operation's first token and behind its last one.
struct TttDocuments {
    std::size_t before, behind;
    std::vector<std::vector<std::size_t>> cuts;  // of each sequence, positions before which a document ends
};

// A gradient of the final states only where the document goes on.
inline TttModels ttt_dfinal(const TttProblem& p) {
    TttModels dfinal = ttt_models(p, "dfinal", 0.3);
    for (Values* x : {&dfinal.weight1, &dfinal.bias1, &dfinal.weight2, &dfinal.bias2})
        for (std::size_t i = 0; i < x->size(); ++i)
            if (!reference::goes_on(p, i / (x->size() / p.batch))) (*x)[i] = 0;
    return dfinal;
}

inline TttProblem ttt_documents(const TttCase& c, const TttDocuments& documents, Type type) {
    TttProblem p = ttt_problem(c, type);
    reference::set_documents(p, documents.before, documents.before + c.length + documents.behind, documents.cuts);
    if (documents.before > 0) p.initial = ttt_models(p, "initial", 0.1);
    return p;
}

// From states of each sequence's own if there are tokens before, and to them if there are any behind.
inline void compare_documents(const TttCase& c, const TttDocuments& documents, Type type) {
    BOOST_TEST_CONTEXT(c.text(type) << " with documents, " << documents.before << " tokens before, " << documents.behind
                                    << " behind") {
        const TttProblem p = ttt_documents(c, documents, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        const bool goes_on = documents.behind > 0;
        const TttModels dfinal = goes_on ? ttt_dfinal(p) : TttModels();
        TttModels final_state;
        const Values y = reference::ttt_forward(p, &final_state);
        check_scan(scan_ttt(p, type, dy, goes_on, dfinal), y, final_state, reference::ttt_backward(p, dy, dfinal),
                   type);
    }
}

// Odd pieces: of one token, shorter than a mini-batch, longer than a chunk of four, and cuts anywhere in these; with
// and without tokens before and behind. Sequences that begin inside a document, with one, and inside a last one.
inline void compare_odd_documents(bool mlp, std::size_t heads, std::size_t width, std::size_t mini_batch, Type type) {
    const std::size_t b = mini_batch, length = 9 * b + 2 * b / 3 + 1, all = b + 1 + length;
    compare_documents({mlp, 3, length, heads, width, b},
                      {0, 0, {{1, 2, b + 4, 6 * b + 7, length - 1}, {5 * b + 1}, {b, 2 * b, 7 * b + 1}}}, type);
    // The last documents go on behind whole mini-batches; the third sequence is one document.
    compare_documents(
        {mlp, 3, length, heads, width, b},
        {b + 1, 2 * b, {{3, b + 3, 2 * b + 1, all - b}, {b + 1, 2 * b + 2, 3 * b, all - 5 * b}, {all, all + 1}}}, type);
}

// How far two kernels for one thing may be apart. On a GPU they do not give the same bits: the compiler fuses other
// multiplications and additions of each. A sum of 16-bit values may be rounded the other way.
inline double same_but_for_rounding(Type type) {
    return type == Type::fp32 ? 2e-6 : 2e-3;
}

// Documents as long as their sequences give what sequences without documents give.
inline void compare_whole_documents(const TttCase& c, Type type) {
    BOOST_TEST_CONTEXT(c.text(type) << ", one document") {
        TttProblem p = ttt_problem(c, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        TttScan joined = scan_ttt(p, type, dy, false, {});
        reference::set_documents(p, 0, c.length, std::vector<std::vector<std::size_t>>(c.batch));
        TttScan scan = scan_ttt(p, type, dy, false, {});
        check_relative(scan.y, joined.y, same_but_for_rounding(type), "y");
        const auto gradients = reference::arrays_of(scan.gradients), wanted = reference::arrays_of(joined.gradients);
        for (std::size_t i = 0; i < wanted.size(); ++i)
            check_relative(*gradients[i], *wanted[i], same_but_for_rounding(type), fmt::format("gradient {}", i));
    }
}

// Each document of a packed sequence gives what it gives alone; what is summed is their sum.
inline void compare_packed(const TttCase& c, const std::vector<std::size_t>& lengths, Type type) {
    BOOST_TEST_CONTEXT(c.text(type) << " packed from " << lengths.size()) {
        const TttProblem p = ttt_problem(c, type);
        const Values dy = random_rounded(type, p.q.size(), "dy");
        std::vector<std::size_t> cuts;
        for (std::size_t n = 0, end = 0; n + 1 < lengths.size(); ++n) cuts.push_back(end += lengths[n]);
        TttProblem packed = p;
        reference::set_documents(packed, 0, c.length, std::vector<std::vector<std::size_t>>(c.batch, cuts));
        const TttScan together = scan_ttt(packed, type, dy, false, {});
        TttProblem sums = p;
        for (Values* x : reference::arrays_of(sums)) x->assign(x->size(), 0.0);
        const auto tokens = {&TttProblem::q, &TttProblem::k, &TttProblem::v, &TttProblem::step_size};
        const auto summed = {&TttProblem::token_scale, &TttProblem::norm_weight, &TttProblem::norm_bias,
                             &TttProblem::weight1,     &TttProblem::bias1,       &TttProblem::weight2,
                             &TttProblem::bias2};
        std::size_t first = 0;
        for (const std::size_t count : lengths) {
            TttProblem alone = p;
            alone.length = count;
            for (const auto member : tokens) alone.*member = reference::tokens_of(p, p.*member, first, count);
            const TttScan scan = scan_ttt(alone, type, reference::tokens_of(p, dy, first, count), false, {});
            check_relative(reference::tokens_of(p, together.y, first, count), scan.y, same_but_for_rounding(type),
                           fmt::format("y of {} tokens", count));
            for (const auto member : tokens)
                check_relative(reference::tokens_of(p, together.gradients.*member, first, count),
                               scan.gradients.*member, same_but_for_rounding(type),
                               fmt::format("gradients of {} tokens", count));
            for (const auto member : summed)
                for (std::size_t i = 0; i < (sums.*member).size(); ++i)
                    (sums.*member)[i] += (scan.gradients.*member)[i];
            first += count;
        }
        for (const auto member : summed)
            check_relative(together.gradients.*member, sums.*member, ttt_tolerance(Type::fp32), "summed gradient");
    }
}

inline std::vector<std::vector<char>> documents_bytes(const TttCase& c, const TttDocuments& documents, Type type) {
    const TttProblem p = ttt_documents(c, documents, type);
    return bytes_of(scan_ttt(p, type, random_rounded(type, p.q.size(), "dy"), true, ttt_dfinal(p)));
}

}  // namespace lockstep::operation_tests
