#include "cost/own_time.hpp"

#include <algorithm>

#include "cost/own_prices.hpp"
#include "cost/pipeline_time.hpp"
#include "layout/lane_tree.hpp"
#include "layout/rank_share.hpp"
#include "layout/run_layout.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"
#include "optim/registry.hpp"

namespace lockstep::cost {
namespace {

struct Piece {  // of the model, on one stage
    PassTime blocks;
    bool embedding = false, head = false;
    double written = 0;  // the blocks' gain from writing gradients
    double held = 0;     // the blocks' parameters, frozen ones too
};

// What the first pass of a step or lane gains, which writes gradients of weights where the others add to them: it does
// not read them. The head's is written for the first piece of its rows.
double gain_from_writing(const std::vector<kernels::Operation>& operations, const Prices& prices, bool of_head) {
    double gain = 0;
    for (const kernels::Operation& adding : operations) {
        if (adding.kind != kernels::OperationKind::product_weight_gradient || !adding.accumulates) continue;
        kernels::Operation writing = adding;
        writing.bytes -= adding.rows * adding.columns * sizeof(float);
        gain += prices.seconds(adding, of_head) - prices.seconds(writing, of_head);
        if (of_head) break;
    }
    return gain;
}

// Parameters of a run of the model, on one rank of a tensor group.
struct ParameterCount {
    double all = 0, trained = 0;
};
ParameterCount count_parameters(const config::ModelDescription& model, const model::StageRange& range,
                                std::int64_t tensor) {
    ParameterCount count;
    for (const auto& parameter : model::describe_parameters(model, range)) {
        const auto elements = static_cast<double>(element_count(model::slice_of(parameter, {0, tensor}).shape));
        count.all += elements;
        if (parameter.trained) count.trained += elements;
    }
    return count;
}

class OwnStep {
  public:
    OwnStep(const config::RunDescription& description, const config::Grid& grid, std::int64_t ranks_per_node,
            const config::Machine& machine)
        : description_(description),
          model_(description.model),
          grid_(grid),
          machine_(machine),
          on_gpu_(machine.device.kind == config::MachineKind::gpu),
          prices_(machine, description.precision.compute, grid, std::min(ranks_per_node, grid.ranks())) {
        const layout::BatchShare batch =
            layout::share_of_batch(description, grid, on_gpu_ ? DeviceKind::cuda : DeviceKind::cpu);
        micro_batches_ = batch.micro_batches;
        shape_.device = on_gpu_ ? DeviceKind::cuda : DeviceKind::cpu;
        shape_.type = prices_.element() < 4 ? Type::bf16 : Type::fp32;
        shape_.pass = {batch.micro, description.batch.length / grid.context};
        shape_.tensor = grid.tensor;
        shape_.context = grid.context;
        shape_.divides_rows = description.parallel.sequence && grid.tensor > 1;
        shape_.recompute = description.parallel.recompute;
        price_model();
        const auto rows = static_cast<double>(shape_.pass.rows());
        loading_ = rows / std::max(1e-3, machine.rates.loading_mtokens_per_second) * 1e-6;
        cut();
    }

    StepTime time() {
        StepTime time;
        passes(time);
        // The stage with the most parameters ends last.
        const auto most = std::max_element(parameters_.begin(), parameters_.end());
        gradients(time, static_cast<std::size_t>(most - parameters_.begin()));
        optimizer(time, *most);
        control(time);
        return time;
    }

