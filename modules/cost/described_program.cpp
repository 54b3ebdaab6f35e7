#include "cost/described_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "layout/rank_share.hpp"

namespace lockstep::cost {
namespace {

using kernels::MessageGroup;
using kernels::Operation;
using Kind = kernels::OperationKind;
using Operations = std::vector<Operation>;

// How far apart the rows of the worst aligned matrix are, in elements, is said by `row_length`.
Operation product(Kind kind, double rows, double columns, double depth, double row_length, double batch = 1) {
    Operation operation;
    operation.kind = kind;
    operation.rows = rows;
    operation.columns = columns;
    operation.depth = depth;
    operation.batch = batch;
    operation.row_length = static_cast<std::int64_t>(row_length);
    operation.flop = 2 * rows * columns * depth * batch;
    return operation;
}

Operation times(double count, Operation operation) {
    operation.times = count;
    return operation;
}

Operation moved(double bytes) {
    return kernels::moved_work(Kind::copy, Type::fp32, bytes);
}

Operation all_reduce(double bytes) {
    Operation message = kernels::moved_work(Kind::all_reduce, Type::fp32, bytes);
    message.group = MessageGroup::tensor;
    return message;
}

void append(Operations& list, const Operations& more) {
    list.insert(list.end(), more.begin(), more.end());
}

// Megatron-LM's layers (Shoeybi et al. 2019): four products, scores in memory, and passes over the residual stream and
// the MLP's columns.
class Megatron {
  public:
    Megatron(const Job& job, const ModelLoad& load, const Layout& layout)
        : program_(job.program),
          load_(load),
          layout_(layout),
          model_(load.shape),
          number_(bytes_of(job.run.precision.compute)),
          tensor_(static_cast<double>(layout.tensor)),
          length_(static_cast<double>(job.run.batch.length) / static_cast<double>(layout.context)),
          sequences_(static_cast<double>(layout.micro)),
          rows_(length_ * sequences_),
          width_(static_cast<double>(model_.width)),
          heads_(static_cast<double>(model_.layer(0).heads) / tensor_),
          keys_(static_cast<double>(model_.layer(0).kv_heads) / tensor_),
          head_width_(static_cast<double>(model_.layer(0).head_width)),
          hidden_(static_cast<double>(model_.mlp_width) / tensor_) {}

    model::Count block() const {
        model::Count count;
        linears(count);
        append(count.forward, scores_forward());
        const double stream = rows_ * width_ * number_, hidden = rows_ * hidden_ * number_;
        const double stream_here = layout_.sequence ? stream / tensor_ : stream;
        const double hidden_passes = model_.mlp == config::MlpKind::swiglu ? 3 : 2;
        Operation launch;
        launch.kind = Kind::launch;
        append(count.forward, {moved(program_.stream_passes_forward * stream_here + hidden_passes * hidden),
                               times(program_.forward_kernels, launch), times(2, all_reduce(stream))});
        // Norms of heads: read and written; with the gradient, the input and its gradient.
        const double heads = model_.qk_norm ? rows_ * (heads_ + keys_) * head_width_ * number_ : 0;
        if (model_.qk_norm) append(count.forward, {moved(2 * heads), times(2, launch)});
        if (!load_.trains()) return count;  // nothing to come back for
        append(count.backward, scores_backward());
        if (model_.qk_norm) append(count.backward, {moved(3 * heads), times(2, launch)});
        append(count.backward,
               {moved(program_.stream_passes_backward * stream_here + (hidden_passes + 1) * hidden),
                times(program_.backward_kernels, launch),
                moved(load_.block_trained / tensor_ * program_.accumulated_bytes), times(2, all_reduce(stream))});
        if (layout_.recompute == config::Recompute::full)
            count.recompute = count.forward;
        else if (layout_.recompute == config::Recompute::selective)
            count.recompute = scores_forward();
        return count;
    }

    model::Count head() const {
        // Parts differ by a row where t does not divide the vocabulary: then one of them is not aligned.
        const double row_length =
            static_cast<double>(model_.vocabulary % layout_.tensor == 0 ? model_.vocabulary / layout_.tensor : 1);
        const double vocabulary = static_cast<double>(model_.vocabulary) / tensor_;
        model::Count count;
        count.loss = {product(Kind::product_forward, rows_, vocabulary, width_, row_length)};
        if (load_.trains()) {
            const double trained = load_.head > 0 ? load_.head_trained / load_.head : 0;
            append(count.loss,
                   {product(Kind::product_input_gradient, rows_, width_, vocabulary, row_length),
                    times(trained, product(Kind::product_weight_gradient, vocabulary, width_, rows_, row_length))});
        }
        count.loss.push_back(moved(rows_ * vocabulary * program_.logit_moved_bytes * number_ / 2));
        return count;
    }

