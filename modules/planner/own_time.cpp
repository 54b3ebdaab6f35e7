#include "planner/own_time.hpp"

#include <algorithm>
#include <cmath>

#include "planner/batch_plan.hpp"
#include "planner/own_block_time.hpp"
#include "planner/pipeline_time.hpp"
#include "planner/run_layout.hpp"

namespace lockstep::planner {
namespace {

// As the trainer chooses micro-batches.
constexpr std::int64_t tokens_at_once_gpu = 32768, tokens_at_once_cpu = 8192, rounds_of_pipeline = 4;

std::int64_t bytes_of_type(const std::string& compute) {
    return compute == "fp32" ? 4 : 2;
}

struct Piece {  // of the model, on one stage
    double blocks = 0;
    bool embedding = false, head = false;
};

class OwnStep {
  public:
    OwnStep(const config::RunDescription& description, const cluster::GridShape& grid, std::int64_t ranks_per_node,
            const Hardware& hardware)
        : description_(description),
          model_(description.model),
          grid_(grid),
          hardware_(hardware),
          on_gpu_(hardware.device.kind == "gpu"),
          ranks_per_node_(std::min<std::int64_t>(ranks_per_node, grid.ranks())),
          share_(share_cores(hardware, ranks_per_node_)),
          prices_(hardware, share_, bytes_of_type(description.precision.compute)),
          messages_(hardware, share_, ranks_per_node_, prices_.element()),
          plan_{model_, grid} {
        const auto& parallel = description.parallel;
        const std::int64_t length = description.batch.length;
        const std::int64_t at_once = (on_gpu_ ? tokens_at_once_gpu : tokens_at_once_cpu) * grid.context;
        micro_ = micro_batch_size(description.batch, grid.data, parallel.interleave > 1 ? grid.pipeline : 1, at_once,
                                  grid.pipeline > 1 ? rounds_of_pipeline * grid.pipeline : 1);
        micro_batches_ = description.batch.global / grid.data / micro_;
        plan_.sequences = static_cast<double>(micro_);
        plan_.length = static_cast<double>(length) / grid.context;
        plan_.rows = plan_.sequences * plan_.length;
        plan_.divides_rows = parallel.sequence && grid.tensor > 1;
        plan_.full = parallel.recompute == "full";
        plan_.selective = parallel.recompute == "selective";
        block_ = block_time(plan_, prices_, messages_);
        head_ = head_time(plan_, prices_, messages_, on_gpu_);
        embedding_ = embedding_time(plan_, prices_, messages_);
        loading_ = plan_.rows / std::max(1e-3, hardware.rates.loading_mtokens_per_second) * 1e-6;
        cut();
        count_parameters();
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

    double forward_seconds() {
        // One micro-batch after the other, through all stages.
        double seconds = 0;
        for (const auto& stage : pieces_)
            for (const Piece& piece : stage)
                seconds +=
                    forward_of(piece) + tensor_forward_of(piece) + (piece.head ? head_.validation - head_.loss : 0);
        seconds += static_cast<double>(grid_.pipeline * description_.parallel.interleave - 1) * message();
        return seconds * turns_of_one_stage() * static_cast<double>(micro_batches_);
    }

  private:
    // While one stage computes the others of its column wait, and leave it their part of the cores.
    double turns_of_one_stage() const { return std::max(1.0, share_.turns / grid_.pipeline); }

    void cut() {
        const std::int64_t chunks = description_.parallel.interleave;
        const auto ranges = cut_model(model_, description_.batch.length, grid_.pipeline * chunks);
        pieces_.resize(static_cast<std::size_t>(grid_.pipeline));
        for (std::size_t number = 0; number < ranges.size(); ++number) {
            const model::StageRange& range = ranges[number];
            pieces_[number % pieces_.size()].push_back(
                {static_cast<double>(range.last_block - range.first_block), range.embedding, range.head});
        }
    }

    // Of a rank of each stage, of its part of the layers.
    void count_parameters() {
        const model::Part part{0, grid_.tensor};
        const auto count = [&](const model::StageRange& range) {
            double sum = 0;
            for (const auto& parameter : model::describe_parameters(model_, range))
                sum += static_cast<double>(element_count(model::slice_of(parameter, part).shape));
            return sum;
        };
        block_parameters_ = count({0, 1, false, false});
        // Ends without blocks: a range of none.
        const double first = count({0, 0, true, false}), last = count({0, 0, false, true});
        const double both = count({0, 0, true, true});
        table_ = static_cast<double>(model_.vocabulary) / grid_.tensor * static_cast<double>(model_.width);
        for (const auto& stage : pieces_) {
            double sum = 0;
            bool embedding = false, head = false;
            for (const Piece& piece : stage) {
                sum += piece.blocks * block_parameters_;
                embedding = embedding || piece.embedding;
                head = head || piece.head;
            }
            parameters_.push_back(sum + (embedding && head ? both : embedding ? first : head ? last : 0));
        }
    }

    double forward_of(const Piece& piece) const {
        return piece.blocks * block_.forward + (piece.embedding ? embedding_.forward + loading_ : 0) +
               (piece.head ? head_.forward + head_.loss : 0);
    }
    double tensor_forward_of(const Piece& piece) const {
        return piece.blocks * (block_.tensor_forward + block_.context_forward) +
               (piece.embedding ? embedding_.tensor_forward : 0) + (piece.head ? head_.tensor : 0);
    }
    double backward_of(const Piece& piece) const {
        return piece.blocks * (block_.backward + block_.recomputation) + (piece.embedding ? embedding_.backward : 0);
    }
    double tensor_backward_of(const Piece& piece) const {
        return piece.blocks * (block_.tensor_backward + block_.context_backward) +
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
            time.forward += count * (piece.blocks * block_.forward + (piece.embedding ? embedding_.forward : 0) +
                                     (piece.head ? head_.forward : 0));
            time.loading += count * (piece.embedding ? loading_ : 0);
            time.loss += count * (piece.head ? head_.loss : 0);
            time.backward += count * (piece.blocks * block_.backward + (piece.embedding ? embedding_.backward : 0));
            time.recomputation += count * piece.blocks * block_.recomputation;
            time.tensor += count / turns *
                           (piece.blocks * (block_.tensor_forward + block_.tensor_backward) +
                            (piece.embedding ? embedding_.tensor_forward + embedding_.tensor_backward : 0) +
                            (piece.head ? head_.tensor : 0));
            time.context += count / turns * piece.blocks * (block_.context_forward + block_.context_backward);
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
        return (grid_.context - 1) * (block_.forward + block_.backward + block_.recomputation) * share_.turns;
    }

    // What replicas tell each other. On CPUs nothing goes on while a rank computes; on GPUs a bucket goes beside the
    // blocks that follow, and what is left behind the last is that of the last bucket at least.
    void gradients(StepTime& time, double parameters) const {
        const int replicas = grid_.replicas();
        const std::int64_t stride = grid_.tensor;
        const double bytes = parameters * sizeof(float);
        if (grid_.pipeline > 1 && model_.tied_head)
            time.data +=
                messages_.reduce_bucket(table_ * sizeof(float), 2, grid_.ranks() - grid_.ranks() / grid_.pipeline);
        if (replicas == 1) return;
        const bool zero = description_.parallel.zero == 1;
        double reduction =
            zero ? messages_.scatter_bucket(bytes, replicas, stride) : messages_.reduce_bucket(bytes, replicas, stride);
        if (on_gpu_) {
            const double last = (table_ + block_parameters_) / parameters;
            const double beside = time.backward / static_cast<double>(micro_batches_);
            reduction = std::max(reduction * std::min(1.0, last), reduction - beside);
        }
        time.data += reduction;
        if (zero) time.data += messages_.gather(parameters * prices_.element(), replicas, stride);
    }

    void optimizer(StepTime& time, double parameters) const {
        const Rates& rates = hardware_.rates;
        const double part = description_.parallel.zero == 1 ? 1.0 / grid_.replicas() : 1;
        const double element = prices_.element();
        const double moved = element < 4 ? 28 + element : 28;  // gradient read; value and moments read and written
        time.optimizer += share_.turns * (prices_.moved(parameters * sizeof(float), rates.fill_gb_per_second) +
                                          prices_.moved(part * parameters * sizeof(float), rates.norm_gb_per_second) +
                                          prices_.moved(part * parameters * moved, prices_.memory().adamw));
    }

    // The loss, the norm, its agreement among replicas, and what ranks agree on behind every step: a few bytes each.
    void control(StepTime& time) const {
        constexpr double reductions = 4, bytes = 64;
        if (grid_.ranks() > 1) time.control += reductions * messages_.all_reduce(bytes, grid_.ranks(), 1);
    }

    const config::RunDescription& description_;
    const config::ModelDescription& model_;
    cluster::GridShape grid_;
    const Hardware& hardware_;
    bool on_gpu_;
    std::int64_t ranks_per_node_;
    CoreShare share_;
    OwnPrices prices_;
    MessagePrices messages_;
    PassPlan plan_;
    std::int64_t micro_ = 1, micro_batches_ = 1;
    OwnPassTime block_;
    HeadTime head_;
    EmbeddingTime embedding_;
    double loading_ = 0, block_parameters_ = 0, table_ = 0;
    std::vector<std::vector<Piece>> pieces_;  // [stage][chunk]
    std::vector<double> parameters_;          // of a rank of each stage
};

}  // namespace

StepTime own_step_time(const config::RunDescription& description, const cluster::GridShape& grid,
                       std::int64_t ranks_per_node, const Hardware& hardware) {
    return OwnStep(description, grid, ranks_per_node, hardware).time();
}

double own_validation_seconds(const config::RunDescription& description, const cluster::GridShape& grid,
                              std::int64_t ranks_per_node, const Hardware& hardware, std::int64_t batches) {
    return static_cast<double>(batches) * OwnStep(description, grid, ranks_per_node, hardware).forward_seconds();
}

double own_checkpoint_seconds(const config::RunDescription& description, std::int64_t nodes, const Hardware& hardware) {
    const double bytes = 3 * sizeof(float) * static_cast<double>(model::parameter_count(description.model));
    const double rate = hardware.rates.checkpoint_gb_per_second * 1e9;
    if (rate <= 0) throw usage_error("{} has no rate of writing checkpoints", hardware.name);
    return bytes / (rate * static_cast<double>(nodes));
}

}  // namespace lockstep::planner
