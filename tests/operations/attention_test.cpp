#define BOOST_TEST_MODULE attention
#include "reference/attention.hpp"
#include "operations/documents.hpp"
#include "operations/support.hpp"

using namespace lockstep;
using namespace lockstep::operation_tests;

namespace {

struct Case {
    std::int64_t batch, query_length, key_length, heads, key_heads, width;
    std::int64_t query_position = key_length - query_length;  // the last queries of the keys' sequence
    std::int64_t window = 0;
    float score_cap = 0;
    kernels::Documents documents = {};

    kernels::AttentionShape shape() const {
        return {batch, query_length, key_length, heads, key_heads, width, query_position, window, score_cap, documents};
    }
    reference::AttentionShape reference() const {
        const auto u = [](std::int64_t size) { return static_cast<std::size_t>(size); };
        return {u(batch), u(query_length),   u(key_length), u(heads), u(key_heads),
                u(width), u(query_position), u(window),     score_cap};
    }
    std::string text(Type type) const {
        return fmt::format("{} B {} Lq {} Lk {} H {} G {} f {} at {} window {} cap {}", type_name(type), batch,
                           query_length, key_length, heads, key_heads, width, query_position, window, score_cap);
    }
    Shape queries() const { return {batch * query_length, heads * width}; }
    Shape keys() const { return {batch * key_length, key_heads * width}; }
    Shape sums() const { return {batch, heads, query_length}; }
    std::size_t terms() const { return static_cast<std::size_t>(key_length + width); }
};

Values random_of(Type type, const Shape& shape, const std::string& purpose, double scale = 1) {
    return random_rounded(type, static_cast<std::size_t>(element_count(shape)), purpose, scale);
}

// Lengths around the tiles of 16 to 128 rows, primes; the tuned widths and others; groups of 1 to 4 heads.
const std::vector<Case> square = {
    {1, 1, 1, 1, 1, 64},    {2, 2, 2, 2, 1, 8},      {1, 31, 31, 2, 2, 5},     {2, 32, 32, 3, 1, 40},
    {1, 33, 33, 4, 1, 64},  {1, 33, 33, 1, 1, 96},   {1, 63, 63, 1, 1, 128},   {2, 64, 64, 2, 1, 8},
    {1, 65, 65, 2, 1, 64},  {1, 17, 17, 6, 2, 16},   {1, 97, 97, 1, 1, 96},    {1, 127, 127, 1, 1, 64},
    {1, 128, 128, 1, 1, 8}, {1, 129, 129, 1, 1, 96}, {1, 131, 131, 1, 1, 128}, {1, 35, 35, 1, 1, 256},
    {1, 34, 34, 1, 1, 112}, {1, 34, 34, 1, 1, 163},  {1, 70, 70, 2, 2, 7},     {1, 66, 66, 1, 1, 1}};
const std::vector<Case> decoding = {{2, 1, 17, 4, 2, 64},   {1, 5, 70, 2, 1, 64},    {1, 1, 65, 3, 3, 96},
                                    {1, 2, 64, 2, 1, 64},   {3, 1, 64, 2, 2, 5},     {1, 65, 130, 1, 1, 40},
                                    {1, 3, 131, 2, 1, 128}, {1, 129, 200, 1, 1, 64}, {1, 2, 150, 4, 1, 8}};
// Queries behind all keys, among the last keys, and a few positions on.
const std::vector<Case> stretches = {
    {2, 33, 33, 4, 2, 64, 33},   {1, 65, 65, 2, 1, 64, 1000}, {1, 16, 33, 2, 1, 96, 33},   {1, 17, 33, 2, 2, 128, 50},
    {1, 70, 66, 2, 1, 64, 30},   {1, 129, 40, 1, 1, 8, 7},    {1, 40, 129, 2, 1, 64, 100}, {2, 5, 130, 2, 2, 5, 127},
    {1, 131, 97, 3, 1, 96, 96},  {1, 1, 65, 1, 1, 64, 65},    {1, 66, 34, 1, 1, 256, 17},  {1, 100, 1, 2, 1, 64, 0},
    {1, 140, 131, 1, 1, 128, 60}};

// Windows of one key, within a tile, of a tile, over several, and longer than the sequence, for the kernels of all
// widths.
const std::vector<Case> windows = {
    {1, 33, 33, 2, 1, 64, 0, 1},    {2, 65, 65, 4, 2, 64, 0, 17},    {1, 140, 140, 1, 1, 64, 0, 33},
    {1, 131, 131, 2, 1, 96, 0, 32}, {1, 133, 133, 1, 1, 128, 0, 64}, {1, 70, 70, 3, 1, 40, 0, 9},
    {1, 66, 66, 1, 1, 24, 0, 31},   {1, 40, 40, 2, 1, 112, 0, 8},    {1, 70, 70, 1, 1, 256, 0, 20},
    {2, 40, 40, 2, 1, 5, 0, 3},     {1, 40, 40, 1, 1, 163, 0, 12},   {1, 50, 50, 2, 2, 64, 0, 1000},
    {1, 200, 200, 1, 1, 64, 0, 66}, {1, 1, 90, 4, 2, 64, 89, 16},    {1, 3, 70, 2, 1, 5, 67, 10}};
// Queries behind the keys, of which they see the last ones; keys that no query sees.
const std::vector<Case> windowed_stretches = {{2, 33, 33, 4, 2, 64, 33, 34},   {1, 20, 40, 2, 1, 128, 60, 50},
                                              {1, 30, 150, 2, 1, 64, 120, 20}, {1, 9, 200, 1, 1, 8, 191, 4},
                                              {1, 16, 33, 2, 1, 96, 33, 40},   {1, 16, 150, 1, 1, 256, 140, 30},
                                              {1, 70, 66, 2, 1, 64, 30, 50},   {1, 16, 300, 2, 1, 64, 284, 20},
                                              {1, 16, 200, 1, 1, 96, 184, 20}, {1, 16, 200, 1, 1, 128, 184, 20}};
const std::vector<Case> capped = {
    {2, 33, 33, 4, 2, 64, 0, 0, 2.0f},  {1, 70, 70, 1, 1, 96, 0, 0, 0.5f},    {1, 40, 40, 2, 1, 128, 0, 0, 5.0f},
    {1, 35, 35, 1, 1, 256, 0, 0, 1.0f}, {1, 66, 66, 2, 1, 24, 0, 20, 1.5f},   {2, 20, 20, 2, 1, 5, 0, 0, 1.0f},
    {1, 33, 33, 1, 1, 163, 0, 7, 1.0f}, {1, 131, 131, 2, 2, 64, 0, 40, 1.0f}, {1, 17, 33, 2, 2, 128, 50, 60, 50.0f},
    {1, 34, 34, 1, 1, 112, 0, 0, 1.0f}, {1, 1, 65, 3, 3, 96, 64, 0, 1.0f}};

struct Inputs {
    Values q, k, v, dy;
};
Inputs inputs_of(Type type, const Case& c, double scale = 1) {
    return {random_of(type, c.queries(), "q", scale), random_of(type, c.keys(), "k"), random_of(type, c.keys(), "v"),
            random_of(type, c.queries(), "dy")};
}

// A tensor that begins one element after a place that 16-byte accesses can begin at.
class Shifted {
  public:
    Shifted(Type type, const Shape& shape, const Values& values)
        : whole_(type, {element_count(shape) + 1}), shape_(shape) {
        Values padded(1, 0.0);
        padded.insert(padded.end(), values.begin(), values.end());
        whole_.set(padded);
    }
    operator Tensor() const { return whole_.tensor().slice(1, element_count(shape_)).reshaped(shape_); }
    Values values() const {
        const Values all = whole_.values();
        return Values(all.begin() + 1, all.end());
    }
    double before() const { return whole_.values()[0]; }  // the element that is not the tensor's: 0

