#include "cost/own_time.hpp"

#include <algorithm>
#include <cmath>

#include "cost/own_block_time.hpp"
#include "cost/pipeline_time.hpp"
#include "layout/batch_plan.hpp"
#include "layout/run_layout.hpp"
#include "model/frozen.hpp"
#include "optim/registry.hpp"

namespace lockstep::cost {
namespace {

// As the trainer chooses micro-batches.
constexpr std::int64_t tokens_at_once_gpu = 32768, tokens_at_once_cpu = 8192, rounds_of_pipeline = 4;

struct Piece {  // of the model, on one stage
    OwnPassTime blocks;
    bool embedding = false, head = false;
};

void add(OwnPassTime& sum, const OwnPassTime& one) {
    sum.forward += one.forward;
    sum.recomputation += one.recomputation;
    sum.backward += one.backward;
    sum.tensor_forward += one.tensor_forward;
    sum.tensor_backward += one.tensor_backward;
    sum.context_forward += one.context_forward;
    sum.context_backward += one.context_backward;
}

class OwnStep {
  public:
    OwnStep(const config::RunDescription& description, const cluster::GridShape& grid, std::int64_t ranks_per_node,
            const config::Machine& hardware)
        : description_(description),
          model_(description.model),
          grid_(grid),
          hardware_(hardware),
          on_gpu_(hardware.device.kind == config::MachineKind::gpu),
          ranks_per_node_(std::min<std::int64_t>(ranks_per_node, grid.ranks())),
          share_(share_cores(hardware, ranks_per_node_)),
          prices_(hardware, share_, description.precision.compute),
          messages_(hardware, share_, ranks_per_node_, grid.ranks(), prices_.element()),
          plan_{model_, grid} {
        const auto& parallel = description.parallel;
        const std::int64_t length = description.batch.length;
        const std::int64_t at_once = (on_gpu_ ? tokens_at_once_gpu : tokens_at_once_cpu) * grid.context;
        micro_ = layout::micro_batch_size(description.batch, grid.data, parallel.interleave > 1 ? grid.pipeline : 1,
                                          at_once, grid.pipeline > 1 ? rounds_of_pipeline * grid.pipeline : 1);
        micro_batches_ = description.batch.global / grid.data / micro_;
        plan_.sequences = static_cast<double>(micro_);
        plan_.length = static_cast<double>(length) / grid.context;
        plan_.rows = plan_.sequences * plan_.length;
        plan_.divides_rows = parallel.sequence && grid.tensor > 1;
        plan_.full = parallel.recompute == config::Recompute::full;
        plan_.selective = parallel.recompute == config::Recompute::selective;
        walk_up();
        loading_ = plan_.rows / std::max(1e-3, hardware.rates.loading_mtokens_per_second) * 1e-6;
        cut();
    }

    StepTime time() {
        StepTime time;
        passes(time);
        // The stage with the most parameters ends last.
        double most = 0;
        for (const double parameters : parameters_) most = std::max(most, parameters);
        gradients(time, most);
        optimizer(time, most);
        control(time);
        return time;
    }

  private:
    // Trained parameters of a piece of the model on one rank of a tensor group: names with `prefix` removed.
    BlockTraining training_of(const model::StageRange& range, const std::string& prefix, bool below) {
        BlockTraining training;
        training.below = below;
        const model::Part part{0, grid_.tensor};
        for (const auto& parameter : model::describe_parameters(model_, range)) {
            if (!parameter.trained) continue;
            training.trained.insert(parameter.name.substr(prefix.size()));
            updated_ += static_cast<double>(element_count(parameter.shape));
            bytes_updated_ += optimizer_.bytes_moved(parameter);
            training.trained_parameters += static_cast<double>(element_count(model::slice_of(parameter, part).shape));
        }
        return training;
    }

