#include "model/count.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/counting_backend.hpp"
#include "model/frozen.hpp"
#include "model/stage.hpp"

namespace lockstep::model {
namespace {

using kernels::CountingBackend;
using kernels::MessageGroup;
using kernels::Operation;
using kernels::OperationKind;

constexpr std::int64_t of_embedding = -1, of_head = -2;  // indices of the two ends
constexpr std::size_t models_kept = 16;

class Arrived final : public cluster::Transfer {
  public:
    void wait() override {}
};

// Stands in for a group's ranks and records the messages.
class CountingCommunicator final : public cluster::Communicator {
  public:
    CountingCommunicator(CountingBackend& backend, MessageGroup group, int rank, int size)
        : backend_(backend), group_(group), rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void all_reduce(Tensor values, cluster::Reduce) override { say(OperationKind::all_reduce, values); }
    void begin_all_reduce(Tensor values, cluster::Reduce) override { say(OperationKind::all_reduce, values); }
    void begin_reduce_scatter(Tensor values, const std::vector<std::int64_t>&) override {
        say(OperationKind::reduce_scatter, values);
    }
    void begin_all_gather(Tensor values, const std::vector<std::int64_t>&) override {
        say(OperationKind::all_gather, values);
    }
    void finish_collectives() override {}
    std::unique_ptr<cluster::Transfer> begin_send(Tensor values, int, int) override {
        say(OperationKind::send, values);
        return std::make_unique<Arrived>();
    }
    std::unique_ptr<cluster::Transfer> begin_receive(Tensor values, int from, int) override {
        say(OperationKind::receive, values);
        backend_.operations().back().distance = std::abs(from - rank_);
        return std::make_unique<Arrived>();
    }

  private:
    void say(OperationKind kind, const Tensor& values) {
        Operation message = kernels::moved_work(kind, values.type(), static_cast<double>(values.bytes()));
        message.group = group_;
        backend_.operations().push_back(message);
    }
    CountingBackend& backend_;
    MessageGroup group_;
    int rank_, size_;
};

// A rank's imaginary neighbours.
struct Surroundings {
    Surroundings(CountingBackend& backend, const CountedShape& shape, std::int64_t tensor_rank = 0)
        : tensor(backend, MessageGroup::tensor, static_cast<int>(tensor_rank), static_cast<int>(shape.tensor)),
          context(backend, MessageGroup::context, static_cast<int>(shape.context - 1), static_cast<int>(shape.context)),
          group(shape.tensor > 1 ? TensorGroup(tensor, shape.divides_rows, nullptr, -1) : TensorGroup()),
          chain(shape.context > 1 ? ContextChain::in_the_middle(context) : ContextChain()) {}
    CountingCommunicator tensor, context;
    TensorGroup group;
    ContextChain chain;
    Neighbours neighbours{group, chain};
};

// The part of a backward pass that repeats the forward pass is recomputation.
bool goes_forward(OperationKind kind) {
    switch (kind) {
        case OperationKind::product_forward:
        case OperationKind::norm_forward:
        case OperationKind::activation_forward:
        case OperationKind::gated_forward:
        case OperationKind::convolution_forward:
        case OperationKind::attention_forward:
        case OperationKind::ttt_linear_forward:
        case OperationKind::ttt_mlp_forward:
        case OperationKind::delta_forward:
            return true;
        default:
            return false;
    }
}

void take_backward(Count& count, CountingBackend& backend) {
    for (const Operation& operation : backend.take())
        (goes_forward(operation.kind) ? count.recompute : count.backward).push_back(operation);
}

bool any_trained(const std::vector<ParameterDescription>& parameters) {
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter.trained; });
}

// Identifies equal blocks: mixer, window, heads, names within the block and shapes, what is trained, whether something
// below is.
std::string signature(const config::ModelDescription& model, std::int64_t number, bool below) {
    const config::LayerShape layer = model.layer(number);
    std::string text = fmt::format("{} {} {} {} {} {}", model.mixer(number), layer.window, layer.heads, layer.kv_heads,
                                   layer.head_width, below ? "+" : "-");
    const std::size_t prefix = block_prefix(number).size();
    for (const auto& parameter : describe_parameters(model, {number, number + 1, false, false}))
        text += parameter.name.substr(prefix) + shape_text(parameter.shape) + (parameter.trained ? "+" : "-");
    return text;
}

