#include "cost/own_block_time.hpp"

#include <algorithm>
#include <cmath>

#include "model/mixers/ttt.hpp"

namespace lockstep::cost {
namespace {

// Logits are made for so many bytes of rows at a time (model/stage.cpp).
constexpr double logits_bytes_cpu = 128.0 * (1 << 20), logits_bytes_cuda = 512.0 * (1 << 20);
constexpr double exact = sizeof(float);

class Block {
  public:
    Block(const PassPlan& plan, const BlockTraining& training, const OwnPrices& prices, const MessagePrices& messages)
        : plan_(plan),
          training_(training),
          model_(plan.model),
          type_(model::mixer_type(plan.model)),
          prices_(prices),
          messages_(messages),
          ranks_(plan.grid.tensor),
          rows_(plan.rows),
          stream_(plan.divides_rows ? plan.rows / ranks_ : plan.rows),
          width_(static_cast<double>(plan.model.width)),
          element_(prices.element()),
          head_width_(static_cast<double>(plan.model.head_width())),
          heads_(static_cast<double>(plan.model.heads) / ranks_),
          inner_(heads_ * head_width_),
          wide_(static_cast<double>(plan.model.mlp_width) / ranks_) {
        // As model/block.cpp decides.
        convolution_ =
            training.below || training.trains("pre_convolution_norm/") || training.trains("pre_convolution/");
        convolution_ = convolution_ && has_convolution();
        mixer_input_ = training.below || convolution_ || training.trains("mixer_norm/");
        mixer_ = mixer_input_ || training.trains("mixer/");
        mlp_input_ = mixer_ || training.trains("mlp_norm/");
        mlp_ = mlp_input_ || training.trains("mlp/");
    }

    OwnPassTime time() {
        if (has_convolution()) pre_convolution();
        norm(false, mixer_, mixer_input_);
        norm(true, mlp_, mlp_input_);
        if (const auto* type = dynamic_cast<const model::TttType*>(&type_))
            ttt(*type);
        else
            attention();
        mlp();
        between_layers();
        if (plan_.full && training_.goes_back()) {
            // All but the product that ends the block, and its sum.
            time_.recomputation += time_.forward - narrow_;
            time_.tensor_backward += time_.tensor_forward - last_sum_;
        }
        return time_;
    }

  private:
    void forward(double seconds) { time_.forward += seconds; }
    void backward(double seconds) { time_.backward += seconds; }
    bool has_convolution() const { return type_.convolves_before(model_); }
    bool trains(const std::string& name) const { return training_.trained.count(name) > 0; }
    const config::ProductRates& layer() const { return prices_.rates().layer; }
    double stream_bytes() const { return element_ * stream_ * width_; }

    // again: the layer behind it has a backward pass, to which selective recomputation gives its input.
    void norm(bool adds, bool again, bool backwards) {
        const double once = prices_.moved((adds ? 4 : 2) * stream_bytes(), prices_.memory().norm_forward);
        forward(once);
        if (plan_.selective && again)
            time_.recomputation += prices_.moved(2 * stream_bytes(), prices_.memory().norm_forward);
        if (backwards) backward(prices_.moved(4 * stream_bytes(), prices_.memory().norm_backward));
    }

    void convolution(double columns, bool backwards) {
        const double bytes = element_ * rows_ * columns;
        forward(prices_.moved(2 * bytes, prices_.memory().convolution_forward));
        if (backwards) backward(prices_.moved(3 * bytes, prices_.memory().convolution_backward));
    }

    void pre_convolution() {
        norm(false, convolution_, convolution_);
        convolution(width_, convolution_);
        forward(prices_.moved(3 * stream_bytes(), prices_.memory().copy));
    }

    // A layer of the mixer or the MLP, "mixer/query". input: its input's gradient is wanted, and added to where another
    // layer of the same input made it first.
    void linear(const std::string& name, double in, double out, bool input, bool first = true) {
        forward(prices_.forward(layer(), rows_, in, out));
        gradients(name, in, out, input, first);
    }

    void gradients(const std::string& name, double in, double out, bool input, bool first = true) {
        if (input) backward(prices_.input_gradient(layer(), rows_, in, out, !first));
        if (trains(name + "/weight")) backward(prices_.weight_gradient(layer(), rows_, in, out));
        if (trains(name + "/bias")) backward(prices_.moved(element_ * rows_ * out, prices_.memory().bias_gradient));
    }

    void rotate(double columns) {
        const double once = prices_.moved(2 * element_ * rows_ * columns, prices_.memory().rotate);
        forward(once);
        if (mixer_) backward(once);
    }

