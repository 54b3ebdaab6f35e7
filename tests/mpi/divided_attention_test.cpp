// Attention over a sequence divided among ranks is that over the whole sequence on one.
#define BOOST_TEST_MODULE divided_attention
#define BOOST_TEST_NO_MAIN
#include <fmt/format.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <numeric>

#include "base/float16.hpp"
#include "model/mixers/divided_attention.hpp"
#include "mpi/carrier.hpp"
#include "reference/attention.hpp"
#include "reference/tolerance.hpp"
#include "unit/kernels/support.hpp"

using namespace lockstep;
using cluster::Communicator;
using cluster::Use;
using reference::Values;

namespace {

test::Carrier* carrier = nullptr;
Communicator* ranks = nullptr;

struct Case {
    std::int64_t batch, stretch, heads, key_heads, width;  // stretch: tokens of a rank
    std::int64_t window = 0;
    float score_cap = 0;
    bool documents = false;  // a few, of odd lengths

    std::int64_t length() const { return stretch * ranks->size(); }
    // Of each position of each sequence, where its document begins and ends.
    std::vector<std::int32_t> places(bool starts) const {
        std::vector<std::int32_t> list;
        for (std::int64_t s = 0; s < batch; ++s) {
            std::vector<std::int64_t> cuts = {0};
            for (std::int64_t t = 1; t < length(); ++t)
                if ((t * t + 3 * s) % 11 == 0 || t % 13 == s + 1) cuts.push_back(t);
            cuts.push_back(length());
            for (std::size_t n = 0; n + 1 < cuts.size(); ++n)
                list.insert(list.end(), static_cast<std::size_t>(cuts[n + 1] - cuts[n]),
                            static_cast<std::int32_t>(cuts[starts ? n : n + 1]));
        }
        return list;
    }
    reference::AttentionShape reference() const {
        const auto u = [](std::int64_t size) { return static_cast<std::size_t>(size); };
        const std::size_t length = u(stretch) * u(ranks->size());
        reference::AttentionShape shape{u(batch), length, length,    u(heads), u(key_heads),
                                        u(width), 0,      u(window), score_cap};
        if (documents)
            for (const std::int32_t start : places(true)) shape.documents.push_back(u(start));
        return shape;
    }
    std::int64_t rows() const { return batch * stretch; }
    std::string text(Type type) const {
        return fmt::format("rank {} of {}: {} B {} L {} H {} G {} f {} window {}{}", ranks->rank(), ranks->size(),
                           type_name(type), batch, stretch, heads, key_heads, width, window,
                           documents ? ", documents" : "");
    }
};

// Odd and even lengths, a single token, groups of heads.
const std::vector<Case> cases = {{1, 8, 2, 2, 4},
                                 {2, 9, 4, 2, 16},
                                 {1, 33, 2, 1, 64},
                                 {3, 5, 3, 1, 5},
                                 {1, 1, 1, 1, 8},
                                 {2, 2, 2, 2, 3},
                                 // Windows of one token, within a stretch, of one, over several, and over all.
                                 {2, 9, 2, 1, 8, 1},
                                 {2, 9, 4, 2, 16, 4},
                                 {1, 8, 2, 2, 4, 8, 0.5f},
                                 {3, 8, 2, 1, 5, 9},
                                 {2, 5, 2, 2, 8, 13},
                                 {1, 33, 2, 1, 64, 50, 2.0f},
                                 {2, 1, 1, 1, 8, 2},
                                 {2, 4, 2, 1, 3, 11},
                                 {1, 6, 1, 1, 8, 1000},
                                 {2, 6, 2, 2, 4, 0, 1.0f},
                                 {2, 9, 4, 2, 16, 0, 0, true},
                                 {3, 5, 3, 1, 5, 0, 0, true},
                                 {1, 33, 2, 1, 64, 0, 0.5f, true},
                                 {2, 8, 2, 2, 4, 6, 0, true},
                                 {1, 1, 1, 1, 8, 0, 0, true},
                                 {2, 20, 2, 1, 8, 25, 0, true}};

class OnDevice {
  public:
    OnDevice(Type type, const Shape& shape, const Values& values = {})
        : arena_(carrier->device(), static_cast<std::size_t>(element_count(shape)) * type_bytes(type) + 512, "a test"),
          tensor_(arena_.allocate(type, shape)) {
        if (!values.empty()) set(values);
    }
    operator Tensor() const { return tensor_; }
    std::vector<char> bytes() const {
        std::vector<char> bytes(tensor_.bytes());
        carrier->get(bytes.data(), tensor_);
        return bytes;
    }
    Values values() const {
        const std::vector<char> raw = bytes();
        Values values(static_cast<std::size_t>(tensor_.count()));
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (tensor_.type() == Type::fp32) {
                values[i] = reinterpret_cast<const float*>(raw.data())[i];
            } else {
                values[i] = bf16_value(reinterpret_cast<const std::uint16_t*>(raw.data())[i]);
            }
        }
        return values;
    }