// FLOP per token, of one sequence on one rank.
CountedShape one_sequence(std::int64_t length, Recompute recompute) {
    CountedShape shape;
    shape.pass = {1, length};
    shape.recompute = recompute;
    return shape;
}

// Of one sequence, per token: the embedding and the head together, and each block.
template <class FlopOf>
PartFlop flop_of_parts(const config::ModelDescription& model, std::int64_t length, FlopOf&& flop_of,
                       Recompute recompute = Recompute::full) {
    config::ModelDescription longer = model;
    longer.context = std::max(longer.context, length);
    const auto count = ModelCount::of(longer);
    const CountedShape shape = one_sequence(length, recompute);
    const auto tokens = static_cast<double>(length);
    PartFlop flop;
    flop.head = (flop_of(count->embedding(shape)) + flop_of(count->head(shape))) / tokens;
    for (std::int64_t number = 0; number < model.layers; ++number) {
        const std::int64_t alike = count->alike(number);
        flop.blocks.push_back(alike < number ? flop.blocks[static_cast<std::size_t>(alike)]
                                             : flop_of(count->block(number, shape)) / tokens);
    }
    return flop;
}

double total(const PartFlop& flop) {
    return std::accumulate(flop.blocks.begin(), flop.blocks.end(), flop.head);
}

double forward_flop(const Count& count) {
    double flop = total_flop(count.forward);
    for (const Operation& operation : count.loss)
        if (operation.kind == OperationKind::product_forward) flop += operation.flop;
    return flop;
}

}  // namespace

bool CountedShape::operator<(const CountedShape& other) const {
    const auto key = [](const CountedShape& shape) {
        return std::tuple(shape.device, shape.type, shape.pass.batch, shape.pass.length, shape.tensor, shape.context,
                          shape.divides_rows, shape.recompute);
    };
    return key(*this) < key(other);
}

ModelCount::ModelCount(const config::ModelDescription& model) : model_(model) {
    std::map<std::string, std::int64_t> known;
    bool below = any_trained(describe_parameters(model, {0, 0, true, false}));
    for (std::int64_t number = 0; number < model.layers; ++number) {
        alike_.push_back(known.emplace(signature(model, number, below), number).first->second);
        below = below || any_trained(describe_parameters(model, {number, number + 1, false, false}));
    }
}

std::shared_ptr<ModelCount> ModelCount::of(const config::ModelDescription& model) {
    static std::deque<std::shared_ptr<ModelCount>> known;  // most recently used first
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const auto& count) { return count->model_ == model; });
    std::shared_ptr<ModelCount> count;
    if (found != known.end()) {
        count = *found;
        known.erase(found);
    } else {
        count = std::make_shared<ModelCount>(model);
        if (known.size() == models_kept) known.pop_back();
    }
    known.push_front(count);
    return count;
}

const Count& ModelCount::block(std::int64_t number, const CountedShape& shape) {
    return kept(alike(number), shape);
}
const Count& ModelCount::embedding(const CountedShape& shape) {
    return kept(of_embedding, shape);
}
const Count& ModelCount::head(const CountedShape& shape) {
    return kept(of_head, shape);
}

const Count& ModelCount::kept(std::int64_t number, const CountedShape& shape) {
    const std::pair key{number, shape};
    const auto found = counts_.find(key);
    if (found != counts_.end()) return found->second;
    Count count = number == of_embedding ? count_end({0, 0, true, false}, shape)
                  : number == of_head    ? count_end({model_.layers, model_.layers, false, true}, shape)
                                         : count_block(number, shape);
    return counts_.emplace(key, std::move(count)).first->second;
}