  private:
    OnDevice whole_;
    Shape shape_;
};

struct Forward {
    OnDevice q, k, v, y, sums;

    Forward(Type type, const Case& c, const Inputs& in)
        : q(type, c.queries(), in.q),
          k(type, c.keys(), in.k),
          v(type, c.keys(), in.v),
          y(type, c.queries()),
          sums(Type::fp32, c.sums()) {
        run(c);
    }
    void run(const Case& c) {
        y.poison();
        sums.poison();
        backend().attention_forward(y, sums, q, k, v, c.shape());
    }
};

struct Backward {
    OnDevice dy, dq, dk, dv;

    Backward(Type type, const Case& c, const Inputs& in, const Forward& forward)
        : dy(type, c.queries(), in.dy), dq(type, c.queries()), dk(type, c.keys()), dv(type, c.keys()) {
        dq.poison();
        dk.poison();
        dv.poison();
        backend().attention_backward(dq, dk, dv, dy, forward.q, forward.k, forward.v, forward.y, forward.sums,
                                     c.shape());
    }
};

void check_forward(Type type, const Case& c) {
    const Inputs in = inputs_of(type, c);
    const Forward run(type, c, in);
    const auto expected = reference::attention_forward(in.q, in.k, in.v, c.reference());
    check_close(run.y.values(), expected.y, type, c.terms(), c.text(type) + " y");
    check_close(run.sums.values(), expected.log_sum_exp, Type::fp32, c.terms(), c.text(type) + " log_sum_exp");
}

void check_backward(Type type, const Case& c) {
    const Inputs in = inputs_of(type, c);
    const Forward forward(type, c, in);
    const Backward run(type, c, in, forward);
    const auto expected = reference::attention_backward(in.dy, in.q, in.k, in.v, c.reference());
    const std::size_t terms = c.terms() * static_cast<std::size_t>(c.heads);
    check_close(run.dv.values(), expected.dv, type, terms, c.text(type) + " dv");
    if (c.key_length > 1 && c.window != 1) {
        check_close(run.dq.values(), expected.dq, type, terms, c.text(type) + " dq");
        check_close(run.dk.values(), expected.dk, type, terms, c.text(type) + " dk");
    } else {  // a single key has weight 1 whatever the scores: only the rounding of dy·(v - y) is left
        for (const double value : run.dq.values()) BOOST_TEST(std::abs(value) < 1e-5);
        for (const double value : run.dk.values()) BOOST_TEST(std::abs(value) < 1e-5);
    }
}

// Keys from position `first_key` of packed sequences on, and queries from there by their query_position.
struct DocumentCase {
    Case c;
    std::int64_t first_key;
    std::vector<std::vector<std::int64_t>> lengths;
};
const std::vector<DocumentCase> with_documents = {
    {{2, 65, 65, 4, 2, 64}, 0, {{1, 3, 12, 16, 33}, {64, 1}}},
    {{1, 140, 140, 1, 1, 64}, 0, {{31, 33, 1, 1, 74}}},
    {{1, 200, 200, 2, 1, 64, 0, 30}, 0, {{5, 60, 100, 35}}},
    {{1, 131, 131, 2, 1, 96}, 0, {{32, 64, 35}}},
    {{2, 133, 133, 1, 1, 128, 0, 0, 2.0f}, 0, {{133}, {7, 126}}},
    {{1, 70, 70, 3, 1, 40}, 2, {{1, 4, 60, 10}}},
    {{3, 66, 66, 1, 1, 24}, 3, {{70}, {3, 66, 1}, {2, 20, 20, 20, 8}}},
    {{1, 40, 40, 2, 1, 112}, 0, {{8, 32}}},
    {{1, 70, 70, 1, 1, 256}, 0, {{20, 17, 33}}},
    {{2, 40, 40, 2, 1, 5}, 0, {{1, 1, 1, 1, 36}, {40}}},
    {{1, 40, 40, 1, 1, 163}, 5, {{15, 10, 20}}},
    // Stretches of queries behind the keys: some see none of them, or none does.
    {{2, 33, 33, 4, 2, 64, 33}, 0, {{20, 30, 16}, {33, 33}}},
    {{1, 65, 65, 2, 1, 64, 130}, 4, {{5, 100, 20, 100}}},
    {{1, 130, 70, 2, 1, 64, 70}, 0, {{50, 50, 100}}},
    {{1, 20, 40, 2, 1, 128, 60, 50}, 0, {{25, 45, 10}}},
    {{1, 17, 33, 2, 2, 96, 50}, 1, {{30, 30, 30}}},
    {{2, 16, 16, 1, 1, 8, 16}, 0, {{4, 28}, {16, 16}}},
    {{1, 1, 90, 4, 2, 64, 89}, 0, {{60, 30}}},
};

void check_documents(Type type, const DocumentCase& with) {
    Case c = with.c;
    const PackedDocuments documents(with.lengths);
    const std::int64_t first_query = with.first_key + c.query_position;
    c.documents = documents.from(first_query);
    reference::AttentionShape shape = c.reference();
    shape.documents = documents.begins(first_query, c.query_length, with.first_key);
    const std::string text = c.text(type) + " with documents";
    const Inputs in = inputs_of(type, c);
    const Forward forward(type, c, in);
    const auto expected = reference::attention_forward(in.q, in.k, in.v, shape);
    check_close(forward.y.values(), expected.y, type, c.terms(), text + " y");
    // Of queries without keys, it is -∞.
    const auto finite = [](Values values) {
        for (double& value : values) value = value == -HUGE_VAL ? -1e3 : value;
        return values;
    };
    check_close(finite(forward.sums.values()), finite(expected.log_sum_exp), Type::fp32, c.terms(), text + " sums");
    const Backward run(type, c, in, forward);
    const auto gradients = reference::attention_backward(in.dy, in.q, in.k, in.v, shape);
    const std::size_t terms = c.terms() * static_cast<std::size_t>(c.heads);
    check_close(run.dv.values(), gradients.dv, type, terms, text + " dv");
    check_close(run.dq.values(), gradients.dq, type, terms, text + " dq");
    check_close(run.dk.values(), gradients.dk, type, terms, text + " dk");
}

}  // namespace

