#include "model/mixers/divided_attention.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::model {
namespace {

using cluster::Message;

// Of a stretch or a part of it; dy, y and log_sum_exp in backward.
struct Queries {
    Tensor q, dy, y, log_sum_exp;
};
struct Keys {
    Tensor k, v;
};
struct Gradients {
    Tensor q, k, v;
};

// The next rows x width elements of a flat tensor.
Tensor cut(Tensor flat, std::int64_t& at, std::int64_t rows, std::int64_t width) {
    const Tensor part = flat.slice(at, rows * width).reshaped({rows, width});
    at += rows * width;
    return part;
}

// Rows [first, first + count) of each of `groups` groups of rows, without copying.
Tensor rows_apart(Tensor tensor, std::int64_t groups, std::int64_t width, std::int64_t first, std::int64_t count) {
    return tensor.reshaped({groups, tensor.count() / groups}).columns(first * width, count * width);
}

// Dense: a view where there is one, else a copy in `room`.
Tensor rows_of(Backend& backend, Tensor tensor, std::int64_t groups, std::int64_t width, std::int64_t first,
               std::int64_t count, Tensor room) {
    const std::int64_t all = tensor.count() / groups / width;
    if (count == all) return tensor;
    const Shape shape = {groups * count, width};
    if (groups == 1) return tensor.reshaped({all, width}).slice(first, count).reshaped(shape);
    const Tensor rows = room.reshaped({room.count()}).slice(0, groups * count * width);
    backend.copy(rows.reshaped({groups, count * width}), rows_apart(tensor, groups, width, first, count));
    return rows.reshaped(shape);
}

Tensor dense(Backend& backend, Tensor tensor, Tensor room) {
    if (tensor.dense()) return tensor;
    backend.copy(room, tensor);
    return room;
}

}  // namespace

// What one rank computes of a pair of stretches: queries [first, first + count) of the one with the last keys of the
// other. `position`: of the first query, counted from the first key.
struct DividedAttention::Part {
    std::int64_t first, count, keys, position;
};

// What a rank does in the step of one distance; in step 0, with its own keys.
struct DividedAttention::Step {
    std::int64_t distance;
    int from, to;  // ranks it receives from and sends to
    bool own;      // its queries meet the keys of `from`; else, the queries of `from` its keys
    bool helped;   // `to` meets its queries; else, its keys
    Part here;     // what it computes
    Part there;    // what `to` computes with this rank's stretch
};

struct DividedAttention::Memory {
    Tensor dense_q;  // of the own stretch, where they are columns of wider matrices
    Keys dense_keys;
    // The parts of its queries and keys that another rank computes with, and that this one does.
    Queries given, kept;
    Keys given_keys, kept_keys;
    // What is received, and what is computed, in turns: two buffers, or one where there is one step. Forward: y,
    // log_sum_exp; backward: gradients.
    std::size_t buffers = 2;
    std::array<Tensor, 2> received, received_log_sum_exp, computed, computed_log_sum_exp;
    Tensor returned, returned_log_sum_exp;  // what another rank computed for this one
    Tensor sum;                             // forward, fp32; empty: y itself
    Gradients sums;                         // backward, fp32
};

// Over stretches of this length; 0: none, or one that hides nothing.
std::int64_t DividedAttention::window_over(std::int64_t length) const {
    return window_ < chain_->size() * length ? window_ : 0;
}

// Of stretches `distance` apart: what the rank of the queries computes, or that of the keys.
DividedAttention::Part DividedAttention::part(std::int64_t distance, std::int64_t length, bool of_queries) const {
    if (distance == 0) return {0, length, length, 0};
    // How many keys the first query sees; each one sees one key less than the query before it.
    const std::int64_t window = window_over(length);
    const std::int64_t seen = window > 0 ? window - 1 - (distance - 1) * length : distance * length + length;
    const std::int64_t queries = std::clamp<std::int64_t>(seen, 0, length);
    const bool halved = 2 * distance == chain_->size();
    Part part{};
    part.first = halved && of_queries ? queries / 2 : 0;
    part.count = halved && !of_queries ? queries / 2 : queries - part.first;
    part.keys = part.count > 0 ? std::clamp<std::int64_t>(seen - part.first, 0, length) : 0;
    if (window_ == 0 && part.count > 0) part.keys = length;
    part.position = distance * length + part.first - (length - part.keys);
    return part;
}

