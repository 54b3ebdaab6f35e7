#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/values.hpp"

namespace lockstep::reference {

struct AttentionShape {
    std::size_t batch, query_length, key_length, heads, key_heads, width;
    std::size_t query_position = 0;  // of the first query, counted from the first key
    std::size_t window = 0;          // a query sees the last `window` keys up to its position; 0: all
    double score_cap = 0;            // 0: none
    // [batch, query_length]: the first key of each query's document, which may be behind all keys; empty: 0.
    std::vector<std::size_t> documents = {};

    double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }
    // A query sees keys [first_seen, seen).
    std::size_t seen(std::size_t query) const { return std::min(key_length, query + query_position + 1); }
    std::size_t first_seen(std::size_t b, std::size_t query) const {
        const std::size_t before = query + query_position + 1;
        const std::size_t of_window = window > 0 && before > window ? before - window : 0;
        return documents.empty() ? of_window : std::max(of_window, documents[b * query_length + query]);
    }
    double score(double product) const {
        const double score = scale() * product;
        return score_cap > 0 ? score_cap * std::tanh(score / score_cap) : score;
    }
    double slope(double score) const {  // d score / d product
        const double share = score_cap > 0 ? score / score_cap : 0;
        return scale() * (1 - share * share);
    }
    std::size_t query(std::size_t b, std::size_t i, std::size_t h) const {
        return ((b * query_length + i) * heads + h) * width;
    }
    std::size_t key(std::size_t b, std::size_t j, std::size_t h) const {
        return ((b * key_length + j) * key_heads + h / (heads / key_heads)) * width;
    }
};

inline double head_dot(const Values& a, std::size_t at, const Values& b, std::size_t bt, std::size_t width) {
    double sum = 0;
    for (std::size_t c = 0; c < width; ++c) sum += a[at + c] * b[bt + c];
    return sum;
}

struct Attended {
    Values y, log_sum_exp;
};

inline Attended attention_forward(const Values& q, const Values& k, const Values& v, const AttentionShape& s) {
    Attended out{Values(q.size()), Values(s.batch * s.heads * s.query_length)};
    for (std::size_t b = 0; b < s.batch; ++b)
        for (std::size_t h = 0; h < s.heads; ++h)
            for (std::size_t i = 0; i < s.query_length; ++i) {
                Values score(s.seen(i));
                double highest = -HUGE_VAL, total = 0;
                for (std::size_t j = s.first_seen(b, i); j < s.seen(i); ++j) {
                    score[j] = s.score(head_dot(q, s.query(b, i, h), k, s.key(b, j, h), s.width));
                    highest = std::max(highest, score[j]);
                }
                for (std::size_t j = s.first_seen(b, i); j < s.seen(i); ++j) total += std::exp(score[j] - highest);
                for (std::size_t j = s.first_seen(b, i); j < s.seen(i); ++j)
                    for (std::size_t c = 0; c < s.width; ++c)
                        out.y[s.query(b, i, h) + c] += std::exp(score[j] - highest) / total * v[s.key(b, j, h) + c];
                out.log_sum_exp[(b * s.heads + h) * s.query_length + i] = highest + std::log(total);
            }
    return out;
}

struct AttentionGradients {
    Values dq, dk, dv;
};

inline AttentionGradients attention_backward(const Values& dy, const Values& q, const Values& k, const Values& v,
                                             const AttentionShape& s) {
    const Attended forward = attention_forward(q, k, v, s);
    AttentionGradients out{Values(q.size()), Values(k.size()), Values(v.size())};
    for (std::size_t b = 0; b < s.batch; ++b)
        for (std::size_t h = 0; h < s.heads; ++h)
            for (std::size_t i = 0; i < s.query_length; ++i) {
                const std::size_t qi = s.query(b, i, h);
                const double level = forward.log_sum_exp[(b * s.heads + h) * s.query_length + i];
                const double along = head_dot(dy, qi, forward.y, qi, s.width);
                for (std::size_t j = s.first_seen(b, i); j < s.seen(i); ++j) {
                    const std::size_t kj = s.key(b, j, h);
                    const double score = s.score(head_dot(q, qi, k, kj, s.width)), p = std::exp(score - level);
                    const double ds = s.slope(score) * p * (head_dot(dy, qi, v, kj, s.width) - along);
                    for (std::size_t c = 0; c < s.width; ++c) {
                        out.dv[kj + c] += p * dy[qi + c];
                        out.dq[qi + c] += ds * k[kj + c];
                        out.dk[kj + c] += ds * q[qi + c];
                    }
                }
            }
    return out;
}

}  // namespace lockstep::reference