BOOST_AUTO_TEST_CASE(documents_do_not_see_each_other) {
    for_each_type([](Type type) {
        for (const DocumentCase& with : with_documents) check_documents(type, with);
    });
}

BOOST_AUTO_TEST_CASE(forward_agrees_with_the_reference) {
    for_each_type([](Type type) {
        for (const auto& c : square) check_forward(type, c);
        for (const auto& c : decoding) check_forward(type, c);
        for (const auto& c : stretches) check_forward(type, c);
        for (const auto& c : windows) check_forward(type, c);
        for (const auto& c : windowed_stretches) check_forward(type, c);
        for (const auto& c : capped) check_forward(type, c);
    });
}

BOOST_AUTO_TEST_CASE(backward_agrees_with_the_reference) {
    for_each_type([](Type type) {
        for (const auto& c : square) check_backward(type, c);
        for (const auto& c : stretches) check_backward(type, c);
        for (const auto& c : windows) check_backward(type, c);
        for (const auto& c : windowed_stretches) check_backward(type, c);
        for (const auto& c : capped) check_backward(type, c);
    });
}

// The keys of a sequence in two parts: the outputs join to those over all, and the gradients add up to theirs.
BOOST_AUTO_TEST_CASE(parts_of_the_keys_join) {
    struct Parts {
        Case whole;
        std::int64_t first_keys, first_query, queries;  // the first part of the keys; the queries that see the second
    };
    const std::vector<Parts> cases = {{{2, 33, 33, 4, 2, 64}, 20, 20, 13},
                                      {{1, 50, 50, 3, 1, 5}, 1, 1, 49},
                                      {{3, 17, 40, 2, 2, 96}, 30, 7, 10},
                                      {{1, 5, 9, 1, 1, 1}, 5, 1, 4},
                                      {{2, 16, 64, 2, 1, 128}, 32, 0, 16}};
    for_each_type([&](Type type) {
        for (const auto& [c, first_keys, first_query, queries] : cases) {
            const auto batch = static_cast<std::size_t>(c.batch);
            const Inputs in = inputs_of(type, c);
            // Tokens [first, first + count) of each sequence.
            const auto tokens = [&](const Values& values, std::int64_t length, std::int64_t first, std::int64_t count) {
                const std::size_t sequence = values.size() / batch, token = sequence / static_cast<std::size_t>(length);
                return reference::columns_of(values, sequence, token * static_cast<std::size_t>(first),
                                             token * static_cast<std::size_t>(count));
            };
            const auto keys = [&](const Values& values, std::int64_t first, std::int64_t count) {
                return tokens(values, c.key_length, first, count);
            };
            const Case before{c.batch, c.query_length, first_keys, c.heads, c.key_heads, c.width, c.query_position};
            const Case behind{c.batch,
                              queries,
                              c.key_length - first_keys,
                              c.heads,
                              c.key_heads,
                              c.width,
                              c.query_position + first_query - first_keys};
            const OnDevice q(type, c.queries(), in.q), k(type, before.keys(), keys(in.k, 0, first_keys)),
                v(type, before.keys(), keys(in.v, 0, first_keys)),
                last_q(type, behind.queries(), tokens(in.q, c.query_length, first_query, queries)),
                last_k(type, behind.keys(), keys(in.k, first_keys, c.key_length - first_keys)),
                last_v(type, behind.keys(), keys(in.v, first_keys, c.key_length - first_keys));
            const OnDevice y(type, c.queries()), sums(Type::fp32, c.sums()), sum(Type::fp32, c.queries()),
                last_y(type, behind.queries());
            OnDevice last_sums(Type::fp32, behind.sums());
            backend().attention_forward(y, sums, q, k, v, before.shape());
            backend().attention_forward(last_y, last_sums, last_q, last_k, last_v, behind.shape());
            backend().copy(sum, y);
            backend().attention_join(sum, sums, last_y, last_sums, first_query, c.shape());
            const auto expected = reference::attention_forward(in.q, in.k, in.v, c.reference());
            check_close(sum.values(), expected.y, type, c.terms(), c.text(type) + " y");
            check_close(sums.values(), expected.log_sum_exp, Type::fp32, c.terms(), c.text(type) + " log_sum_exp");

            backend().copy(y, sum);
            backend().copy(last_y,
                           OnDevice(type, behind.queries(), tokens(y.values(), c.query_length, first_query, queries)));
            last_sums.set(reference::columns_of(sums.values(), static_cast<std::size_t>(c.query_length),
                                                static_cast<std::size_t>(first_query),
                                                static_cast<std::size_t>(queries)));
            const OnDevice dy(type, c.queries(), in.dy),
                last_dy(type, behind.queries(), tokens(in.dy, c.query_length, first_query, queries)),
                dq(type, c.queries()), dk(type, before.keys()), dv(type, before.keys()),
                last_dq(type, behind.queries()), last_dk(type, behind.keys()), last_dv(type, behind.keys());
            backend().attention_backward(dq, dk, dv, dy, q, k, v, y, sums, before.shape());
            backend().attention_backward(last_dq, last_dk, last_dv, last_dy, last_q, last_k, last_v, last_y, last_sums,
                                         behind.shape());
            const auto gradients = reference::attention_backward(in.dy, in.q, in.k, in.v, c.reference());
            const std::size_t terms = c.terms() * static_cast<std::size_t>(c.heads);
            Values all = dq.values();
            const Values more = last_dq.values();
            const std::size_t row = in.q.size() / batch / static_cast<std::size_t>(c.query_length);
            for (std::size_t i = 0; i < more.size(); ++i) {
                const std::size_t part = more.size() / batch, sequence = in.q.size() / batch;
                all[i / part * sequence + row * static_cast<std::size_t>(first_query) + i % part] += more[i];
            }
            check_close(all, gradients.dq, type, terms, c.text(type) + " dq");
            check_close(dk.values(), keys(gradients.dk, 0, first_keys), type, terms, c.text(type) + " dk");
            check_close(dv.values(), keys(gradients.dv, 0, first_keys), type, terms, c.text(type) + " dv");
            const std::int64_t last_keys = c.key_length - first_keys;
            check_close(last_dk.values(), keys(gradients.dk, first_keys, last_keys), type, terms,
                        c.text(type) + " the last dk");
            check_close(last_dv.values(), keys(gradients.dv, first_keys, last_keys), type, terms,
                        c.text(type) + " the last dv");
        }
    });
}