DividedAttention::Step DividedAttention::step(std::int64_t distance, std::int64_t length) const {
    const std::int64_t ranks = chain_->size(), rank = chain_->rank();
    Step step{};
    step.distance = distance;
    step.from = static_cast<int>((rank + ranks - distance) % ranks);
    step.to = static_cast<int>((rank + distance) % ranks);
    step.own = rank >= distance;
    step.helped = rank + distance >= ranks;
    step.here = part(step.own ? distance : ranks - distance, length, step.own);
    step.there = part(step.helped ? ranks - distance : distance, length, !step.helped);
    return step;
}

kernels::AttentionShape DividedAttention::attention_shape(const PassShape& shape, const Step& step) const {
    const Part& part = step.here;
    kernels::Documents documents = shape.documents;
    documents.first_position = (step.own ? chain_->rank() : step.from) * shape.length + part.first;
    return {shape.batch, part.count,  part.keys,     heads_,
            key_heads_,  head_width_, part.position, window_over(shape.length),
            score_cap_,  documents};
}

DividedAttention::Memory DividedAttention::allocate(Arena& arena, const PassShape& shape, Direction direction) const {
    Memory memory;
    const bool backward = direction == Direction::backward;
    const std::int64_t rows = shape.rows(), width = heads_ * head_width_, key_width = key_heads_ * head_width_;
    const auto make = [&](std::int64_t count, std::int64_t columns) { return arena.allocate(type_, {count, columns}); };
    const auto log_sum_exp = [&](std::int64_t length) {
        return arena.allocate(Type::fp32, {shape.batch * heads_ * length});
    };
    if (columns_) {
        memory.dense_q = make(rows, width);
        memory.dense_keys = {make(rows, key_width), make(rows, key_width)};
    }
    // Tokens of a stretch that meet another at most; queries and keys at most where those are a part of it.
    std::int64_t meeting = 1, some_queries = 0, some_keys = 0;
    for (std::int64_t distance = 1; distance < chain_->size(); ++distance)
        for (const bool of_queries : {true, false}) {
            if (of_queries ? 2 * distance > chain_->size() : 2 * distance < chain_->size()) continue;
            const Part one = part(distance, shape.length, of_queries);
            meeting = std::max({meeting, one.count, one.keys});
            if (one.count < shape.length) some_queries = std::max(some_queries, one.count);
            if (one.keys < shape.length) some_keys = std::max(some_keys, one.keys);
        }
    if (some_queries > 0)
        for (Queries* queries : {&memory.given, &memory.kept}) {
            if (shape.batch > 1) {
                queries->q = make(shape.batch * some_queries, width);
                if (backward) queries->dy = make(shape.batch * some_queries, width);
                if (backward) queries->y = make(shape.batch * some_queries, width);
            }
            if (backward) queries->log_sum_exp = log_sum_exp(some_queries);
        }
    if (some_keys > 0 && shape.batch > 1)
        for (Keys* keys : {&memory.given_keys, &memory.kept_keys})
            *keys = {make(shape.batch * some_keys, key_width), make(shape.batch * some_keys, key_width)};
    const std::int64_t queries_width = (backward ? 3 : 1) * width, met = shape.batch * meeting;
    memory.buffers = chain_->size() < 4 ? 1 : 2;
    for (std::size_t i = 0; i < memory.buffers; ++i) {
        memory.received[i] = arena.allocate(type_, {met * std::max(queries_width, 2 * key_width)});
        // Backward: the own stretch's come first, whole.
        memory.computed[i] = arena.allocate(type_, {backward ? rows * (width + 2 * key_width) : met * width});
        if (backward)
            memory.received_log_sum_exp[i] = log_sum_exp(meeting);
        else
            memory.computed_log_sum_exp[i] = log_sum_exp(meeting);
    }
    memory.returned = arena.allocate(type_, {met * (backward ? std::max(width, 2 * key_width) : width)});
    if (!backward) {
        memory.returned_log_sum_exp = log_sum_exp(meeting);
        if (type_ != Type::fp32) memory.sum = arena.allocate(Type::fp32, {rows, width});
        return memory;
    }
    for (auto [sum, columns] :
         {std::pair(&memory.sums.q, width), std::pair(&memory.sums.k, key_width), std::pair(&memory.sums.v, key_width)})
        *sum = arena.allocate(Type::fp32, {rows, columns});
    return memory;
}

