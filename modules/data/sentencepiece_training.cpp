#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "data/encode.hpp"
#include "data/sentencepiece.hpp"

namespace lockstep::data {
namespace {

constexpr std::uint64_t sample_bytes = std::uint64_t{32} << 20;
constexpr std::size_t longest_sentence = 4096;  // the trainer skips those longer than 4192

// The lines of every stride-th span of the text. With JSON Lines, whose text may be many times what the files have on
// disk, of a span whenever the sample lags behind what was read.
class SampledLines final : public sentencepiece::SentenceIterator {
  public:
    SampledLines(const TextFiles& text, bool progress)
        : stride_((text.bytes() + sample_bytes - 1) / sample_bytes),
          total_(text.has_json_lines() ? text.bytes() : 0),
          reader_(text, std::size_t{4} << 20),
          progress_("reading for the tokenizer", text.bytes(), progress) {
        Next();
    }
    bool done() const override { return done_; }
    const std::string& value() const override { return line_; }
    sentencepiece::util::Status status() const override { return {}; }

    void Next() override {
        do {
            while (rest_.empty()) {
                if (!next_span()) {
                    done_ = true;
                    return;
                }
            }
            take_line();
        } while (line_.empty());
    }

  private:
    bool next_span() {
        for (;;) {
            if (span_ == batch_.spans.size()) {
                progress_.show(reader_.consumed());
                if (!reader_.next(batch_)) return false;
                span_ = 0;
            }
            const TextSpan& span = batch_.spans[span_++];
            if (total_ > 0 ? !lags_behind() : count_++ % stride_ != 0) continue;
            rest_ = std::string_view(batch_.bytes).substr(span.begin, span.end - span.begin);
            taken_ += rest_.size();
            return true;
        }
    }

    bool lags_behind() const {
        const double share = static_cast<double>(reader_.consumed()) / static_cast<double>(total_);
        return static_cast<double>(taken_) < share * static_cast<double>(sample_bytes);
    }

    void take_line() {
        std::size_t end = std::min(rest_.find('\n'), rest_.size());
        const bool whole = end <= longest_sentence;
        if (!whole) end = whole_characters(rest_.substr(0, longest_sentence));
        line_.assign(rest_.substr(0, end));
        rest_.remove_prefix(std::min(rest_.size(), whole ? end + 1 : end));
    }

    std::uint64_t stride_, total_;
    TextReader reader_;
    TextBatch batch_;
    std::size_t span_ = 0;
    std::uint64_t count_ = 0, taken_ = 0;
    std::string_view rest_;
    std::string line_;
    bool done_ = false;
    Progress progress_;
};

// The number after `words` in a sentencepiece message; "" if it is not there.
std::string number_after(const std::string& sentence, const std::string& words) {
    const auto found = sentence.find(words);
    if (found == std::string::npos) return "";
    const auto begin = found + words.size();
    return sentence.substr(begin, sentence.find_first_not_of("0123456789", begin) - begin);
}

Error training_error(const std::string& said, std::int64_t pieces) {
    const std::string most = number_after(said, "Please set it to a value <= ");
    if (!most.empty())
        return usage_error("--train-tokenizer {} is too large for this text, which yields at most {}", pieces, most);
    const std::string least = number_after(said, "smaller than required_chars. " + std::to_string(pieces) + " vs ");
    if (!least.empty())
        return usage_error("--train-tokenizer {} is too small: the bytes and characters of this text alone need {}",
                           pieces, least);
    return usage_error("--train-tokenizer {}: training on this text failed: {}", pieces, said);
}

}  // namespace

std::string train_sentencepiece(const TextFiles& text, std::int64_t pieces, bool progress) {
    // Fixed: the number of threads is stored in the model, which must not depend on the machine.
    const std::unordered_map<std::string, std::string> settings = {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(pieces)},
        {"byte_fallback", "true"},
        {"normalization_rule_name", "identity"},
        {"remove_extra_whitespaces", "false"},
        {"add_dummy_prefix", "false"},
        {"allow_whitespace_only_pieces", "true"},
        {"num_threads", "4"},
        {"minloglevel", "2"},
    };
    SampledLines lines(text, progress);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &lines, &model);
    if (!status.ok()) throw training_error(status.ToString(), pieces);
    return model;
}

}  // namespace lockstep::data