Count ModelCount::count_block(std::int64_t number, const CountedShape& shape) const {
    CountingBackend backend(shape.device);
    const Surroundings ranks(backend, shape);
    ParameterSet parameters(
        backend.device(),
        ParameterLayout(describe_parameters(model_, {number, number + 1, false, false}), ranks.group.part()), true,
        shape.type);
    reserve_adapter_scratch(backend.device(), parameters, model_, shape.pass.rows());
    Block block(backend, parameters, number, model_, ranks.neighbours);
    const bool below = trains_before(model_, number), has_backward = below || block.trains();
    const bool recomputes = has_backward && shape.recompute == Recompute::full;
    // More than any block needs; imaginary memory.
    Arena memory(backend.device(), std::size_t{1} << 44, "a count"),
        workspace(backend.device(), std::size_t{1} << 44, "");
    Block::Saved saved = block.plan(memory, shape.pass, has_backward, shape.recompute);
    Block::Kept kept = block.plan_kept(memory, shape.pass);
    if (model_.adapters.dropout > 0)
        parameters.set_dropout_tokens(memory.allocate(Type::int32, {shape.pass.rows(), 2}));
    const Tensor h = block.plan_output(memory, shape.pass), dh = block.plan_output(memory, shape.pass);
    backend.take();
    Count count;
    block.forward(backend, workspace, saved, kept, h, shape.pass);
    count.forward = backend.take();
    if (recomputes) {
        block.recompute(backend, workspace, saved, kept, h, shape.pass);
        count.recompute = backend.take();
    }
    if (has_backward) {
        block.backward(backend, workspace, dh, saved, kept, h, shape.pass, below);
        take_backward(count, backend);
    }
    kept.finish();
    return count;
}

// The embedding, or the final norm and the head.
Count ModelCount::count_end(const StageRange& range, const CountedShape& shape) const {
    CountingBackend backend(shape.device);
    const Surroundings ranks(backend, shape);
    ParameterSet parameters(backend.device(), ParameterLayout(describe_parameters(model_, range), ranks.group.part()),
                            true, shape.type);
    StageOptions options;
    options.range = range;
    options.shape = shape.pass;
    options.neighbours = &ranks.neighbours;
    Stage stage(backend, parameters, model_, options);
    const std::int64_t rows = shape.pass.rows();
    Arena memory(backend.device(), static_cast<std::size_t>(rows) * 16 + (std::size_t{1} << 10), "a count");
    const Tensor ids = memory.allocate(Type::int32, {rows}), losses = memory.allocate(Type::fp32, {rows});
    backend.take();
    Count count;
    stage.forward(0, ids);
    count.forward = backend.take();
    if (range.head) {
        stage.loss(0, ids, 1, losses);
        count.loss = backend.take();
    }
    if (range.embedding) {
        if (stage.has_backward()) stage.backward(0, ids);
        count.backward = backend.take();
    }
    return count;
}

void run_imaginary(CountingBackend& backend, const config::ModelDescription& model, const CountedRank& rank,
                   const CountedShape& shape) {
    const Surroundings ranks(backend, shape, rank.part.rank);
    ParameterSet parameters(backend.device(), ParameterLayout(describe_parameters(model, rank.chunks), rank.part), true,
                            shape.type, {rank.owned});
    const std::int64_t rows = shape.pass.rows();
    Arena memory(backend.device(), static_cast<std::size_t>(rows) * 16 + (std::size_t{1} << 10), "a count");
    const Tensor ids = memory.allocate(Type::int32, {rows}), losses = memory.allocate(Type::fp32, {rows});
    const Tensor tokens = model.adapters.dropout > 0 ? memory.allocate(Type::int32, {rows, 2}) : Tensor();
    for (const StageRange& range : rank.chunks) {
        StageOptions options;
        options.range = range;
        options.shape = shape.pass;
        options.recompute = shape.recompute;
        options.neighbours = &ranks.neighbours;
        Stage stage(backend, parameters, model, options);
        stage.set_dropout_tokens(0, tokens);
        for (const bool first : {true, false}) {
            if (!first && !rank.several_micro_batches) continue;
            parameters.set_first_pass(first);
            stage.forward(0, ids);
            if (range.head) stage.loss(0, ids, 1, losses);
            if (stage.has_backward()) stage.backward(0, ids);
            stage.finish();
        }
    }
}

PartFlop part_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    return flop_of_parts(model, length, forward_flop);
}

double training_flop_per_token(const config::ModelDescription& model, std::int64_t length) {
    return total(flop_of_parts(model, length, [](const Count& count) {
        return total_flop(count.forward) + total_flop(count.loss) + total_flop(count.backward);
    }));
}

double recomputed_flop_per_token(const config::ModelDescription& model, std::int64_t length, Recompute recompute) {
    return total(flop_of_parts(
        model, length, [](const Count& count) { return total_flop(count.recompute); }, recompute));
}

}  // namespace lockstep::model