void DividedAttention::plan_workspace(Arena& arena, const PassShape& shape, Direction direction) const {
    const std::size_t mark = arena.mark();
    allocate(arena, shape, direction);
    arena.release(mark);
}

// What forward and backward share: the messages of a step, and the views of what they bring.
class DividedAttention::Pass {
  public:
    Pass(const DividedAttention& attention, Backend& backend, const Memory& memory, const PassShape& shape,
         Direction direction)
        : attention_(attention),
          backend_(backend),
          memory_(memory),
          shape_(shape),
          backward_(direction == Direction::backward),
          width_(attention.heads_ * attention.head_width_),
          key_width_(attention.key_heads_ * attention.head_width_) {}

    void set_own(const Queries& queries, const Keys& keys) {
        own_ = queries;
        own_.q = dense(backend_, queries.q, memory_.dense_q);
        keys_ = {dense(backend_, keys.k, memory_.dense_keys.k), dense(backend_, keys.v, memory_.dense_keys.v)};
    }

    // compute(step) fills computed(step); give(step) lists the messages by which results return; take(step) adds what
    // was returned.
    template <class Compute, class Give, class Take>
    void for_each_step(Compute&& compute, Give&& give, Take&& take) {
        const ContextChain& chain = *attention_.chain_;
        const std::int64_t last = chain.size() / 2;
        const auto step = [&](std::int64_t distance) { return attention_.step(distance, shape_.length); };
        std::unique_ptr<cluster::Transfer> coming = chain.exchange(messages(step(1)), attention_.tag_), returning;
        compute(step(0));
        for (std::int64_t distance = 1; distance <= last; ++distance) {
            chain.wait(coming);
            if (distance < last) coming = chain.exchange(messages(step(distance + 1)), attention_.tag_);
            if (step(distance).here.count > 0) compute(step(distance));
            if (distance > 1) {
                chain.wait(returning);
                take(step(distance - 1));
            }
            returning = chain.exchange(give(step(distance)), attention_.tag_ + 1);
        }
        chain.wait(returning);
        take(step(last));
    }

    Queries queries(const Step& step) const {
        return step.own ? part_of_own(step.here.first, step.here.count, memory_.kept) : received_queries(step);
    }
    Keys keys(const Step& step) const {
        return step.own && step.distance > 0 ? received_keys(step) : last_keys(step.here.keys, memory_.kept_keys);
    }

    // Of the step's queries; forward.
    Queries computed(const Step& step) const {
        std::int64_t at = 0;
        const std::size_t turn = turn_of(step);
        Queries results;
        results.y = cut(memory_.computed[turn], at, shape_.batch * step.here.count, width_);
        results.log_sum_exp = of_heads(memory_.computed_log_sum_exp[turn], step.here.count);
        return results;
    }
    Queries returned(const Step& step) const {
        std::int64_t at = 0;
        Queries results;
        results.y = cut(memory_.returned, at, shape_.batch * step.there.count, width_);
        results.log_sum_exp = of_heads(memory_.returned_log_sum_exp, step.there.count);
        return results;
    }
    // Backward.
    Gradients computed_gradients(const Step& step) const {
        std::int64_t at = 0;
        const Tensor flat = memory_.computed[turn_of(step)];
        const std::int64_t keys = shape_.batch * step.here.keys;
        const Tensor q = cut(flat, at, shape_.batch * step.here.count, width_), k = cut(flat, at, keys, key_width_);
        return {q, k, cut(flat, at, keys, key_width_)};
    }
    Gradients returned_gradients(const Step& step) const {
        std::int64_t at = 0;
        if (step.helped) return {cut(memory_.returned, at, shape_.batch * step.there.count, width_), {}, {}};
        const std::int64_t keys = shape_.batch * step.there.keys;
        const Tensor k = cut(memory_.returned, at, keys, key_width_);
        return {{}, k, cut(memory_.returned, at, keys, key_width_)};
    }

  private:
    std::size_t turn_of(const Step& step) const { return static_cast<std::size_t>(step.distance) % memory_.buffers; }

    Tensor of_heads(Tensor log_sum_exp, std::int64_t queries) const {
        return log_sum_exp.slice(0, shape_.batch * attention_.heads_ * queries);
    }