    void attention() {
        const double key_width = static_cast<double>(model_.kv_heads) / ranks_ * head_width_;
        linear("mixer/query", width_, inner_, mixer_input_);
        linear("mixer/key", width_, key_width, mixer_input_, false);
        linear("mixer/value", width_, key_width, mixer_input_, false);
        if (model_.position == config::Position::rope) {
            rotate(inner_);
            rotate(key_width);
        }
        const double flop = 2 * rows_ * plan_.length * inner_;
        const double bytes = element_ * rows_ * (2 * inner_ + 2 * key_width);
        forward(prices_.mixing(prices_.rates().attention_forward, flop, bytes));
        if (mixer_) backward(prices_.mixing(prices_.rates().attention_backward, 2 * flop, 2 * bytes));
        linear("mixer/output", inner_, width_, mixer_);
    }

    void ttt(const model::TttType& type) {
        const bool mlp = type.mlp();
        const model::TttOptions options = type.options(model_);
        if (options.share_qk) {
            linear("mixer/query", width_, inner_, mixer_input_, false);
            convolution(inner_, mixer_);
            convolution(inner_, mixer_);
        } else {
            linear("mixer/query", width_, inner_, mixer_input_, false);
            linear("mixer/key", width_, inner_, mixer_input_, false);
        }
        linear("mixer/value", width_, inner_, mixer_input_, false);
        rotate(inner_);
        rotate(inner_);
        // Step sizes, one a head: a product with few columns and what follows on them.
        linear("mixer/step_size", width_, heads_, mixer_input_, false);
        const double steps = exact * rows_ * heads_;
        forward(2 * prices_.moved(2 * steps, prices_.memory().copy));
        if (mixer_) backward(prices_.moved(3 * steps, prices_.memory().copy));
        const double flop = rows_ / ranks_ * type.mixing_flop(model_, 0);
        const config::PrecisionRates& rates = prices_.rates();
        forward(prices_.mixing(mlp ? rates.ttt_mlp_forward : rates.ttt_linear_forward, flop, 0));
        if (mixer_) backward(prices_.mixing(mlp ? rates.ttt_mlp_backward : rates.ttt_linear_backward, 2 * flop, 0));
        const double columns = element_ * rows_ * inner_;
        forward(prices_.moved(2 * columns, prices_.memory().norm_forward));
        if (mixer_)
            backward(prices_.moved(4 * columns, prices_.memory().norm_backward) +
                     prices_.moved(2 * columns, prices_.memory().copy));
        if (ranks_ > 1) {  // the post norm's statistics
            time_.tensor_forward += messages_.gather(2 * exact * rows_ * ranks_, plan_.grid.tensor, 1);
            if (mixer_) time_.tensor_backward += messages_.all_reduce(2 * exact * rows_, plan_.grid.tensor, 1);
        }
        if (options.gate) {
            linear("mixer/gate", width_, inner_, mixer_input_);
            forward(prices_.moved(3 * columns, prices_.memory().gated_forward));
            if (mixer_) backward(prices_.moved(5 * columns, prices_.memory().gated_backward));
        }
        linear("mixer/output", inner_, width_, mixer_);
        if (plan_.grid.context > 1) hand_over();
    }

    void hand_over() {
        const double state = exact * plan_.sequences * static_cast<double>(type_.state_elements(model_)) / ranks_;
        const double once = messages_.send(state, plan_.grid.tensor);
        time_.context_forward += once;
        if (mixer_) time_.context_backward += once;
    }

    void mlp() {
        const double columns = element_ * rows_ * wide_;
        const auto& memory = prices_.memory();
        const bool again = plan_.selective && mlp_;
        if (model_.mlp == config::MlpKind::swiglu) {
            linear("mlp/gate", width_, wide_, mlp_input_);
            linear("mlp/up", width_, wide_, mlp_input_, false);
            forward(prices_.moved(3 * columns, memory.gated_forward));
            if (again) time_.recomputation += prices_.moved(3 * columns, memory.gated_forward);
            if (mlp_) backward(prices_.moved(5 * columns, memory.gated_backward));
        } else {
            linear("mlp/up", width_, wide_, mlp_input_);
            forward(prices_.moved(2 * columns, memory.activation_forward));
            if (again) time_.recomputation += prices_.moved(2 * columns, memory.activation_forward);
            if (mlp_) backward(prices_.moved(3 * columns, memory.activation_backward));
        }
        // The residual stream is copied into the result, to which the product adds.
        const bool residual = !plan_.divides_rows;
        narrow_ = prices_.forward(layer(), rows_, wide_, width_, residual);
        narrow_ += prices_.moved((residual ? 2 : 3) * stream_bytes(), memory.copy);
        forward(narrow_);
        gradients("mlp/down", wide_, width_, mlp_);
    }