// Rows that are not aligned, too.
BOOST_AUTO_TEST_CASE(no_order_of_threads_changes_what_is_joined) {
    const Case c{2, 5, 5, 3, 3, 64};
    for_each_type([&](Type type) {
        const Inputs in = inputs_of(type, c);
        const Forward run(type, c, in);
        const OnDevice other(Type::fp32, c.sums(), random_of(Type::fp32, c.sums(), "other"));
        Values expected = in.q;
        const Values y = run.y.values(), own_sums = run.sums.values(), other_sums = other.values();
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const std::size_t token = i / 192, head = i / 64 % 3;
            const std::size_t at = (token / 5 * 3 + head) * 5 + token % 5;
            const double own = std::exp(own_sums[at]), its = std::exp(other_sums[at]);
            expected[i] = (own * in.q[i] + its * y[i]) / (own + its);
        }
        for_each_order([&] {
            const OnDevice sum(Type::fp32, c.queries(), in.q), sums(Type::fp32, c.sums(), own_sums);
            const Shifted shifted(Type::fp32, c.queries(), in.q);
            const OnDevice again(Type::fp32, c.sums(), own_sums);
            backend().attention_join(sum, sums, run.y, other, 0, c.shape());
            backend().attention_join(shifted, again, run.y, other, 0, c.shape());
            check_close(sum.values(), expected, Type::fp32, 2, c.text(type));
            check_close(shifted.values(), expected, Type::fp32, 2, c.text(type) + ", not aligned");
            return std::vector<std::vector<char>>{sum.bytes(), sums.bytes(), again.bytes()};
        });
    });
}