  private:
    // From the embedding to the head: what each part costs, and what is trained of it.
    void price_model() {
        const auto count = model::ModelCount::of(model_);
        embedding_ = pass_time(count->embedding(shape_), prices_);
        head_ = pass_time(count->head(shape_), prices_);
        head_written_ = gain_from_writing(count->head(shape_).loss, prices_, true);
        for (std::int64_t number = 0; number < model_.layers; ++number) {
            const auto alike = static_cast<std::size_t>(count->alike(number));
            if (alike < blocks_.size()) {
                blocks_.push_back(blocks_[alike]);
                written_.push_back(written_[alike]);
                block_parameters_.push_back(block_parameters_[alike]);
                blocks_held_.push_back(blocks_held_[alike]);
                continue;
            }
            blocks_.push_back(pass_time(count->block(number, shape_), prices_));
            written_.push_back(gain_from_writing(count->block(number, shape_).backward, prices_, false));
            const ParameterCount of_block = count_parameters(model_, {number, number + 1, false, false}, grid_.tensor);
            block_parameters_.push_back(of_block.trained);
            blocks_held_.push_back(of_block.all);
        }
        const ParameterCount of_embedding = count_parameters(model_, {0, 0, true, false}, grid_.tensor),
                             of_head = count_parameters(model_, {0, 0, false, true}, grid_.tensor);
        embedding_parameters_ = of_embedding.trained;
        head_parameters_ = of_head.trained;
        embedding_held_ = of_embedding.all;
        head_held_ = of_head.all;
        trains_table_ = !model::is_frozen(model_, "embedding/weight");
        const auto parameters = model::describe_parameters(model_, model::whole_model(model_));
        for (const kernels::Operation& operation :
             optim::products_of_update(description_.optimizer, optimizer_, parameters, shape_.type, shape_.device))
            products_updated_ += operation.times * prices_.seconds(operation, false);
        for (const auto& parameter : parameters) {
            if (!parameter.trained) continue;
            updated_ += static_cast<double>(element_count(parameter.shape));
            bytes_updated_ += optimizer_.bytes_moved(parameter);
            if (description_.optimizer.averages())  // the average is read and written, the value read
                bytes_updated_ += 3.0 * sizeof(float) * static_cast<double>(element_count(parameter.shape));
        }
    }

    void cut() {
        const std::int64_t chunks = description_.parallel.interleave;
        const auto ranges = layout::cut_model(model_, description_.batch.length, grid_.pipeline * chunks);
        pieces_.resize(static_cast<std::size_t>(grid_.pipeline));
        parameters_.resize(pieces_.size());
        table_ = static_cast<double>(model::Part{0, grid_.tensor}.count(model_.vocabulary) * model_.width);
        for (std::size_t number = 0; number < ranges.size(); ++number) {
            const model::StageRange& range = ranges[number];
            const std::size_t stage = number % pieces_.size();
            Piece piece{{}, range.embedding, range.head};
            for (auto block = static_cast<std::size_t>(range.first_block);
                 block < static_cast<std::size_t>(range.last_block); ++block) {
                piece.blocks.add(blocks_[block]);
                piece.written += written_[block];
                piece.held += blocks_held_[block];
                parameters_[stage] += block_parameters_[block];
            }
            if (range.embedding) parameters_[stage] += embedding_parameters_;
            if (range.head) parameters_[stage] += head_parameters_;
            pieces_[stage].push_back(piece);
        }
        // One stage with both ends has a tied table once.
        if (grid_.pipeline == 1 && model_.tied_head && trains_table_) parameters_.front() -= table_;
    }

    double forward_of(const Piece& piece) const {
        return piece.blocks.forward + (piece.embedding ? embedding_.forward + loading_ : 0) +
               (piece.head ? head_.forward + head_.loss : 0);
    }
    double tensor_forward_of(const Piece& piece) const {
        return piece.blocks.tensor_forward + piece.blocks.context_forward +
               (piece.embedding ? embedding_.tensor_forward : 0) + (piece.head ? head_.tensor() : 0);
    }
    double backward_of(const Piece& piece) const {
        return piece.blocks.backward + piece.blocks.recomputation + (piece.embedding ? embedding_.backward : 0);
    }
    double tensor_backward_of(const Piece& piece) const {
        return piece.blocks.tensor_recomputation + piece.blocks.tensor_backward + piece.blocks.context_backward +
               (piece.embedding ? embedding_.tensor_backward : 0);
    }
    double message() const {
        const double rows =
            static_cast<double>(shape_.pass.rows()) / static_cast<double>(shape_.divides_rows ? grid_.tensor : 1);
        return prices_.send(rows * static_cast<double>(model_.width) * prices_.element(),
                            grid_.ranks() / grid_.pipeline);
    }