    Queries part_of_own(std::int64_t first, std::int64_t count, const Queries& rooms) const {
        const auto rows = [&](Tensor tensor, Tensor room) {
            return tensor.axes() == 0 ? tensor : rows_of(backend_, tensor, shape_.batch, width_, first, count, room);
        };
        Queries part{rows(own_.q, rooms.q), rows(own_.dy, rooms.dy), rows(own_.y, rooms.y), {}};
        if (own_.log_sum_exp.axes() > 0)
            part.log_sum_exp = rows_of(backend_, own_.log_sum_exp, shape_.batch * attention_.heads_, 1, first, count,
                                       rooms.log_sum_exp);
        return part;
    }
    Keys last_keys(std::int64_t count, const Keys& rooms) const {
        const auto rows = [&](Tensor tensor, Tensor room) {
            return rows_of(backend_, tensor, shape_.batch, key_width_, shape_.length - count, count, room);
        };
        return {rows(keys_.k, rooms.k), rows(keys_.v, rooms.v)};
    }

    Queries received_queries(const Step& step) const {
        std::int64_t at = 0;
        const Tensor flat = memory_.received[turn_of(step)];
        const auto next = [&] { return cut(flat, at, shape_.batch * step.here.count, width_); };
        Queries queries;
        queries.q = next();
        if (!backward_) return queries;
        queries.dy = next();
        queries.y = next();
        queries.log_sum_exp = of_heads(memory_.received_log_sum_exp[turn_of(step)], step.here.count);
        return queries;
    }
    Keys received_keys(const Step& step) const {
        std::int64_t at = 0;
        const Tensor flat = memory_.received[turn_of(step)];
        const std::int64_t rows = shape_.batch * step.here.keys;
        const Tensor k = cut(flat, at, rows, key_width_);
        return {k, cut(flat, at, rows, key_width_)};
    }

    std::vector<Message> messages(const Step& step) const {
        std::vector<Message> messages;
        const auto add_queries = [&](const Queries& queries, int rank, bool sent) {
            for (const Tensor& tensor : {queries.q, queries.dy, queries.y, queries.log_sum_exp})
                if (tensor.axes() > 0) messages.push_back({tensor, rank, sent});
        };
        const auto add_keys = [&](const Keys& keys, int rank, bool sent) {
            messages.push_back({keys.k, rank, sent});
            messages.push_back({keys.v, rank, sent});
        };
        if (step.there.count > 0) {
            if (step.helped)
                add_queries(part_of_own(0, step.there.count, memory_.given), step.to, true);
            else
                add_keys(last_keys(step.there.keys, memory_.given_keys), step.to, true);
        }
        if (step.here.count > 0) {
            if (step.own)
                add_keys(received_keys(step), step.from, false);
            else
                add_queries(received_queries(step), step.from, false);
        }
        return messages;
    }

    const DividedAttention& attention_;
    Backend& backend_;
    const Memory& memory_;
    PassShape shape_;
    bool backward_;
    std::int64_t width_, key_width_;
    Queries own_;
    Keys keys_;
};

void DividedAttention::forward(Backend& backend, Arena& workspace, Tensor y, Tensor log_sum_exp, Tensor q, Tensor k,
                               Tensor v, const PassShape& shape) const {
    const std::size_t mark = workspace.mark();
    const Memory memory = allocate(workspace, shape, Direction::forward);
    const Tensor sum = memory.sum.axes() > 0 ? memory.sum : y;
    Pass pass(*this, backend, memory, shape, Direction::forward);
    pass.set_own({q, {}, {}, {}}, {k, v});
    const kernels::AttentionShape whole = attention_shape(shape, step(0, shape.length));
    const auto compute = [&](const Step& step) {
        const Keys keys = pass.keys(step);
        const bool first = step.distance == 0;
        Queries results;
        if (first)
            results.y = y, results.log_sum_exp = log_sum_exp;
        else
            results = pass.computed(step);
        backend.attention_forward(results.y, results.log_sum_exp, pass.queries(step).q, keys.k, keys.v,
                                  attention_shape(shape, step));
        if (first)
            backend.copy(sum, y);
        else if (step.own)
            backend.attention_join(sum, log_sum_exp, results.y, results.log_sum_exp, step.here.first, whole);
    };
    const auto give = [&](const Step& step) {
        std::vector<Message> messages;
        if (!step.own && step.here.count > 0)
            for (const Queries results = pass.computed(step); const Tensor& tensor : {results.y, results.log_sum_exp})
                messages.push_back({tensor, step.from, true});
        if (step.helped && step.there.count > 0)
            for (const Queries results = pass.returned(step); const Tensor& tensor : {results.y, results.log_sum_exp})
                messages.push_back({tensor, step.to, false});
        return messages;
    };
    const auto take = [&](const Step& step) {
        if (!step.helped || step.there.count == 0) return;
        const Queries results = pass.returned(step);
        backend.attention_join(sum, log_sum_exp, results.y, results.log_sum_exp, 0, whole);
    };
    pass.for_each_step(compute, give, take);
    backend.copy(y, sum);
    workspace.release(mark);
}