BOOST_AUTO_TEST_CASE(no_order_of_threads_changes_a_bit) {
    for_each_type([](Type type) {
        for (const Case& c : {Case{1, 67, 67, 2, 1, 64}, Case{2, 35, 35, 2, 2, 5}, Case{1, 37, 37, 1, 1, 96},
                              Case{1, 66, 66, 1, 1, 128}, Case{1, 67, 67, 2, 1, 64, 0, 20, 2.0f},
                              Case{1, 16, 150, 1, 1, 64, 134, 20}}) {
            const Inputs in = inputs_of(type, c);
            for_each_order([&] {
                const Forward forward(type, c, in);
                const Backward run(type, c, in, forward);
                return std::vector<std::vector<char>>{forward.y.bytes(), forward.sums.bytes(), run.dq.bytes(),
                                                      run.dk.bytes(), run.dv.bytes()};
            });
        }
    });
}

BOOST_AUTO_TEST_CASE(tensors_that_are_not_aligned_give_the_same) {
    for_each_type([&](Type type) {
        for (const Case& c : {Case{1, 40, 40, 2, 1, 64}, Case{1, 40, 40, 2, 1, 64, 0, 9, 2.0f}}) {
            const Inputs in = inputs_of(type, c);
            const Shifted q(type, c.queries(), in.q), k(type, c.keys(), in.k), v(type, c.keys(), in.v),
                dy(type, c.queries(), in.dy), y(type, c.queries(), in.q), dq(type, c.queries(), in.q),
                dk(type, c.keys(), in.k), dv(type, c.keys(), in.v);
            const OnDevice sums(Type::fp32, c.sums());
            backend().attention_forward(y, sums, q, k, v, c.shape());
            backend().attention_backward(dq, dk, dv, dy, q, k, v, y, sums, c.shape());
            const auto expected = reference::attention_backward(in.dy, in.q, in.k, in.v, c.reference());
            check_close(y.values(), reference::attention_forward(in.q, in.k, in.v, c.reference()).y, type, c.terms(),
                        "y");
            check_close(dq.values(), expected.dq, type, 2 * c.terms(), "dq");
            check_close(dk.values(), expected.dk, type, 2 * c.terms(), "dk");
            check_close(dv.values(), expected.dv, type, 2 * c.terms(), "dv");
            BOOST_TEST(y.before() == 0);
            BOOST_TEST(dk.before() == 0);
        }
    });
}