    // From the embedding to the head: what is trained there, and what it costs. Without frozen parameters blocks are
    // alike.
    void walk_up() {
        embedding_training_ = training_of({0, 0, true, false}, "", false);
        bool below = !embedding_training_.trained.empty();
        embedding_ = embedding_time(plan_, below, prices_, messages_);
        for (std::int64_t number = 0; number < model_.layers; ++number) {
            if (number > 0 && model_.frozen.empty()) {
                blocks_.push_back(blocks_.front());
                block_parameters_.push_back(block_parameters_.front());
                continue;
            }
            const BlockTraining training =
                training_of({number, number + 1, false, false}, "blocks/" + std::to_string(number) + "/", below);
            blocks_.push_back(block_time(plan_, training, prices_, messages_));
            block_parameters_.push_back(training.trained_parameters);
            below = training.goes_back();
        }
        head_training_ = training_of({0, 0, false, true}, "", below);
        const std::string table = model_.tied_head ? "embedding/weight" : "head/weight";
        head_ = head_time(plan_, {head_training_.trained.count(table) > 0, head_training_.trains("final_norm/"), below},
                          prices_, messages_, on_gpu_);
        trains_table_ = embedding_training_.trained.count("embedding/weight") > 0;
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
                add(piece.blocks, blocks_[block]);
                parameters_[stage] += block_parameters_[block];
            }
            if (range.embedding) parameters_[stage] += embedding_training_.trained_parameters;
            if (range.head) parameters_[stage] += head_training_.trained_parameters;
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
               (piece.embedding ? embedding_.tensor_forward : 0) + (piece.head ? head_.tensor : 0);
    }
    double backward_of(const Piece& piece) const {
        return piece.blocks.backward + piece.blocks.recomputation + (piece.embedding ? embedding_.backward : 0);
    }
    double tensor_backward_of(const Piece& piece) const {
        return piece.blocks.tensor_backward + piece.blocks.context_backward +
               (piece.embedding ? embedding_.tensor_backward : 0);
    }
    double message() const {
        const double rows = plan_.divides_rows ? plan_.rows / grid_.tensor : plan_.rows;
        return messages_.send(rows * static_cast<double>(model_.width) * prices_.element(),
                              grid_.ranks() / grid_.pipeline);
    }