void DividedAttention::backward(Backend& backend, Arena& workspace, Tensor dq, Tensor dk, Tensor dv, Tensor dy,
                                Tensor q, Tensor k, Tensor v, Tensor y, Tensor log_sum_exp,
                                const PassShape& shape) const {
    const std::size_t mark = workspace.mark();
    const Memory memory = allocate(workspace, shape, Direction::backward);
    const Gradients& sums = memory.sums;
    Pass pass(*this, backend, memory, shape, Direction::backward);
    pass.set_own({q, dy, y, log_sum_exp}, {k, v});
    const auto add = [&](Tensor sum, Tensor gradient, std::int64_t heads, std::int64_t first, std::int64_t count) {
        const std::int64_t width = heads * head_width_;
        backend.add(rows_apart(sum, shape.batch, width, first, count), gradient.reshaped({shape.batch, count * width}));
    };
    const auto add_queries = [&](const Gradients& gradients, std::int64_t first, std::int64_t count) {
        add(sums.q, gradients.q, heads_, first, count);
    };
    const auto add_keys = [&](const Gradients& gradients, std::int64_t count) {
        add(sums.k, gradients.k, key_heads_, shape.length - count, count);
        add(sums.v, gradients.v, key_heads_, shape.length - count, count);
    };
    const auto compute = [&](const Step& step) {
        const Queries queries = pass.queries(step);
        const Keys keys = pass.keys(step);
        const Gradients gradients = pass.computed_gradients(step);
        backend.attention_backward(gradients.q, gradients.k, gradients.v, queries.dy, queries.q, keys.k, keys.v,
                                   queries.y, queries.log_sum_exp, attention_shape(shape, step));
        if (step.distance == 0) {
            backend.copy(sums.q, gradients.q);
            backend.copy(sums.k, gradients.k);
            backend.copy(sums.v, gradients.v);
        } else if (step.own) {
            add_queries(gradients, step.here.first, step.here.count);
        } else {
            add_keys(gradients, step.here.keys);
        }
    };
    const auto give = [&](const Step& step) {
        std::vector<Message> messages;
        const auto say = [&](const Gradients& gradients, bool of_queries, int rank, bool sent) {
            if (of_queries) return messages.push_back({gradients.q, rank, sent});
            messages.push_back({gradients.k, rank, sent});
            messages.push_back({gradients.v, rank, sent});
        };
        if (step.here.count > 0) say(pass.computed_gradients(step), !step.own, step.from, true);
        if (step.there.count > 0) say(pass.returned_gradients(step), step.helped, step.to, false);
        return messages;
    };
    const auto take = [&](const Step& step) {
        if (step.there.count == 0) return;
        const Gradients gradients = pass.returned_gradients(step);
        if (step.helped)
            add_queries(gradients, 0, step.there.count);
        else
            add_keys(gradients, step.there.keys);
    };
    pass.for_each_step(compute, give, take);
    // Only dense tensors are converted.
    const auto store = [&](Tensor gradient, Tensor sum, Tensor room) {
        if (gradient.dense() || type_ == Type::fp32) return backend.copy(gradient, sum);
        backend.copy(room, sum);
        backend.copy(gradient, room);
    };
    const Gradients rooms = pass.computed_gradients(step(0, shape.length));
    store(dq, sums.q, rooms.q);
    store(dk, sums.k, rooms.k);
    store(dv, sums.v, rooms.v);
    workspace.release(mark);
}

}  // namespace lockstep::model