BOOST_AUTO_TEST_CASE(rows_may_be_columns_of_a_wider_matrix) {
    struct Room {
        std::int64_t before, behind;
    };
    const std::vector<Case> cases = {
        {2, 33, 33, 2, 1, 64}, {1, 18, 18, 2, 2, 24}, {2, 33, 33, 2, 1, 64, 0, 10}, {1, 18, 18, 2, 2, 24, 0, 0, 1.0f}};
    for_each_type([&](Type type) {
        for (const Case& c : cases)
            for (const Room& room :
                 {Room{8, 24}, Room{8, 25}, Room{1, 31}}) {  // rows that are aligned, and that are not
                const auto columns = [&](const Shape& shape, const Values& values) {
                    return Columns(type, shape[0], shape[1], room.before, room.behind, values);
                };
                const Inputs in = inputs_of(type, c);
                const Columns q = columns(c.queries(), in.q), k = columns(c.keys(), in.k), v = columns(c.keys(), in.v);
                const Columns dq = columns(c.queries(), in.q), dk = columns(c.keys(), in.k),
                              dv = columns(c.keys(), in.v);
                const OnDevice y(type, c.queries()), sums(Type::fp32, c.sums()), dy(type, c.queries(), in.dy);
                backend().attention_forward(y, sums, q, k, v, c.shape());
                backend().attention_backward(dq, dk, dv, dy, q, k, v, y, sums, c.shape());
                const std::string text = fmt::format("{}, {} and {} beside", c.text(type), room.before, room.behind);
                const std::size_t terms = c.terms() * static_cast<std::size_t>(c.heads);
                const auto forward = reference::attention_forward(in.q, in.k, in.v, c.reference());
                const auto expected = reference::attention_backward(in.dy, in.q, in.k, in.v, c.reference());
                check_close(y.values(), forward.y, type, c.terms(), text + " y");
                check_close(dq.values(), expected.dq, type, terms, text + " dq");
                check_close(dk.values(), expected.dk, type, terms, text + " dk");
                check_close(dv.values(), expected.dv, type, terms, text + " dv");
                BOOST_CHECK(dq.untouched() && dk.untouched() && dv.untouched());
            }
    });
}