    // What the tensor group adds up, and gathers where it divides rows.
    void between_layers() {
        if (ranks_ == 1) return;
        const double bytes = element_ * rows_ * width_;
        const int ranks = plan_.grid.tensor;
        const double sums = (mixer_input_ ? 1 : 0) + (mlp_input_ ? 1 : 0);
        if (!plan_.divides_rows) {
            last_sum_ = messages_.all_reduce(bytes, ranks, 1);
            time_.tensor_forward += 2 * last_sum_;
            time_.tensor_backward += sums * last_sum_;
            return;
        }
        const double gather = messages_.gather(bytes, ranks, 1);
        last_sum_ = messages_.scatter(bytes, ranks, 1);
        time_.tensor_forward += 2 * (gather + last_sum_);
        const double layers = (mixer_ ? 1 : 0) + (mlp_ ? 1 : 0);  // each gathers its input and its output's gradient
        time_.tensor_backward += 2 * layers * gather + sums * last_sum_;
    }

    const PassPlan& plan_;
    const BlockTraining& training_;
    const config::ModelDescription& model_;
    const model::MixerType& type_;
    const OwnPrices& prices_;
    const MessagePrices& messages_;
    double ranks_, rows_, stream_, width_, element_, head_width_, heads_, inner_, wide_;
    double narrow_ = 0, last_sum_ = 0;
    // Which layers have a backward pass, and of which the input has a gradient.
    bool convolution_ = true, mixer_ = true, mixer_input_ = true, mlp_ = true, mlp_input_ = true;
    OwnPassTime time_;
};

}  // namespace

bool BlockTraining::trains(const std::string& prefix) const {
    const auto found = trained.lower_bound(prefix);
    return found != trained.end() && found->starts_with(prefix);
}

OwnPassTime block_time(const PassPlan& plan, const BlockTraining& training, const OwnPrices& prices,
                       const MessagePrices& messages) {
    return Block(plan, training, prices, messages).time();
}

HeadTime head_time(const PassPlan& plan, const HeadTraining& training, const OwnPrices& prices,
                   const MessagePrices& messages, bool on_gpu) {
    HeadTime time;
    const int ranks = plan.grid.tensor;
    const double width = static_cast<double>(plan.model.width), element = prices.element();
    const double columns = std::ceil(static_cast<double>(plan.model.vocabulary) / ranks);
    const double stream = element * width * (plan.divides_rows ? plan.rows / ranks : plan.rows);
    const double fitting =
        std::clamp(std::floor((on_gpu ? logits_bytes_cuda : logits_bytes_cpu) / (columns * element)), 1.0, plan.rows);
    const double pieces = std::ceil(plan.rows / fitting), rows = plan.rows / pieces;
    const auto& memory = prices.memory();
    time.forward = prices.moved(2 * stream, memory.norm_forward);
    time.loss = pieces * (prices.forward(prices.rates().head, rows, width, columns) +
                          prices.moved(2 * element * rows * columns, memory.cross_entropy));
    if (training.table) time.loss += pieces * prices.weight_gradient(prices.rates().head, rows, width, columns);
    const bool input = training.norm || training.below;
    if (input)
        time.loss += pieces * prices.input_gradient(prices.rates().head, rows, width, columns) +
                     prices.moved(stream, memory.copy) + prices.moved(4 * stream, memory.norm_backward);
    if (ranks == 1) return time;
    const double all = element * plan.rows * width;
    time.tensor += pieces * (messages.all_reduce(sizeof(float) * rows, ranks, 1) +
                             messages.all_reduce(2 * sizeof(float) * rows, ranks, 1));
    if (plan.divides_rows) time.tensor += messages.gather(all, ranks, 1);
    if (input) time.tensor += plan.divides_rows ? messages.scatter(all, ranks, 1) : messages.all_reduce(all, ranks, 1);
    return time;
}

EmbeddingTime embedding_time(const PassPlan& plan, bool trained, const OwnPrices& prices,
                             const MessagePrices& messages) {
    EmbeddingTime time;
    const double width = static_cast<double>(plan.model.width), element = prices.element();
    const double values = plan.rows * width, bytes = element * values;
    const int ranks = plan.grid.tensor;
    time.forward = prices.moved(2 * bytes, prices.memory().embedding_forward);
    if (trained) time.backward = prices.moved(bytes + 2 * sizeof(float) * values, prices.memory().embedding_backward);
    if (ranks == 1) return time;
    time.tensor_forward = plan.divides_rows ? messages.scatter(bytes, ranks, 1) : messages.all_reduce(bytes, ranks, 1);
    time.tensor_backward = trained && plan.divides_rows ? messages.gather(bytes, ranks, 1) : 0;
    return time;
}

}  // namespace lockstep::cost