    // Fills the parts of the stage that computes longest; what is left of the whole is idle. Waits among the ranks of a
    // tensor group lengthen every pass, and already count that they take turns.
    void passes(StepTime& time) {
        const double turns = prices_.turns(), count = static_cast<double>(micro_batches_);
        PipelineWork work;
        work.micro_batches = micro_batches_;
        work.message = grid_.pipeline > 1 ? message() / turns : 0;
        // Stages take turns with each other in the play; what is left of the turns is that of their replicas.
        const auto stages = static_cast<double>(grid_.pipeline);
        work.cores = turns > 1 ? std::max(1.0, stages / turns) : 0;
        const double stretch = turns > 1 ? turns / (stages / work.cores) : 1;
        std::size_t busiest = 0;
        double longest = -1;
        for (std::size_t stage = 0; stage < pieces_.size(); ++stage) {
            work.forward.emplace_back();
            work.backward.emplace_back();
            double own = 0;
            for (const Piece& piece : pieces_[stage]) {
                work.forward.back().push_back(forward_of(piece) * stretch + tensor_forward_of(piece) * stretch / turns);
                work.backward.back().push_back(backward_of(piece) * stretch +
                                               tensor_backward_of(piece) * stretch / turns);
                own += work.forward.back().back() + work.backward.back().back();
            }
            if (own <= longest) continue;
            longest = own;
            busiest = stage;
        }
        double seconds = pipeline_seconds(work) + context_fill();
        for (const Piece& piece : pieces_[busiest]) {
            const double of_head = piece.head ? head_written_ : 0;
            const double first_passes = sums_of_gradients();
            time.backward -= first_passes * piece.written;
            time.loss -= first_passes * of_head;
            seconds -= first_passes * (piece.written + of_head) * stretch;
            time.forward += count * (piece.blocks.forward + (piece.embedding ? embedding_.forward : 0) +
                                     (piece.head ? head_.forward : 0));
            time.loading += count * (piece.embedding ? loading_ : 0);
            time.loss += count * (piece.head ? head_.loss : 0);
            time.backward += count * (piece.blocks.backward + (piece.embedding ? embedding_.backward : 0));
            time.recomputation += count * piece.blocks.recomputation;
            time.tensor += count / turns *
                           (piece.blocks.tensor() + (piece.embedding ? embedding_.tensor() : 0) +
                            (piece.head ? head_.tensor() : 0));
            time.context += count / turns * piece.blocks.context();
        }
        time.context += context_fill();
        // A rank that takes turns sees each of its parts take longer, up to the whole.
        const double busy = time.total();
        const double longer = std::min(turns, seconds / busy);
        for (double* part : {&time.forward, &time.loading, &time.loss, &time.backward, &time.recomputation,
                             &time.tensor, &time.context})
            *part *= longer;
        if (grid_.pipeline > 1) {
            const double borders = static_cast<double>(pieces_[busiest].size()) * (busiest == 0 ? 1 : 2);
            time.pipeline = std::min(std::max(0.0, seconds - time.total()), borders * count * message());
        }
        time.idle = std::max(0.0, seconds - time.total());
    }

    // Forward and backward.
    double context_fill() const {
        const auto block = [&](std::int64_t number) -> const PassTime& {
            return blocks_[static_cast<std::size_t>(number)];
        };
        const bool in_turn = description_.parallel.lanes > 0 || description_.parallel.zero > 1;
        return prices_.turns() *
               (cost::context_fill(model_, grid_.context, micro_batches_, in_turn,
                                   [&](std::int64_t number) { return block(number).forward; }) +
                cost::context_fill(model_, grid_.context, micro_batches_, in_turn, [&](std::int64_t number) {
                    return block(number).backward + block(number).recomputation;
                }));
    }