BOOST_AUTO_TEST_CASE(a_query_of_a_longer_sequence_attends_as_it_does_alone) {
    const Case whole{1, 131, 131, 2, 1, 64}, last{1, 1, 131, 2, 1, 64};
    for_each_type([&](Type type) {
        for (const double scale : {1.0, 30.0}) {  // of the other queries: their scores rise from tile to tile
            Inputs in = inputs_of(type, whole, scale);
            const Inputs usual = inputs_of(type, whole);
            std::copy(usual.q.end() - 128, usual.q.end(), in.q.end() - 128);
            const Forward run(type, whole, in);
            const OnDevice y(type, last.queries()), sums(Type::fp32, last.sums());
            backend().attention_forward(y, sums, run.q.tensor().slice(130, 1), run.k, run.v, last.shape());
            const Values all = run.y.values(), expected(all.end() - 128, all.end());
            if (backend().device().kind ==
                DeviceKind::cpu)  // where tiles of 64 queries sum in another order than one query
                check_close(y.values(), expected, type, whole.terms(), whole.text(type));
            else
                BOOST_TEST(y.values() == expected);
        }
    });
}

BOOST_AUTO_TEST_CASE(scores_may_rise_and_fall_from_key_to_key) {
    const Case plain{1, 170, 170, 2, 1, 64}, windowed{1, 170, 170, 2, 1, 64, 0, 70};
    for_each_type([&](Type type) {
        for (const auto& [c, rising] :
             {std::pair(plain, true), std::pair(plain, false), std::pair(windowed, true), std::pair(windowed, false)}) {
            Inputs in = inputs_of(type, c);
            for (std::size_t i = 0; i < in.q.size(); ++i) in.q[i] = static_cast<double>(i / 64 % 5) / 4;
            for (std::size_t i = 0; i < in.k.size(); ++i)
                in.k[i] = static_cast<double>(rising ? i / 64 : 169 - i / 64) / 16;
            const Forward run(type, c, in);
            const auto expected = reference::attention_forward(in.q, in.k, in.v, c.reference());
            check_close(run.y.values(), expected.y, type, c.terms(), c.text(type) + " y");
            check_close(run.sums.values(), expected.log_sum_exp, Type::fp32, c.terms(), c.text(type) + " log_sum_exp");
        }
    });
}

BOOST_AUTO_TEST_CASE(later_tokens_do_not_change_earlier_ones) {
    const Case c{1, 100, 100, 1, 1, 64};
    for_each_type([&](Type type) {
        Inputs in = inputs_of(type, c);
        const Forward before(type, c, in);
        for (std::size_t i = 70 * 64; i < 100 * 64; ++i) in.k[i] = in.v[i] = 3;
        const Forward after(type, c, in);
        const Values a = before.y.values(), b = after.y.values();
        BOOST_TEST(std::equal(a.begin(), a.begin() + 70 * 64, b.begin()));
        BOOST_TEST(!std::equal(a.begin() + 70 * 64, a.begin() + 71 * 64, b.begin() + 70 * 64));
    });
}