  private:
    void set(const Values& values) {
        if (tensor_.type() == Type::fp32) {
            const std::vector<float> floats(values.begin(), values.end());
            carrier->put(tensor_, floats.data());
        } else {
            std::vector<std::uint16_t> bits;
            for (const double value : values) bits.push_back(bf16_bits(static_cast<float>(value)));
            carrier->put(tensor_, bits.data());
        }
    }
    Arena arena_;
    Tensor tensor_;
};

Values random(Type type, std::size_t count, const std::string& purpose) {
    Values values = kernel_tests::random_values(count, purpose);
    for (double& value : values) {
        value = static_cast<double>(static_cast<float>(value));
        if (type == Type::bf16) value = bf16_value(bf16_bits(static_cast<float>(value)));
    }
    return values;
}

// This rank's stretch of each sequence.
Values mine(const Values& values, const Case& c) {
    const std::size_t sequence = values.size() / static_cast<std::size_t>(c.batch);
    const std::size_t stretch = sequence / static_cast<std::size_t>(ranks->size());
    return reference::columns_of(values, sequence, static_cast<std::size_t>(ranks->rank()) * stretch, stretch);
}
// log_sum_exp [B, H, L]: the stretch of each head.
Values mine_of_heads(const Values& values, const Case& c) {
    const std::size_t head = static_cast<std::size_t>(c.stretch) * static_cast<std::size_t>(ranks->size());
    return reference::columns_of(values, head,
                                 static_cast<std::size_t>(ranks->rank()) * static_cast<std::size_t>(c.stretch),
                                 static_cast<std::size_t>(c.stretch));
}

void check_close(const Values& actual, const Values& expected, double allowed, const std::string& what) {
    BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
    double size = 0, worst = 0;
    for (const double value : expected) size = std::max(size, std::abs(value));
    if (size < 1e-12) size = 1;  // a first token alone: its key has weight 1 whatever the scores
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = std::abs(actual[i] - expected[i]) / size;
        if (!(error <= worst)) worst = error;  // NaN counts
    }
    BOOST_CHECK_MESSAGE(worst <= allowed, what << " is off by " << worst << " of the largest value");
}