    // Communication of replicas. On CPUs nothing overlaps with computing; on GPUs a bucket's reduction overlaps with
    // the blocks that follow, and at least that of the last bucket is left at the end.
    void gradients(StepTime& time, std::size_t stage) const {
        const std::int64_t replicas = grid_.replicas();
        const std::int64_t stride = grid_.tensor;
        const double parameters = parameters_[stage], bytes = parameters * sizeof(float);
        const bool each_pass = layout::divides_gradients(description_, grid_);
        if (grid_.pipeline > 1 && model_.tied_head && trains_table_)
            time.data += prices_.reduce_bucket(table_ * sizeof(float) / static_cast<double>(each_pass ? replicas : 1),
                                               2, grid_.ranks() - grid_.ranks() / grid_.pipeline);
        const std::int64_t lanes = description_.parallel.lanes;
        if (lanes > 0) time.backward += prices_.turns() * lane_seconds(lanes / grid_.data, bytes);
        if (replicas == 1) return;
        const bool zero = layout::divides_optimizer(description_, grid_);
        if (each_pass) return divided_gradients(time, stage);
        double reduction =
            zero ? prices_.scatter(bytes, replicas, stride) : prices_.reduce_bucket(bytes, replicas, stride);
        if (lanes > 0) {
            reduction = prices_.scatter(layout::LaneTree(lanes, grid_.data).most_nodes() * bytes, replicas, stride) +
                        (zero ? 0 : prices_.gather(bytes, replicas, stride));
        }
        if (on_gpu_) {
            const double block = *std::max_element(block_parameters_.begin(), block_parameters_.end());
            const double last = ((trains_table_ ? table_ : 0) + block) / std::max(1.0, parameters);
            const double beside = time.backward / static_cast<double>(micro_batches_);
            reduction = std::max(reduction * std::min(1.0, last), reduction - beside);
        }
        time.data += reduction;
        if (zero) time.data += prices_.gather(parameters * prices_.element(), replicas, stride);
    }

    // Passes after which gradients are complete, and before which they are cleared.
    double sums_of_gradients() const {
        return layout::divides_gradients(description_, grid_)
                   ? static_cast<double>(micro_batches_)
                   : static_cast<double>(layout::lanes_of_replica(description_, grid_));
    }

    // Gradients go to their owners after each micro-batch, which add them up. Parameters come once, after the update;
    // or what is gathered() before each pass. On GPUs both overlap with computing, but for the last bucket, and for
    // the embedding, before which there is nothing.
    void divided_gradients(StepTime& time, std::size_t stage) const {
        const std::int64_t replicas = grid_.replicas(), stride = grid_.tensor;
        const double parameters = parameters_[stage], bytes = parameters * sizeof(float);
        const auto passes = static_cast<double>(micro_batches_);
        constexpr double adding = 3;
        time.backward +=
            prices_.turns() * passes *
            prices_.moved(adding * bytes / static_cast<double>(replicas), machine_.rates.fill_gb_per_second);
        const auto gather = [&](double count) { return prices_.gather(count * prices_.element(), replicas, stride); };
        const double reduced = prices_.scatter(bytes, replicas, stride);
        const double last = reduced * std::min(1.0, embedding_parameters_ / std::max(1.0, parameters));
        if (!layout::divides_parameters(description_, grid_)) {
            time.data += overlapped(passes * reduced, last, time.backward) + gather(parameters);
            return;
        }
        const Held held = held_by(stage);
        time.data += overlapped(passes * reduced + gather(gathered(held)), last + passes * gather(held.embedding),
                                time.forward + time.backward);
    }

    // Parameters of a stage, frozen ones too.
    struct Held {
        double blocks = 0, embedding = 0, head = 0;
        double tied = 0;  // the table that both of these are, which is there all of a step
    };
    Held held_by(std::size_t stage) const {
        const double tied = model_.tied_head ? table_ : 0;
        Held held;
        for (const Piece& piece : pieces_[stage]) {
            held.blocks += piece.held;
            if (piece.embedding) held.embedding += embedding_held_ - tied;
            if (piece.head) held.head += head_held_ - tied;
            if (piece.embedding || piece.head) held.tied = tied;
        }
        return held;
    }

    // Parameters gathered in a step: a block's forward and backward, but for two which are there since the pass before.
    double gathered(const Held& held) const {
        const auto passes = static_cast<double>(micro_batches_);
        const double two = std::min(held.blocks, 2 * *std::max_element(blocks_held_.begin(), blocks_held_.end()));
        return held.tied + passes * (held.embedding + held.head + 2 * (held.blocks - two)) + two;
    }