BOOST_AUTO_TEST_CASE(tokens_behind_a_window_do_not_change_later_ones) {
    const Case c{1, 200, 200, 1, 1, 64, 0, 40};
    for_each_type([&](Type type) {
        Inputs in = inputs_of(type, c);
        const Forward before(type, c, in);
        const Backward slopes_before(type, c, in, before);
        for (std::size_t i = 0; i < 70 * 64; ++i) in.k[i] = in.v[i] = in.q[i] = 30;
        const Forward after(type, c, in);
        const Backward slopes_after(type, c, in, after);
        const Values a = before.y.values(), b = after.y.values();
        BOOST_TEST(std::equal(a.begin() + 109 * 64, a.end(), b.begin() + 109 * 64));
        BOOST_TEST(!std::equal(a.begin() + 108 * 64, a.begin() + 109 * 64, b.begin() + 108 * 64));
        const Values da = slopes_before.dq.values(), db = slopes_after.dq.values();
        BOOST_TEST(std::equal(da.begin() + 109 * 64, da.end(), db.begin() + 109 * 64));
        for (const double value : db) BOOST_TEST(std::isfinite(value));
        const Values ka = slopes_before.dk.values(), kb = slopes_after.dk.values();
        BOOST_TEST(std::equal(ka.begin() + 109 * 64, ka.end(), kb.begin() + 109 * 64));
    });
}

BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
    const Case c{1, 70, 70, 2, 2, 32};
    for_each_type([&](Type type) {
        for (const double scale : {100.0, 1e4}) {  // weights are nearly 0 or 1; scores of 1e4 carry 1e-3 in fp32
            const Inputs in = inputs_of(type, c, scale);
            const Forward run(type, c, in);
            const auto expected = reference::attention_forward(in.q, in.k, in.v, c.reference());
            const Values y = run.y.values();
            for (std::size_t i = 0; i < y.size(); ++i)
                BOOST_TEST(std::abs(y[i] - expected.y[i]) < 2e-2 + 4 * roundoff(type), c.text(type));
            const Backward gradients(type, c, in, run);
            for (const auto* gradient : {&gradients.dk, &gradients.dq, &gradients.dv})
                for (const double value : gradient->values()) BOOST_TEST(std::isfinite(value));
        }
        // One key that all later queries attend to alone, and one that none does.
        Inputs in = inputs_of(type, c);
        for (std::size_t i = 0; i < in.q.size(); ++i) in.q[i] = 1;
        for (std::size_t i = 0; i < 64; ++i) {
            in.k[40 * 64 + i] = 1000;
            in.k[50 * 64 + i] = -1000;
        }
        const Forward run(type, c, in);
        const Values y = run.y.values();
        for (std::size_t row = 40; row < 70; ++row)
            for (std::size_t i = 0; i < 64; ++i)
                BOOST_TEST(std::abs(y[row * 64 + i] - in.v[40 * 64 + i]) < 16 * roundoff(type));
    });
}

BOOST_AUTO_TEST_CASE(not_a_number_is_seen_where_it_matters) {
    const Case c{1, 70, 70, 2, 2, 64};
    for_each_type([&](Type type) {
        const Inputs in = inputs_of(type, c);
        Inputs bad = in;
        bad.q[3 * 128 + 5] = std::numeric_limits<double>::quiet_NaN();  // a query of token 3, head 0
        const Values y = Forward(type, c, bad).y.values();
        BOOST_TEST((std::isnan(y[3 * 128]) && !std::isnan(y[3 * 128 + 64]) && !std::isnan(y[2 * 128]) &&
                    !std::isnan(y[4 * 128])));
        bad = in;
        bad.v[0] = std::numeric_limits<double>::quiet_NaN();  // a value of token 0, seen by all
        const Values z = Forward(type, c, bad).y.values();
        BOOST_TEST((std::isnan(z[0]) && std::isnan(z[69 * 128])));
    });
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
    const Case c{1, 4, 4, 4, 2, 8}, wide{1, 2, 2, 1, 1, 257};
    const Forward run(Type::bf16, c, inputs_of(Type::bf16, c));
    auto wrong = c.shape();
    wrong.key_heads = 3;
    BOOST_CHECK_THROW(backend().attention_forward(run.y, run.sums, run.q, run.k, run.v, wrong), Error);
    if (backend().device().kind != DeviceKind::cpu)  // which takes heads of any width
        BOOST_CHECK_THROW(Forward(Type::bf16, wide, inputs_of(Type::bf16, wide)), Error);
}