  private:
    void linears(model::Count& count) const {
        const double trained = load_.block > 0 ? load_.block_trained / load_.block : 0;
        const double up = model_.mlp == config::MlpKind::swiglu ? 2 : 1;
        // Columns and depth of the weights: query, key and value; output; up and gate; down.
        const std::array<std::pair<double, double>, 4> weights = {{{(heads_ + 2 * keys_) * head_width_, width_},
                                                                   {width_, heads_ * head_width_},
                                                                   {up * hidden_, width_},
                                                                   {width_, hidden_}}};
        for (const auto& [columns, depth] : weights) {
            const double row_length = std::fmod(columns, 8) != 0 ? columns : depth;
            count.forward.push_back(product(Kind::product_forward, rows_, columns, depth, row_length));
            if (!load_.trains()) continue;
            append(count.backward,
                   {product(Kind::product_input_gradient, rows_, depth, columns, row_length),
                    times(trained, product(Kind::product_weight_gradient, columns, depth, rows_, row_length))});
        }
    }

    // Scores, and their sums of values.
    Operation scores() const {
        return product(Kind::product_forward, length_, length_, head_width_, head_width_, sequences_ * heads_);
    }
    Operation sums() const {
        return product(Kind::product_forward, length_, head_width_, length_, head_width_, sequences_ * heads_);
    }
    double score_bytes() const { return length_ * length_ * sequences_ * heads_ * number_; }
    Operations scores_forward() const {
        return {scores(), sums(), moved(program_.score_passes_forward * score_bytes())};
    }
    Operations scores_backward() const {
        return {scores(), times(3, sums()), moved(program_.score_passes_backward * score_bytes())};
    }

    const Program& program_;
    const ModelLoad& load_;
    const Layout& layout_;
    const config::ModelDescription& model_;
    double number_, tensor_, length_, sequences_, rows_, width_, heads_, keys_, head_width_, hidden_;
};

// Every operation is a kernel.
void launch_each(model::Count& count) {
    for (Operations* list : {&count.forward, &count.loss, &count.recompute, &count.backward}) {
        Operation launch;
        launch.kind = Kind::launch;
        launch.times = static_cast<double>(
            std::count_if(list->begin(), list->end(), [](const Operation& one) { return !one.is_message(); }));
        list->push_back(launch);
    }
}

ProgramCount count_own(const config::Machine& machine, const Job& job, const ModelLoad& load, const Layout& layout) {
    model::CountedShape shape;
    shape.device = machine.device.kind == config::MachineKind::gpu ? DeviceKind::cuda : DeviceKind::cpu;
    shape.type = layout::compute_type(job.run.precision.compute);
    shape.pass = {layout.micro, job.run.batch.length / layout.context};
    shape.tensor = layout.tensor;
    shape.context = layout.context;
    shape.divides_rows = layout.sequence && layout.tensor > 1;
    shape.recompute = layout.recompute;
    const auto counted = model::ModelCount::of(load.shape);
    ProgramCount count;
    count.embedding = counted->embedding(shape);
    count.head = counted->head(shape);
    for (std::int64_t number = 0; number < load.shape.layers; ++number) {
        const auto alike = static_cast<std::size_t>(counted->alike(number));
        if (alike < count.block_of.size()) {
            count.block_of.push_back(count.block_of[alike]);
            continue;
        }
        count.block_of.push_back(count.blocks.size());
        count.blocks.push_back(counted->block(number, shape));
    }
    if (load.shape.vocabulary % layout.tensor != 0)  // parts differ by a row: one of them is not aligned
        for (Operation& operation : count.head.loss)
            if (operation.is_product()) operation.row_length = 1;
    launch_each(count.embedding);
    launch_each(count.head);
    for (model::Count& block : count.blocks) launch_each(block);
    return count;
}

}  // namespace

double bytes_of(config::Precision precision) {
    return precision == config::Precision::fp32 ? 4 : 2;
}

ProgramCount count_program(const config::Machine& machine, const Job& job, const ModelLoad& load,
                           const Layout& layout) {
    if (job.own_program()) return count_own(machine, job, load, layout);
    const Megatron program(job, load, layout);
    ProgramCount count;
    count.head = program.head();
    count.blocks = {program.block()};
    count.block_of.assign(static_cast<std::size_t>(load.shape.layers), 0);
    return count;
}

std::string why_unknown(const Job& job, const ModelLoad& load) {
    if (job.own_program()) return "";
    const auto counted = model::ModelCount::of(load.shape);
    model::CountedShape shape;
    shape.pass = {1, std::max<std::int64_t>(1, std::min(load.shape.context, job.run.batch.length))};
    for (std::int64_t number = 0; number < load.shape.layers; ++number) {
        if (counted->alike(number) < number) continue;
        const Operations& forward = counted->block(number, shape).forward;
        if (std::none_of(forward.begin(), forward.end(),
                         [](const Operation& one) { return one.kind == Kind::attention_forward; }))
            return fmt::format("{} supports attention blocks only, but {} has others", job.program.name, load.name);
    }
    return "";
}

}  // namespace lockstep::cost