    // Fills the parts of the stage that computes longest; what is left of the whole is idle. Waits among the ranks of a
    // tensor group lengthen every pass, and already count that they take turns.
    void passes(StepTime& time) {
        const double turns = share_.turns, count = static_cast<double>(micro_batches_);
        PipelineWork work;
        work.micro_batches = micro_batches_;
        work.message = grid_.pipeline > 1 ? message() / turns : 0;
        // Stages take turns with each other in the play; what is left of the turns is that of their replicas.
        const double stages = grid_.pipeline;
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
        const double seconds = pipeline_seconds(work) + context_fill();
        for (const Piece& piece : pieces_[busiest]) {
            time.forward += count * (piece.blocks.forward + (piece.embedding ? embedding_.forward : 0) +
                                     (piece.head ? head_.forward : 0));
            time.loading += count * (piece.embedding ? loading_ : 0);
            time.loss += count * (piece.head ? head_.loss : 0);
            time.backward += count * (piece.blocks.backward + (piece.embedding ? embedding_.backward : 0));
            time.recomputation += count * piece.blocks.recomputation;
            time.tensor += count / turns *
                           (piece.blocks.tensor_forward + piece.blocks.tensor_backward +
                            (piece.embedding ? embedding_.tensor_forward + embedding_.tensor_backward : 0) +
                            (piece.head ? head_.tensor : 0));
            time.context += count / turns * (piece.blocks.context_forward + piece.blocks.context_backward);
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

    // The ranks along a sequence begin one layer behind each other, forward and backward.
    double context_fill() const {
        if (grid_.context == 1) return 0;
        const OwnPassTime &first = blocks_.front(), &last = blocks_.back();
        return (grid_.context - 1) * (first.forward + last.backward + last.recomputation) * share_.turns;
    }

    // What replicas tell each other. On CPUs nothing goes on while a rank computes; on GPUs a bucket goes beside the
    // blocks that follow, and what is left behind the last is that of the last bucket at least.
    void gradients(StepTime& time, double parameters) const {
        const int replicas = grid_.replicas();
        const std::int64_t stride = grid_.tensor;
        const double bytes = parameters * sizeof(float);
        if (grid_.pipeline > 1 && model_.tied_head && trains_table_)
            time.data +=
                messages_.reduce_bucket(table_ * sizeof(float), 2, grid_.ranks() - grid_.ranks() / grid_.pipeline);
        if (replicas == 1) return;
        const bool zero = description_.parallel.zero == 1;
        double reduction =
            zero ? messages_.scatter_bucket(bytes, replicas, stride) : messages_.reduce_bucket(bytes, replicas, stride);
        if (on_gpu_) {
            const double block = *std::max_element(block_parameters_.begin(), block_parameters_.end());
            const double last = ((trains_table_ ? table_ : 0) + block) / parameters;
            const double beside = time.backward / static_cast<double>(micro_batches_);
            reduction = std::max(reduction * std::min(1.0, last), reduction - beside);
        }
        time.data += reduction;
        if (zero) time.data += messages_.gather(parameters * prices_.element(), replicas, stride);
    }

    void optimizer(StepTime& time, double parameters) const {
        const config::Rates& rates = hardware_.rates;
        const double part = description_.parallel.zero == 1 ? 1.0 / grid_.replicas() : 1;
        const double element = prices_.element();
        const double copied = element < sizeof(float) ? element : 0;  // the working copy
        time.optimizer +=
            share_.turns * (prices_.moved(parameters * sizeof(float), rates.fill_gb_per_second) +
                            prices_.moved(part * parameters * sizeof(float), rates.norm_gb_per_second) +
                            prices_.moved(part * parameters * (bytes_updated_ / std::max(1.0, updated_) + copied),
                                          prices_.memory().adamw));
    }

    // The loss, the norm, its agreement among replicas, and what ranks agree on behind every step: a few bytes each.
    void control(StepTime& time) const {
        constexpr double reductions = 4, bytes = 64;
        if (grid_.ranks() > 1) time.control += reductions * messages_.all_reduce(bytes, grid_.ranks(), 1);
    }

    const config::RunDescription& description_;
    const config::ModelDescription& model_;
    const optim::OptimizerType& optimizer_ = optim::optimizer_of(description_.optimizer);
    cluster::GridShape grid_;
    const config::Machine& hardware_;
    bool on_gpu_;
    std::int64_t ranks_per_node_;
    CoreShare share_;
    OwnPrices prices_;
    MessagePrices messages_;
    PassPlan plan_;
    std::int64_t micro_ = 1, micro_batches_ = 1;
    std::vector<OwnPassTime> blocks_;       // [layer]
    std::vector<double> block_parameters_;  // trained ones, [layer]
    BlockTraining embedding_training_, head_training_;
    HeadTime head_;
    EmbeddingTime embedding_;
    bool trains_table_ = true;
    double updated_ = 0, bytes_updated_ = 0;  // parameters of each kind of block, and what the optimizer moves for them
    double loading_ = 0, table_ = 0;
    std::vector<std::vector<Piece>> pieces_;  // [stage][chunk]
    std::vector<double> parameters_;          // trained ones of a rank of each stage
};

}  // namespace

StepTime own_step_time(const config::RunDescription& description, const cluster::GridShape& grid,
                       std::int64_t ranks_per_node, const config::Machine& hardware) {
    return OwnStep(description, grid, ranks_per_node, hardware).time();
}

double own_checkpoint_seconds(const config::RunDescription& description, std::int64_t nodes,
                              const config::Machine& hardware) {
    const auto bytes =
        static_cast<double>(optim::checkpoint_bytes(optim::optimizer_of(description.optimizer), description.model));
    const double rate = hardware.rates.checkpoint_gb_per_second * 1e9;
    if (rate <= 0) throw usage_error("{} has no rate of writing checkpoints", hardware.name);
    return bytes / (rate * static_cast<double>(nodes));
}

}  // namespace lockstep::cost