    // What is left of messages if `beside` is computed meanwhile: on CPUs all.
    double overlapped(double seconds, double least, double beside) const {
        return on_gpu_ ? std::max(least, seconds - beside) : seconds;
    }

    // Of a rank's lanes, all but one are copied, and added to others.
    double lane_seconds(std::int64_t lanes, double bytes) const {
        constexpr double copying = 2, adding = 3;
        return static_cast<double>(lanes - 1) *
               prices_.moved((copying + adding) * bytes, machine_.rates.fill_gb_per_second);
    }

    void optimizer(StepTime& time, double parameters) const {
        const config::Rates& rates = machine_.rates;
        const double even =
            layout::divides_optimizer(description_, grid_) ? 1.0 / static_cast<double>(grid_.replicas()) : 1;
        const double part = products_updated_ > 0 ? layout::largest_share(description_, grid_, {}).share : even;
        const double element = prices_.element();
        const double copied = element < sizeof(float) ? element : 0;  // the working copy
        // Of what no layer overwrites, norms and the like are little.
        const bool head_writes = grid_.pipeline == 1 && model_.tied_head;
        const double cleared = embedding_parameters_ - (head_writes && trains_table_ ? table_ : 0);
        time.optimizer +=
            prices_.turns() *
            (prices_.moved(sums_of_gradients() * cleared * sizeof(float), rates.fill_gb_per_second) +
             prices_.moved(part * parameters * sizeof(float), rates.norm_gb_per_second) +
             prices_.moved(part * parameters * (bytes_updated_ / std::max(1.0, updated_) + copied),
                           prices_.memory().adamw) +
             // Of matrices that ranks of a tensor group divide, each has the products whole.
             part * parameters * static_cast<double>(grid_.tensor) * products_updated_ / std::max(1.0, updated_));
    }

    // The loss, the norm, its agreement among replicas, and what ranks agree on behind every step: a few bytes each.
    void control(StepTime& time) const {
        constexpr double reductions = 4, bytes = 64;
        if (grid_.ranks() > 1) time.control += reductions * prices_.all_reduce(bytes, grid_.ranks(), 1);
    }

    const config::RunDescription& description_;
    const config::ModelDescription& model_;
    const optim::OptimizerType& optimizer_ = optim::optimizer_of(description_.optimizer);
    config::Grid grid_;
    const config::Machine& machine_;
    bool on_gpu_;
    CalibratedPrices prices_;
    model::CountedShape shape_;
    std::int64_t micro_batches_ = 1;
    std::vector<PassTime> blocks_;          // [layer]
    std::vector<double> block_parameters_;  // trained ones, [layer]
    PassTime embedding_, head_;
    std::vector<double> written_;  // [layer], gains from writing gradients
    double head_written_ = 0;
    double embedding_parameters_ = 0, head_parameters_ = 0;  // trained ones
    std::vector<double> blocks_held_;                        // parameters, frozen ones too
    double embedding_held_ = 0, head_held_ = 0;
    bool trains_table_ = true;
    double updated_ = 0,
           bytes_updated_ = 0;     // trained parameters of the model, and bytes that an update moves for them
    double products_updated_ = 0;  // seconds of its products
    double loading_ = 0, table_ = 0;
    std::vector<std::vector<Piece>> pieces_;  // [stage][chunk]
    std::vector<double> parameters_;          // trained ones of a rank of each stage
};

}  // namespace

StepTime own_step_time(const config::RunDescription& description, const config::Grid& grid, std::int64_t ranks_per_node,
                       const config::Machine& machine) {
    return OwnStep(description, grid, ranks_per_node, machine).time();
}

double own_checkpoint_seconds(const config::RunDescription& description, std::int64_t nodes,
                              const config::Machine& machine) {
    const auto bytes = static_cast<double>(optim::checkpoint_bytes(description));
    const double rate = machine.rates.checkpoint_gb_per_second * 1e9;
    if (rate <= 0) throw usage_error("{} has no rate for writing checkpoints", machine.name);
    return bytes / (rate * static_cast<double>(nodes));
}

}  // namespace lockstep::cost