// In the memory that was planned; q, k and v are columns of one matrix.
struct Divided {
    Divided(kernels::Backend& backend, Type type, const Case& c, const Values& q, const Values& k, const Values& v,
            const Values& dy)
        : y(type, {c.rows(), c.heads * c.width}),
          log_sum_exp(Type::fp32, {c.batch, c.heads, c.stretch}),
          dq(type, {c.rows(), c.heads * c.width}),
          dk(type, {c.rows(), c.key_heads * c.width}),
          dv(type, {c.rows(), c.key_heads * c.width}) {
        const std::int64_t query_width = c.heads * c.width, key_width = c.key_heads * c.width;
        const model::ContextChain chain(*ranks, nullptr, -1);
        const model::DividedAttention attention(chain, type,
                                                {c.heads, c.key_heads, c.width, true, c.window, c.score_cap}, 0);
        model::PassShape shape{c.batch, c.stretch};
        const OnDevice starts(Type::int32, {c.batch, c.length()}), ends(Type::int32, {c.batch, c.length()});
        if (c.documents) {
            carrier->put(starts, c.places(true).data());
            carrier->put(ends, c.places(false).data());
            shape.documents = {starts, ends, ranks->rank() * c.stretch};
        }
        // Each direction in the memory planned for it.
        const auto in_planned_memory = [&](model::Direction direction, auto&& pass) {
            Arena plan(carrier->device());
            attention.plan_workspace(plan, shape, direction);
            Arena workspace(carrier->device(), plan.peak(), "a test's workspace");
            pass(workspace);
            backend.synchronize();
            BOOST_TEST(workspace.used() == 0u);
            BOOST_TEST(workspace.peak() == plan.peak());
        };
        const std::int64_t all = query_width + 2 * key_width + 1;
        const OnDevice here(type, {c.rows(), all}), dhere(type, {c.rows(), all});
        const auto part = [&](const OnDevice& matrix, int which) {
            return Tensor(matrix).columns(which == 0 ? 0 : query_width + (which - 1) * key_width,
                                          which == 0 ? query_width : key_width);
        };
        const std::array<Values, 3> inputs = {mine(q, c), mine(k, c), mine(v, c)};
        for (int which = 0; which < 3; ++which)
            backend.copy(part(here, which),
                         OnDevice(type, part(here, which).shape(), inputs[static_cast<std::size_t>(which)]));
        backend.synchronize();
        const OnDevice gradient(type, {c.rows(), query_width}, mine(dy, c));
        in_planned_memory(model::Direction::forward, [&](Arena& workspace) {
            attention.forward(backend, workspace, y, log_sum_exp, part(here, 0), part(here, 1), part(here, 2), shape);
        });
        in_planned_memory(model::Direction::backward, [&](Arena& workspace) {
            attention.backward(backend, workspace, part(dhere, 0), part(dhere, 1), part(dhere, 2), gradient,
                               part(here, 0), part(here, 1), part(here, 2), y, log_sum_exp, shape);
        });
        backend.copy(dq, part(dhere, 0));
        backend.copy(dk, part(dhere, 1));
        backend.copy(dv, part(dhere, 2));
        backend.synchronize();
    }

    OnDevice y, log_sum_exp, dq, dk, dv;
};

}  // namespace

BOOST_AUTO_TEST_CASE(is_attention_over_the_whole_sequence) {
    const auto backend = carrier->make_backend();
    for (const Type type : {Type::fp32, Type::bf16})
        for (const Case& c : cases) {
            const reference::AttentionShape shape = c.reference();
            const std::size_t queries = shape.batch * shape.query_length * shape.heads * shape.width;
            const std::size_t keys = queries / shape.heads * shape.key_heads;
            const Values q = random(type, queries, "q"), k = random(type, keys, "k"), v = random(type, keys, "v"),
                         dy = random(type, queries, "dy");
            const Divided run(*backend, type, c, q, k, v, dy);
            const auto expected = reference::attention_forward(q, k, v, shape);
            const auto gradients = reference::attention_backward(dy, q, k, v, shape);
            const double roundoff = type == Type::fp32 ? reference::fp32_roundoff : reference::bf16_roundoff;
            const std::size_t terms = shape.key_length + shape.width;
            const double of_y = reference::tolerance(roundoff, terms);
            const double allowed = reference::tolerance(roundoff, terms * shape.heads);
            check_close(run.y.values(), mine(expected.y, c), of_y, c.text(type) + ": y");
            check_close(run.log_sum_exp.values(), mine_of_heads(expected.log_sum_exp, c),
                        reference::tolerance(reference::fp32_roundoff, terms), c.text(type) + ": log_sum_exp");
            check_close(run.dq.values(), mine(gradients.dq, c), allowed, c.text(type) + ": dq");
            check_close(run.dk.values(), mine(gradients.dk, c), allowed, c.text(type) + ": dk");
            check_close(run.dv.values(), mine(gradients.dv, c), allowed, c.text(type) + ": dv");
            const Divided again(*backend, type, c, q, k, v, dy);
            BOOST_CHECK(run.y.bytes() == again.y.bytes() && run.dq.bytes() == again.dq.bytes() &&
                        run.dk.bytes() == again.dk.bytes() && run.dv.bytes() == again.dv.bytes());
        }
}

int main(int argc, char** argv) {
    setenv("LOCKSTEP_SYNCHRONOUS_SENDS", "1", 0);  // no send ends before its receive has begun
    cluster::Session started(&argc, &argv);
    return started.run([&] {
        const auto made = test::make_carrier(started);
        carrier = made.get();
        std::vector<int> everyone(static_cast<std::size_t>(started.size()));
        std::iota(everyone.begin(), everyone.end(), 0);
        const auto group = carrier->source().make(everyone, Use::transfers);
        ranks = group.get();
        return boost::unit_test::unit_test_main(init_unit_test, argc, argv);
    });
}
